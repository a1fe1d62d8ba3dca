"""The database stays within its size: the oldest events go first, and room is given back.

Everything is done in slices between commits. What phones may still resume from, and what
is alive, is never removed, even if that alone is more than the size allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
from typing import TYPE_CHECKING

from loomid.tidy import FORGET_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.store import Store
    from loomid.tidy import Usage

log = logging.getLogger("loomid.room")

MAX_DB_BYTES = 2**30
WAL_BYTES = 64 * 2**20
CHECKPOINT_BYTES = 16 * 2**20
SLICE = 500
SLICE_PAUSE_S = 0.02
RETRY_S = 1.0
SPARE_BYTES = 4 * 2**20
GIVE_BACK_PAGES = 64
GIVE_BACK_BYTES = 2**20
"""What that many pages write into the write-ahead log, at most about."""


class Room:
    """Of one database; `floor` is the position above which nothing is removed."""

    def __init__(self, store: Store, floor: Callable[[], int], max_bytes: int) -> None:
        self._wal = min(WAL_BYTES, max_bytes // 8)
        self._checkpoint = min(CHECKPOINT_BYTES, max_bytes // 32)
        # Above `high` events are removed until `low`, above `hard` before anything is stored.
        self._hard = max_bytes - 2 * self._wal
        self._high = self._hard - self._wal
        self._low = self._high // 8 * 7
        self._step = self._high // 64
        self._tidy = store.tidy
        self._health = store.health
        self._floor = floor
        self._used = 0
        self._since = 0  # bytes stored since then, rather too many
        # Bytes in the write-ahead log, about; one that was killed may have left some.
        self._unsaved = store.tidy.unsaved()
        self._due = asyncio.Event()
        self._due.set()
        self._warned = False
        self._after = 0  # from here on the oldest events are looked for
        self._removing = asyncio.Lock()

    def wrote(self, size: int) -> None:
        """So many bytes more were stored, at most."""
        self._since += size
        self._unsaved += size
        full = self._since >= max(self._step, self._high - self._used)
        if full or self._unsaved > self._checkpoint:
            self._due.set()

    @property
    def tight(self) -> bool:
        """Whether it must be seen to that there is room before anything more is stored."""
        full = self._since >= max(2 * self._step, self._hard - self._used)
        return full or self._unsaved > self._wal

    async def run(self) -> None:
        """Make room whenever it is needed, until cancelled."""
        await self._tidy.bound_wal(self._wal)
        said = ""
        while True:
            await self._due.wait()
            try:
                await self.make()
                said = ""
            except sqlite3.Error as error:
                if not self._health.met(error):
                    self._due.set()
                    if said != (said := str(error)):
                        log.error("cannot make room: %s; trying until it works", error)
                await asyncio.sleep(RETRY_S)

    async def make(self) -> None:
        """Checkpoint, and remove the oldest events if too much is stored.

        Raises sqlite3.Error.
        """
        self._due.clear()
        await self._save()
        await self._look()
        self._after = 0
        enough = self._low if self._used > self._high else self._high
        while self._used > enough:
            if not await self._remove():
                break
            await asyncio.sleep(0 if self.tight else SLICE_PAUSE_S)
        if self._used > self._high and not self._warned:
            self._warned = True
            log.warning(
                "what is alive and what phones may resume from takes %d MiB, more than"
                " LOOMI_MAX_DB_SIZE has room for",
                self._used >> 20,
            )

    async def squeeze(self) -> None:
        """Make just so much room that something can be stored, if that is possible."""
        try:
            await self._save()
            await self._look()
            while self._used > self._hard and await self._remove():
                pass
        except sqlite3.Error as error:
            self._since = 0  # what cannot be removed must not keep out what is new
            self._health.met(error)

    async def _remove(self) -> bool:
        """Remove a slice of the oldest events; False: there are none that may go."""
        async with self._removing:
            after = await self._tidy.forget_events(math.inf, self._floor(), self._after, SLICE)
            self._unsaved += 2 * FORGET_BYTES  # they are overwritten, too
            self._after = after or 0
            await self._save()
            await self._look()
        return after is not None

    async def _save(self) -> None:
        """Move the write-ahead log into the file when there is much of it."""
        if self._unsaved > self._checkpoint:
            self._unsaved = 0
            await self._tidy.checkpoint(alone=self._tidy.unsaved() > self._wal // 2)

    async def _look(self) -> Usage:
        usage = await self._tidy.usage()
        self._used, self._since = usage.used, 0
        return usage

    async def give_back(self) -> None:
        """Make the file smaller by what it will not need soon. Raises sqlite3.Error."""
        usage = await self._look()
        while usage.free > max(SPARE_BYTES, usage.used // 4):
            before = usage.free
            await self._tidy.give_back(GIVE_BACK_PAGES)
            self._unsaved += GIVE_BACK_BYTES
            await self._save()
            await asyncio.sleep(SLICE_PAUSE_S)
            usage = await self._look()
            if usage.free >= before:
                return  # made by an older loomid, and too large to be changed at the start
