"""Any facts at all, with ids from small pools so that they meet."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from loomid import wire
from loomid.lmp.facts import Arrival, FileTaken, GatewayDown, GatewayLost, GatewayUp, Tick, Unheard
from loomid.lmp.file_frames import AttachmentRef

turn_ids = st.sampled_from(["s1:s1:a", "s1:s1:b", "s2:s2:c"])
keys = st.sampled_from(["agent:main:loomi:dm:chat", "agent:main:telegram:dm:42", "odd"])
session_ids = st.sampled_from(["s1", "s2"])
calls = st.integers(0, 3)
call_ids = st.sampled_from(["call_0", "call_1"])
platforms = st.sampled_from(["loomi", "telegram", "cron", "subagent"])
messages = st.sampled_from(["in1", "in2", "out1", "out2"])
texts = st.sampled_from(["", "hi", "hi there", "\n\nhi", "there ▉", "hi there ▉", " ", "other"])
asks = st.sampled_from(["ask1", "ask2"])
cards = st.builds(
    wire.Card,
    question=texts,
    choices=st.none() | st.lists(texts, max_size=4),
    multi_select=st.booleans(),
)
numbers = st.sampled_from([None, 0.0, 1.5])

REF = {"attachment_id": "att_1", "media_type": "application/pdf", "bytes": 5, "name": "a.pdf"}

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "turn_id": turn_ids,
    "session_id": session_ids,
    "session_key": keys,
    "old_session_id": session_ids,
    "new_session_id": session_ids,
    "parent_session_id": st.none() | session_ids,
    "platform": platforms,
    "surface": platforms,
    "iteration": calls,
    "call": calls,
    "call_id": call_ids,
    "text": texts,
    "channel": st.sampled_from(["text", "reasoning"]),
    "message_id": messages,
    "reply_to": st.none() | messages,
    "chat_id": st.sampled_from(["chat", "42"]),
    "job_id": st.sampled_from([None, None, None, "job"]),
    "mode": st.sampled_from(["queue", "steer", "interrupt", "command"]),
    "approval_id": asks,
    "choice": st.sampled_from(["once", "deny", "timeout", "cancelled", "smart_deny"]),
    "choices": st.lists(st.sampled_from(["once", "session", "always", "deny"]), unique=True),
    "approvals": st.lists(asks, unique=True),
    "question_id": asks,
    "questions": st.lists(asks, unique=True),
    "source": st.sampled_from(["clarify", "confirm", "other"]),
    "keys": st.lists(keys, unique=True),
    "outcome": st.sampled_from(["success", "failure", "cancelled"]),
    "status": st.sampled_from(["ok", "error", "blocked"]),
    "finish_reason": st.sampled_from(["stop", "length", "tool_calls"]),
    "status_code": st.sampled_from([None, 500]),
    "ms": numbers,
    "timeout_s": numbers,
    "command": st.sampled_from(["ls", "x" * 70_000]),
    "command_id": st.none() | st.just("cmd"),
    "error": st.none() | texts,
    "context_length": st.none() | st.just(200_000),
    "usage": st.none() | st.just({"input_tokens": 3, "cache_read_tokens": 2}),
    "attachments": st.none() | st.just([REF, {"odd": 1}]),
    "path": st.sampled_from(["", "/a.pdf", "/a.pdf"]),
}
_OPTIONAL = {"session_key", "turn_id", "call_id", "session_id"}


def _of(cls: type) -> st.SearchStrategy[Any]:
    fields: dict[str, Any] = cls.__dataclass_fields__
    named: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in fields.items():
        if str(field.type) == "bool":
            named[name] = st.booleans()
            continue
        named[name] = _FIELDS.get(name, texts)
        if name in _OPTIONAL and "None" in str(field.type):
            named[name] = st.none() | named[name]
        if cls is wire.ApiFailed and name == "error":
            named[name] = texts
        if cls is wire.QuestionAsked and name == "questions":
            named[name] = st.lists(cards, max_size=3)
        if cls is wire.QuestionDone and name == "outcome":
            named[name] = st.sampled_from(["answered", "cancelled", "timeout", "other"])
    return st.builds(cls, **named)


ups = st.builds(
    GatewayUp,
    name=st.just("rig"),
    hermes_version=st.sampled_from(["0.19.0", "0.22.2"]),
    shim_version=st.just("0.1.0"),
    features=st.sampled_from([["stream"], ["edits"], ["stream", "cancel_foreign"]]),
    home_key=st.none(),
)
taken = st.builds(
    FileTaken,
    message_id=messages,
    attachment=st.none() | st.just(msgspec.convert(REF, AttachmentRef)),
    error=st.sampled_from([None, "gone"]),
)
local = st.one_of(
    ups,
    taken,
    *(st.builds(one) for one in (GatewayDown, GatewayLost, Tick, Unheard)),
)
wired = st.one_of(*(_of(cls) for cls in wire.FACTS.values()))
frequent = st.one_of(
    *(
        _of(cls)
        for cls in (
            wire.TurnStarted,
            wire.ApiStarted,
            wire.StreamStarted,
            wire.Delta,
            wire.StreamEnded,
            wire.ToolStarted,
            wire.TurnEnded,
        )
    )
)
steps = st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.3, 3.0, 31.0, 150.0, 4_000.0])


@st.composite
def arrivals(draw: st.DrawFn, *, most: int = 40) -> list[Arrival]:
    """Any arrivals, of two boots, in any order; time never goes back."""
    rows: list[Arrival] = []
    at = 1_000.0
    for n in range(1, draw(st.integers(1, most)) + 1):
        at += draw(steps)
        fact = draw(st.one_of(frequent, frequent, wired, wired, local))
        own = type(fact) not in wire.KINDS
        boot = draw(st.sampled_from(["boot1", "boot1", "boot1", "boot2"]))
        rows.append(Arrival("gw", boot, 0 if own else n, at, at, fact))
    return rows
