"""From Hermes' words to ours: what a shim passed on, as the facts of wire.py.

The shim tells what a hook was given under Hermes' own names; whatever can be wrong or
missing in it is put right here, where mending it costs no restart of a gateway.
"""

from __future__ import annotations

from dataclasses import fields
from math import inf
from typing import TYPE_CHECKING, Any

from loomid.lmp.preview import of_args
from loomid.wire import FACTS, LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 2**53
TEXT_CHARS = 2**20 + 1_024
"""A little more than phones are shown, so that it shows where a text was cut."""
NAME_CHARS = 1_024
COMMAND_CHARS = 2**18
_MOST = dict.fromkeys(("text", "error", "reason", "description", "preview", "caption"), TEXT_CHARS)
_MOST |= dict.fromkeys(("path", "url"), 4 * NAME_CHARS)
_MOST["command"] = COMMAND_CHARS
_OURS = {
    "api_call_count": "call",
    "assistant_message": "text",
    "assistant_response": "text",
    "delta": "text",
    "duration_ms": "ms",
    "final_text": "text",
    "kind": "channel",
    "tool_call_id": "call_id",
    "tool_name": "tool",
    "turn_exit_reason": "reason",
    "user_message": "text",
}
"""Hermes' names of what a hook tells → those of the facts."""


def body_of(kind: str, said: dict[str, Any]) -> dict[str, Any]:
    """The fields of a fact of this kind from what a shim said, as near as can be.

    What Hermes left out becomes empty; what does not fit stays, and is refused when the
    fact is made. Fields that have our names already are kept. Raises ValueError for numbers
    that are none.
    """
    body = {_OURS.get(name, name): value for name, value in said.items()}
    derive = _DERIVED.get(kind)
    body |= derive(body) if derive is not None else {}
    for each in fields(FACTS[kind]):
        if each.name in body:
            value = _cast(str(each.type), body[each.name])
            body[each.name] = (
                value[: _MOST.get(each.name, NAME_CHARS)] if isinstance(value, str) else value
            )
    return body


def _cast(wanted: str, value: object) -> object:
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError("a number that neither phones nor the database can hold")
    if wanted.startswith("str") and isinstance(value, (int, float)):
        return str(value)
    if wanted == "bool" and isinstance(value, (int, float, str)):
        return bool(value)
    if value is None and "None" not in wanted:
        return _EMPTY.get(wanted)
    return value


_EMPTY: dict[str, Any] = {"str": "", "int": 0, "float": 0.0, "bool": False}


def _shown(body: dict[str, Any]) -> dict[str, Any]:
    text = body.get("text")
    return {"text": text[:LIMIT]} if isinstance(text, str) else {}


def _api_ended(body: dict[str, Any]) -> dict[str, Any]:
    """A call that only asks for tools has no text: none, not an unknown one."""
    usage = body.get("usage")
    told = {} if "text" not in body else {"text": body["text"] or ""}
    if not isinstance(usage, dict):
        return {**told, "usage": None}
    counts = ((n, c) for n, c in usage.items() if isinstance(c, (int, float)) and 0 <= c < inf)
    return {**told, "usage": {str(name): min(round(count), MOST) for name, count in counts}}


def _api_failed(body: dict[str, Any]) -> dict[str, Any]:
    error = body.get("error")
    text = error.get("message") if isinstance(error, dict) else error
    return {"error": text[:LIMIT] if isinstance(text, str) else text}


def _tool_started(body: dict[str, Any]) -> dict[str, Any]:
    """`call`: the model call it came from is the end of <turn>:api:<n>, the request's id."""
    if "args" not in body:
        return {}
    call = str(body.get("api_request_id") or "").rpartition(":api:")[2]
    return {"preview": of_args(body["args"]), "call": int(call) if call.isdecimal() else 0}


def _approval_asked(body: dict[str, Any]) -> dict[str, Any]:
    """Of a huge command head and tail: phones are shown less of both, and that it was cut."""
    told = {} if "answerable" in body else {"answerable": bool(body.get("choices"))}
    command = body.get("command")
    if isinstance(command, str) and len(command) > COMMAND_CHARS:
        half = COMMAND_CHARS // 2
        return {**told, "command": command[:half] + command[-half:]}
    return told


def _file_sent(body: dict[str, Any]) -> dict[str, Any]:
    meta = body.get("metadata")
    return {"job_id": meta.get("job_id") if isinstance(meta, dict) else body.get("job_id")}


def _sent(body: dict[str, Any]) -> dict[str, Any]:
    if "metadata" not in body:
        return {}
    meta = body["metadata"] if isinstance(body["metadata"], dict) else {}
    flags = {"notify": "notify", "expect_edits": "expect_edits", "interim": "_interim_send"}
    told = {ours: bool(meta.get(theirs)) for ours, theirs in flags.items()}
    return {**told, "job_id": meta.get("job_id")}


_DERIVED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "turn.started": _shown,
    "injected": _shown,
    "api.ended": _api_ended,
    "api.failed": _api_failed,
    "tool.started": _tool_started,
    "approval.asked": _approval_asked,
    "sent": _sent,
    "file.sent": _file_sent,
}
