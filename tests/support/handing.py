"""Files that an agent hands over, and what phones are told of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loomid.lmp import envelope
from tests.support.answering import Side, key_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def events(side: Side, type_: str) -> list[dict[str, Any]]:
    """The payloads of the visible events of a type."""
    frames = [json.loads(envelope.render(0, e.parts)) for e in side.log.read(0, 10_000)]
    return [frame["payload"] for frame in frames if frame["type"] == type_]


async def event(side: Side, type_: str, **fields: Any) -> dict[str, Any]:
    """The first event with these values, once it is there."""
    found: list[dict[str, Any]] = []

    def seen() -> bool:
        found.extend(
            one for one in events(side, type_) if all(one.get(k) == v for k, v in fields.items())
        )
        return bool(found)

    await until(seen)
    return found[0]


def untaken(side: Side) -> bool:
    """Whether a file of the agent has been told of and not been taken in."""
    return "gw1" in side.pump.runs and bool(side.pump.runs["gw1"]._handed._waiting)


def handed(message_id: str, path: Path | str, **more: Any) -> dict[str, Any]:
    """As the plugin tells it."""
    return {
        "chat_id": "c1",
        "session_key": key_of("c1"),
        "message_id": message_id,
        "path": str(path),
        "url": "",
        "name": "report.pdf",
        "caption": None,
        "reply_to": None,
        "metadata": None,
        "ours": False,
        **more,
    }
