"""Facts of one plain turn, for tests that tell a story."""

from __future__ import annotations

from typing import Any

from loomid import wire
from loomid.lmp.facts import GatewayUp
from tests.support.folding import Driver, brief

KEY = "agent:main:loomi:dm:chat"
FOREIGN = "agent:main:telegram:dm:42"
UP = GatewayUp("rig", "0.22.2", "0.1.0", ["stream"], None)
OLD_UP = GatewayUp("rig", "0.19.0", "0.1.0", ["edits"], None)


def started(turn: str = "s1:s1:t1", key: str | None = KEY, **more: Any) -> wire.TurnStarted:
    platform = more.pop("platform", "loomi")
    text = more.pop("text", "do it")
    return wire.TurnStarted(turn, "s1", key, platform, "m", text, **more)


def asked(call: int = 1, turn: str = "s1:s1:t1", platform: str = "loomi") -> wire.ApiStarted:
    return wire.ApiStarted(turn, "s1", call, "m", "p", platform)


def question(name: str, key: str = KEY) -> wire.QuestionAsked:
    """One of two colours, outside of any turn."""
    card = wire.Card("Which?", ["red (Recommended)", "blue"])
    return wire.QuestionAsked(name, "clarify", key, None, None, None, "", [card], 60.0)


def failed(call: int = 1, turn: str = "s1:s1:t1", error: str = "Error 500") -> wire.ApiFailed:
    return wire.ApiFailed(turn, "s1", call, 500, "server_error", True, error)


def answered(text: str = "done", call: int = 1, turn: str = "s1:s1:t1") -> list[Any]:
    return [
        wire.StreamStarted(turn, call, "s1", "m", "p", "loomi"),
        wire.Delta(turn, call, text, "text"),
        wire.StreamEnded(turn, call, text, True, None),
        wire.ApiEnded(turn, call, "stop", text),
    ]


def ended(turn: str = "s1:s1:t1", **how: Any) -> wire.TurnEnded:
    row = {"completed": True, "interrupted": False, "failed": False, "reason": ""} | how
    return wire.TurnEnded(turn, "s1", **row)


def driver(up: GatewayUp = UP, boot: str = "boot") -> Driver:
    made = Driver(boot=boot)
    made.fact(up)
    made.events.clear()
    return made


def runs_of(events: list[Any]) -> list[list[Any]]:
    return brief(e for e in events if e.type.startswith("run."))


def injected(
    message: str, text: str, mode: str = "queue", *, busy: bool = False, **more: Any
) -> wire.Injected:
    return wire.Injected(KEY, message, text, mode, busy, "dev_1", f"req_{message}", **more)


def handed() -> wire.FileSent:
    """A file that the agent sends to the chat."""
    sent = {"chat_id": "chat", "session_key": None, "message_id": "out1", "path": "/a", "url": ""}
    return wire.FileSent(**sent, name="a", caption="", reply_to=None, job_id=None, ours=False)
