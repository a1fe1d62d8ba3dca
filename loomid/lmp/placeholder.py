"""What phones are told in place of an event that cannot be encoded (docs/protocol.md).

Text from outside is made valid at the door, so this is for our own mistakes: one of them must
neither stop the stream nor leave a run without its end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loomid.lmp import envelope
from loomid.lmp.frames import RUN_ENDS, Event, Notification, RunFailed

SOURCE = "loomid"


def instead_of(event: Event, error: Exception) -> tuple[Event, bytes]:
    """The same event without what is wrong in it; where even that fails, one that says so."""
    reason = type(error).__name__
    try:
        plain = msgspec.to_builtins(event.payload)
        payload: Any = msgspec.convert(_mended(plain, reason), type(event.payload))
        return _encoded(event, payload)
    except Exception:  # noqa: BLE001 - whatever it was: something must be told
        return _encoded(event, _notice(event, reason))


def _notice(event: Event, reason: str) -> RunFailed | Notification:
    said = f"loomid could not tell a {event.type}: {reason}"
    if event.type in RUN_ENDS:
        return RunFailed(run_id=event.run_id or "", error=said)
    return Notification(
        category="diagnostic", title=said, text=said, source=SOURCE, requires_attention=False
    )


def _encoded(event: Event, payload: Any) -> tuple[Event, bytes]:  # noqa: ANN401 - any payload
    told = Event(payload, event.ts, event.task_id, event.run_id, event.cause)
    return told, envelope.encode_payload(payload)


def _mended(value: Any, reason: str) -> Any:  # noqa: ANN401 - JSON
    match value:
        case str():
            return value if _is_text(value) else f"[not shown: {reason}]"
        case list():
            return [_mended(one, reason) for one in value]
        case dict():
            return {key: _mended(one, reason) for key, one in value.items()}
        case _:
            return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeError:
        return False
    return True
