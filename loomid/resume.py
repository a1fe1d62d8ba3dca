"""Where a device goes on after its hello (docs/protocol.md): replay, snapshot, what is pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.errors import BadFrame
from loomid.lmp import envelope, frames
from loomid.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomid.devices import Devices
    from loomid.lmp.frames import ClientHello, Event
    from loomid.log import Log
    from loomid.outbox import Templates
    from loomid.vault import Device

SNAPSHOT = "snapshot"
LASTING_LIMIT = 200
LASTING_S = 7 * 86_400.0
MAX_LAST_SEQ = frames.MAX_SEQ // 2
"""Numbers that go on from a larger one would soon be too large themselves."""


@dataclass(frozen=True, slots=True)
class Start:
    """What hello.ok says, and what is written after it."""

    device: Device
    seq: int
    truncated: bool
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What is alive at a position, and the positions under which it is told."""

    after: int
    upto: int
    alive: list[bytes]
    waiting: list[bytes]
    positions: list[int]


async def resume(
    log: Log,
    templates: Templates,
    devices: Devices,
    device: Device,
    hello: ClientHello,
    *,
    new: bool,
    now: float,
) -> Start:
    """Decide from where a device goes on, and number what it gets before live events."""
    moved = False
    while True:
        step = _Step(log, templates, devices, device, hello, new=new, moved=moved)
        decided = await log.at_rest(step)
        if not isinstance(decided, int):
            break
        device = await devices.move_base(device, decided)
        moved = True
    start, snapshot = decided
    if snapshot is not None:
        ended = await log.lasting(snapshot.after, snapshot.upto, LASTING_LIMIT, now - LASTING_S)
        done = _parts(frames.SnapshotDone(), "snapshot.done", now)
        shown = [*snapshot.alive, *(entry.parts for entry in ended), *snapshot.waiting, done]
        placed = list(zip(snapshot.positions, shown, strict=False))
        # From hello.ok's own place: a phone may have noted that.
        devices.snapshot_told(device.device_id, device.base + start.seq, placed[-1][0])
        for position, parts in placed:
            start.outbox.place(position, parts)
    return start


@dataclass(frozen=True, slots=True)
class _Step:
    """One look at the log while nothing is on its way into it."""

    log: Log
    templates: Templates
    devices: Devices
    device: Device
    hello: ClientHello
    new: bool
    moved: bool

    def __call__(self) -> tuple[Start, _Snapshot | None] | int:
        """What to do; or the device's new base, if its last_seq cannot be of this log."""
        # At rest a position is visible at once; it is hello.ok's own.
        visible, last_seq = self.log.take_position(), self.hello.last_seq
        after = self.device.base + (last_seq or 0)
        if self.new:
            return self._start(after, visible, seq=0, truncated=False)
        if after > visible:
            # Only a replaced database makes this: its numbers must not come again. From
            # where we began, so that the device is told once more if it says the same again.
            if (last_seq or 0) > MAX_LAST_SEQ:
                raise BadFrame("No server of this kind has given that last_seq.")
            return self.log.beginning - (last_seq or 0)
        lost = not self.log.resumable(after)
        if last_seq is None or self.moved or lost or self._amid_snapshot(after):
            seq = visible - self.device.base
            return self._start(0 if last_seq is None else after, visible, seq=seq, truncated=True)
        return self._replay(after, last_seq, truncated=False)

    def _amid_snapshot(self, after: int) -> bool:
        return self.devices.amid_snapshot(self.device.device_id, after)

    def _start(
        self, after: int, visible: int, *, seq: int, truncated: bool
    ) -> tuple[Start, _Snapshot | None]:
        """Begin without what the device has seen before."""
        if SNAPSHOT not in self.hello.capabilities:
            return self._replay(after if self.new else visible, seq, truncated=truncated)
        alive = [replayed(event) for event in self.log.projection.snapshot()]
        waiting = list(self._pending(visible))
        count = len(alive) + LASTING_LIMIT + len(waiting) + 1
        positions = [self.log.take_position() for _ in range(count)]
        outbox = Outbox(self.log, self.templates, self.device, visible, seq)
        start = Start(self.device, seq, truncated, outbox)
        return start, _Snapshot(after, visible, alive, waiting, positions)

    def _replay(self, cursor: int, seq: int, *, truncated: bool) -> tuple[Start, None]:
        """Go on with the events after `cursor`, and tell what else still waits."""
        outbox = Outbox(self.log, self.templates, self.device, cursor, seq)
        for parts in self._pending(cursor):
            outbox.push(parts)
        return Start(self.device, seq, truncated, outbox), None

    def _pending(self, upto: int) -> Iterator[bytes]:
        """Approvals and questions still pending that no event beyond `upto` tells."""
        for placed in self.log.projection.pending():
            if placed.position <= upto:
                yield replayed(placed.event)


def replayed(event: Event) -> bytes:
    """An event as it is told again, in a frame of the connection's own."""
    payload = event.stored or envelope.encode_payload(event.payload)
    return envelope.frame_parts(
        event.type, event.ts, event.task_id, event.run_id, payload, replay=True
    )


def _parts(payload: frames.Payload, type_: str, now: float) -> bytes:
    return envelope.frame_parts(
        type_, now, None, None, envelope.encode_payload(payload), replay=True
    )
