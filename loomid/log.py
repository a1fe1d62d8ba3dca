"""The log: positions, commit then visible, the ring of encoded events, the projection.

One sequence for all devices (design "The log"). A position is never used twice,
whatever happens to the process, the machine or the file. It knows no devices.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, TypeVar

from loomid import givenup
from loomid.batch import Batch
from loomid.database import BUGS
from loomid.givenup import GivenUp
from loomid.lmp import envelope, frames, placeholder
from loomid.lmp.projection import Projection
from loomid.positions import Exhausted, Positions
from loomid.ring import MAX_BYTES, Entry, Gone, Ring
from loomid.room import MAX_DB_BYTES
from loomid.rows import Rows, event_of
from loomid.stamps import Stamps
from loomid.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from loomid.lmp.frames import Event
    from loomid.rows import EventRow, Ready
    from loomid.store import Store

__all__ = ["Batch", "Entry", "Exhausted", "Gone", "Log"]

T = TypeVar("T")

log = logging.getLogger("loomid.log")

MIN_WINDOW = 512
RETENTION_S = 7 * 86_400.0
COMMIT_S = 1.0
LONGEST_COMMIT_S = 16.0  # what is too large for the first limit must get through, too
BACKOFF_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
COMMIT_BYTES = 16_384  # what a commit adds to the write-ahead log, about, besides payloads


def _patience(failures: int) -> float:
    """How long the next attempt at a batch may take."""
    return min(COMMIT_S * 2.0 ** min(failures, 10), LONGEST_COMMIT_S)


def _entry(row: EventRow, *, replay: bool = False) -> Entry:
    position, ts, type_, task_id, run_id, _, payload = row
    parts = envelope.frame_parts(type_, ts, task_id, run_id, payload, replay=replay)
    return Entry(position, parts, type_, type_ in frames.URGENT)


class Log:
    """The open log. Made by `open`; `close` records a clean stop."""

    def __init__(
        self,
        store: Store,
        positions: Positions,
        *,
        window: int,
        retention_s: float,
        max_db_bytes: int,
        clock: Callable[[], float],
        given_up: GivenUp,
    ) -> None:
        self.window = max(window, MIN_WINDOW)
        self.projection = Projection()
        self.stamps = Stamps(clock)
        self.health = store.health
        self.odd: Counter[str] = Counter()
        """Events `unencodable` (told by a placeholder) and, at the start, `unreadable`."""
        self._store = store
        self._taken = positions
        self._clock = clock
        self._ring = Ring(self.window)
        # First positions of the batches whose events are not shown yet: at most one that is
        # stored, and one that is being stored.
        self._hidden: deque[int] = deque()
        self._resting = 0  # how many wait until there is none
        self._stored = 0  # the last position of a batch that is on disk
        self._undo_after: int | None = None
        self._given_up = given_up
        self._next_fact = 1
        self._committing = asyncio.Lock()
        self.upkeep = Upkeep(
            store,
            positions,
            floor=lambda: self._ring.window_floor,
            committing=self._committing.locked,
            clock=clock,
            retention_s=retention_s,
            max_bytes=max_db_bytes,
        )
        self._watchers: dict[object, Callable[[], None]] = {}

    @classmethod
    async def open(
        cls,
        store: Store,
        *,
        window: int,
        clock: Callable[[], float],
        boot_id: str,
        retention_s: float = RETENTION_S,
        max_db_bytes: int = MAX_DB_BYTES,
        given_up: Path | None = None,
    ) -> Log:
        """Begin a new start and load the window; `boot_id` is the kernel's.

        `given_up`: where batches are noted that may be stored or not; better not on the
        database's own disk.
        """
        note = GivenUp(given_up or store.path.with_name(givenup.FILE))
        with store.opening():
            positions = await Positions.open(store, boot_id, note.read())
            note.clear()
            self = cls(
                store,
                positions,
                window=window,
                retention_s=retention_s,
                max_db_bytes=max_db_bytes,
                clock=clock,
                given_up=note,
            )
            await self._load()
        return self

    async def _load(self) -> None:
        self._next_fact = await self._store.last_fact() + 1
        rows, before = await self._store.newest(self.window, MAX_BYTES)
        self._ring.floor = max(before, await self._store.forgotten())
        self._ring.extend([_entry(row) for row in rows])
        self._stored = self._ring.last
        for row in await self._store.alive():
            try:
                self.projection.apply(event_of(row), row[0])
            except (ValueError, KeyError) as error:
                self._odd("unreadable", row[2], error)

    async def close(self) -> None:
        """Record a clean stop, once what was being stored is finished."""
        await self._store.settle()
        try:
            await self._taken.close()
        except sqlite3.Error as error:
            log.error("cannot record a clean stop: %s", error)

    # ── positions ───────────────────────────────────────────────────────────

    @property
    def visible(self) -> int:
        """Up to here nothing is still to come: each event is in the ring or never will be.

        A control frame at or below it may be sent once the events before it were.
        """
        return self._hidden[0] - 1 if self._hidden else self._taken.last

    def take_position(self) -> int:
        """The next position, for a control frame; it waits until `visible` reaches it.

        Raises Exhausted after a long failure of the disk.
        """
        return self._taken.take()

    @property
    def beginning(self) -> int:
        """Up to here are the positions of earlier starts."""
        return self._taken.beginning

    @property
    def held(self) -> tuple[int, int]:
        """How many visible events are in memory, and how many bytes they take."""
        return self._ring.held

    def resumable(self, position: int) -> bool:
        """Whether a device that saw everything up to here can go on without a gap."""
        return position >= self._ring.window_floor and self._taken.known(position)

    # ── reading ─────────────────────────────────────────────────────────────

    def read(self, after: int, limit: int) -> Sequence[Entry]:
        """Visible events beyond a position, oldest first.

        Raises Gone when one of them has left the ring. What `resumable` allows is in it.
        """
        return self._ring.read(after, limit)

    def behind(self, after: int) -> int:
        """How many visible events there are beyond a position. Raises Gone as `read` does."""
        return self._ring.count(after)

    async def lasting(self, after: int, upto: int, limit: int, since: float) -> list[Entry]:
        """Ends, decisions and notifications in (after, upto], the newest `limit`, as replay.

        Raises StorageFailing.
        """
        if self._undo_after is not None:
            upto = min(upto, self._undo_after)  # beyond may be stored what was given up
        try:
            rows = await self._store.lasting(after, upto, limit, since)
        except sqlite3.Error as error:
            raise self.health.unreadable(error) from None
        return [_entry(row, replay=True) for row in rows]

    async def at_rest(self, step: Callable[[], T]) -> T:
        """Call `step` when no event is on its way to the disk, and return what it returns.

        Frames that it numbers then come before every later event, so that what they say is
        never older than an event that the phone got before them. Under load such moments are
        only inside `commit`, between one batch and the next.
        """
        if not self._hidden:
            return step()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def moved() -> None:
            if done.done() or self._hidden:
                return
            try:
                done.set_result(step())
            except Exception as error:  # noqa: BLE001 - this is inside of someone's commit
                done.set_exception(error)

        unwatch = self.watch(moved)
        self._resting += 1
        try:
            return await done
        finally:
            self._resting -= 1
            unwatch()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back whenever `visible` moved by a commit; returns how to stop that."""
        key = object()
        self._watchers[key] = callback

        def unwatch() -> None:
            self._watchers.pop(key, None)

        return unwatch

    def _notify(self) -> None:
        for callback in list(self._watchers.values()):
            callback()

    # ── writing ─────────────────────────────────────────────────────────────

    async def commit(self, batch: Batch) -> None:
        """Store a batch, then make its events visible; retries until it is stored.

        Batches are stored in the order of the calls; one is made ready, and the one before
        shown, while another is being stored. Each attempt gives the events new positions where
        a control frame may have overtaken them meanwhile.
        """
        begun = time.monotonic()
        ready = self._encode(batch.events)
        base = Rows.of(batch, self._next_fact, self._clock())
        self._next_fact += len(batch.facts)
        await self._committing.acquire()
        failures = 0
        while (rows := await self._attempt(ready, base, _patience(failures))) is None:
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
        self.stamps.commits.observe(time.monotonic() - begun)
        if at_once := self._resting > 0:
            self._show(rows.events, ready)
        # Not in a `finally`: behind a batch that was broken off, and may be stored or not, no
        # other may be stored. It would take the events of that one back.
        self._committing.release()
        if not at_once:
            # One turn of the loop: the next batch is given to the database first, so that it is
            # stored while this one is shown.
            await asyncio.sleep(0)
            self._show(rows.events, ready)

    def _encode(self, events: list[Event]) -> list[Ready]:
        try:  # all at once, as nearly always they can be
            return [(event, event.type, envelope.encode_payload(event.payload)) for event in events]
        except Exception:  # noqa: BLE001 - one bad event must not stop all others
            return [self._encode_one(event) for event in events]

    def _encode_one(self, event: Event) -> Ready:
        try:
            return event, event.type, envelope.encode_payload(event.payload)
        except Exception as error:  # noqa: BLE001 - as above
            self._odd("unencodable", event.type, error)
            told, payload = placeholder.instead_of(event, error)
            return told, told.type, payload

    def _odd(self, reason: str, type_: str, error: Exception) -> None:
        self.odd[reason] += 1
        log.error("a %s is %s: %s", type_, reason, type(error).__name__)

    async def _attempt(self, ready: list[Ready], base: Rows, patience_s: float) -> Rows | None:
        """Store a batch; as which rows, or None: it failed."""
        try:
            with self.health.expecting(patience_s):
                if self.upkeep.room.tight:
                    await self.upkeep.room.squeeze()
                if self._taken.left < len(ready):
                    await self._taken.reserve()
            rows = base.numbered(ready, self._taken.last + 1, self._undo_after)
            await self._append(rows, patience_s)
        except BUGS:
            raise
        except (sqlite3.Error, TimeoutError) as error:
            self.health.failed(error)
            return None
        self._undo_after = None
        self.upkeep.room.wrote(COMMIT_BYTES + rows.size)
        self.health.recovered()
        return rows

    async def _append(self, rows: Rows, patience_s: float) -> None:
        """One attempt. Raises when it failed; its positions are then free or burnt.

        When this is cancelled `visible` stays below the batch: it may be on disk.
        """
        count = len(rows.events)
        last = self._taken.take(count)
        if count:
            self._hidden.append(last - count + 1)
        try:
            async with asyncio.timeout(patience_s):
                await self._store.append(rows)
        except TimeoutError as error:
            rows.abandoned = True
            # Too late to stop a COMMIT that is already running: the next attempt
            # removes what it left, or the next start moves it.
            if count and not await self._given_up.note(last - count + 1, last):
                await self._store.settle()
            self._give_up(error, count)
            await self._store.settle()
            raise
        except sqlite3.Error as error:
            if self._taken.last == last:
                self._taken.give_back(count)  # nobody was numbered behind them
            self._give_up(error, count)
            raise
        if count:
            self._stored = last

    def _give_up(self, error: Exception, count: int) -> None:
        """The positions of the attempt will never be events: nobody need wait for them."""
        self._undo_after = self._stored
        if count:
            self._hidden.pop()
        self.health.failed(error)
        self._notify()

    def _show(self, rows: list[EventRow], ready: list[Ready]) -> None:
        if not rows:
            return
        self._hidden.remove(rows[0][0])
        self._ring.extend([_entry(row) for row in rows])
        events = [event for event, _, _ in ready]
        for row, event in zip(rows, events, strict=True):
            self.projection.apply(event, row[0])
        self.stamps.shown(rows[0][0], [row[2] for row in rows], events)
        self._notify()

    # ── housekeeping ────────────────────────────────────────────────────────

    async def tend(self) -> None:
        """Look after the database beside the commits; runs until cancelled."""
        await self.upkeep.run()
