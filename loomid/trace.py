"""One event's way, for the owner: hook, received, folded, committed, written per device.

An event_id is of one device (its seq is position - base), so the same id is another event
on each.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loomid.log import Gone

if TYPE_CHECKING:
    from loomid.desk import DeviceStatus
    from loomid.hub import Hub
    from loomid.log import Entry, Log
    from loomid.stamps import Told

_EVENT_ID = re.compile(r"e_([1-9][0-9]{0,15})")


def trace(hub: Hub, log: Log, event_id: str, device_id: str | None = None) -> dict[str, Any]:
    """What is known of the event with this id on each device, or on one.

    `state` is `traced`; `too_old`: it is not in memory any more, or from before our start;
    `none`: no event of that device has that number (yet). Times are epoch seconds; `hook` and
    `received` are null where no hook caused it, `folded` is later than `received` where loomid
    held it back on purpose. Raises ValueError (that is no event_id), KeyError (no such device).
    """
    match = _EVENT_ID.fullmatch(event_id)
    if match is None:
        raise ValueError
    devices = hub.desk.devices()
    asked = [one for one in devices if device_id in (None, one.device.device_id)]
    if device_id is not None and not asked:
        raise KeyError
    found = [_of(log, devices, one, int(match[1])) for one in asked]
    return {"event_id": event_id, "devices": found}


def _of(log: Log, devices: list[DeviceStatus], asked: DeviceStatus, seq: int) -> dict[str, Any]:
    position = asked.device.base + seq
    name = {"device_id": asked.device.device_id, "name": asked.device.name}
    try:
        entry = _entry(log, position)
    except Gone:
        return {**name, "state": "too_old"}
    if entry is None:
        return {**name, "state": "none"}
    told = log.stamps.of(position)
    if told is None:
        return {**name, "state": "too_old", "type": entry.type}
    hook, received = told.cause or (None, None)
    return {
        **name,
        "state": "traced",
        "type": entry.type,
        "hook": hook,
        "received": received,
        "folded": told.folded,
        "committed": told.committed,
        "written": _written(log, devices, position, told),
    }


def _entry(log: Log, position: int) -> Entry | None:
    entries = log.read(position - 1, 1)
    return entries[0] if entries and entries[0].position == position else None


def _written(
    log: Log, devices: list[DeviceStatus], position: int, told: Told
) -> list[dict[str, Any]]:
    """For each device that was paired before the event: when it was handed to its socket, the
    first time and perhaps again; `known`: an empty list means that it never was."""
    writes = log.stamps.writes(position)
    known = log.stamps.remembers(told.committed)
    return [
        {
            "device_id": one.device.device_id,
            "name": one.device.name,
            "event_id": f"e_{position - one.device.base}",
            "at": writes.get(one.device.device_id, []),
            "known": known,
        }
        for one in devices
        if one.device.base < position
    ]
