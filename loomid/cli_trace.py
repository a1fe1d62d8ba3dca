"""An event's way in words, for `loomictl trace`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOO_OLD = "too old: it is no longer in memory, or from before loomid's start"


def known(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of what /trace answered the devices to show: those that have (or had) such an event."""
    devices = [one for one in found["devices"] if one["state"] != "none"]
    traced = [one for one in devices if one["state"] == "traced"]
    return [{**one, "event_id": found["event_id"]} for one in traced or devices]


def missing(found: dict[str, Any]) -> str:
    """Why there is none."""
    if not found["devices"]:
        return "no phone is paired"
    event_id = found["event_id"]
    return f"there is no event {event_id}: it is still to come, or the frame was no event"


def lines(devices: list[dict[str, Any]]) -> list[str]:
    """The ways of their events."""
    shown = []
    for one in devices:
        head = f"{one['event_id']} of {one['name']} ({one['device_id']})"
        shown.append(f"{head}: {one.get('type') or _TOO_OLD}")
        if one["state"] == "traced":
            shown += [f"  {stage:<11}{line}" for stage, line in _stages(one)]
        elif "type" in one:
            shown.append(f"  {_TOO_OLD}")
    return shown


def _stages(one: dict[str, Any]) -> Iterator[tuple[str, str]]:
    begun = one["hook"]
    if begun is None:
        begun = one["folded"]
        yield "hook", "none: loomid itself caused it"
        yield "folded", _clock(begun)
    else:
        yield "hook", _clock(begun)
        yield "received", _after(begun, one["received"])
        held = one["folded"] - one["received"]
        why = f"  held back for {held * 1000:.0f} ms on purpose" if held else ""
        yield "folded", _after(begun, one["folded"]) + why
    yield "committed", _after(begun, one["committed"])
    for written in one["written"]:
        who = f"{written['name']} ({written['device_id']}, as {written['event_id']})"
        times = ", again ".join(_after(begun, at) for at in written["at"])
        never = "not yet" if written["known"] else "no longer known"
        yield "written", f"{times or never}  {who}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at)) + f"{at % 1:.6f}"[1:]


def _after(begun: float, at: float) -> str:
    return f"{(at - begun) * 1000:+.3f} ms"
