"""Where a device goes on after its hello (LMP design §2): replay, snapshot, what is pending."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.lmp import frames
from loomid.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loomid.devices import Devices
    from loomid.lmp.frames import ClientHello, Event
    from loomid.log import Log
    from loomid.vault import Device

SNAPSHOT = "snapshot"
LASTING_LIMIT = 200
LASTING_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Start:
    """What hello.ok says, and what is written after it."""

    device: Device
    seq: int
    truncated: bool
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class _Plan:
    """`after`: the position the device has seen; `cursor`: from where events follow."""

    after: int
    cursor: int
    truncated: bool


async def resume(
    log: Log, devices: Devices, device: Device, hello: ClientHello, *, new: bool, now: float
) -> Start:
    """Decide from where a device goes on, and number what it gets before live events."""
    moved = False
    await _quiet(log)
    while not new and device.base + (hello.last_seq or 0) > log.visible:
        # Only a replaced database makes this: its numbers must not come again.
        device = await devices.move_base(device, log.visible - (hello.last_seq or 0))
        moved = True
        await _quiet(log)
    # From here to the last position taken nothing else happens: the snapshot, the
    # pending approvals and the cursor are of the same moment.
    visible = log.visible
    plan = _new(device, hello, visible) if new else _known(log, device, hello, visible, moved)
    seq = plan.cursor - device.base if plan.truncated else (0 if new else hello.last_seq or 0)
    outbox = Outbox(log, device.base, plan.cursor, seq)
    if SNAPSHOT not in hello.capabilities or not (plan.truncated or new):
        for parts in _pending(log, plan.cursor):
            outbox.push(parts)
        return Start(device, seq, plan.truncated, outbox)
    alive = [_replayed(event) for event in log.projection.snapshot()]
    waiting = list(_pending(log, visible))
    done = _parts(frames.SnapshotDone(), "snapshot.done", now)
    count = len(alive) + LASTING_LIMIT + len(waiting) + 1
    positions = [log.take_position() for _ in range(count)]
    ended = await log.lasting(plan.after, visible, LASTING_LIMIT, now - LASTING_S)
    shown = [*alive, *(entry.parts for entry in ended), *waiting, done]
    for position, parts in zip(positions, shown, strict=False):
        outbox.place(position, parts)
    return Start(device, seq, plan.truncated, outbox)


def _new(device: Device, hello: ClientHello, visible: int) -> _Plan:
    """Nothing from before the pairing; what came since is in the snapshot, if there is one."""
    cursor = visible if SNAPSHOT in hello.capabilities else device.base
    return _Plan(device.base, cursor, truncated=False)


def _known(log: Log, device: Device, hello: ClientHello, visible: int, moved: bool) -> _Plan:
    if hello.last_seq is None:
        return _Plan(0, visible, truncated=True)
    after = device.base + hello.last_seq
    if moved or not log.resumable(after):
        return _Plan(after, visible, truncated=True)
    return _Plan(after, after, truncated=False)


async def _quiet(log: Log) -> None:
    """Wait until no event is on its way to the disk.

    Frames numbered then come before every later event, so that what they say cannot be
    older than an event that the phone got before them.
    """
    moved = asyncio.Event()
    unwatch = log.watch(moved.set)
    try:
        while log.take_position() > log.visible:
            moved.clear()
            await moved.wait()
    finally:
        unwatch()


def _pending(log: Log, upto: int) -> Iterable[bytes]:
    """Approvals still pending that no event beyond `upto` tells."""
    return (
        _replayed(placed.event) for placed in log.projection.pending() if placed.position <= upto
    )


def _replayed(event: Event) -> bytes:
    return frames.frame_parts(
        event.type,
        event.ts,
        event.task_id,
        event.run_id,
        frames.encode_payload(event.payload),
        replay=True,
    )


def _parts(payload: frames.Payload, type_: str, now: float) -> bytes:
    return frames.frame_parts(type_, now, None, None, frames.encode_payload(payload), replay=True)
