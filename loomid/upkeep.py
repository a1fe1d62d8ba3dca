"""The log's housekeeping: positions in reserve, and forgetting what is old.

It runs beside the commits, in steps so small that none of them waits for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING

from loomid.room import SLICE, SLICE_PAUSE_S, Room

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.positions import Positions
    from loomid.store import Store

TEND_S = 1.0
FORGET_S = 60.0


class Upkeep:
    """Of one log: `floor` is the position above which nothing is forgotten, `committing`
    whether a batch is being stored."""

    def __init__(
        self,
        store: Store,
        positions: Positions,
        *,
        floor: Callable[[], int],
        committing: Callable[[], bool],
        clock: Callable[[], float],
        retention_s: float,
        max_bytes: int,
    ) -> None:
        self.room = Room(store, floor, max_bytes)
        self._store = store
        self._taken = positions
        self._floor = floor
        self._committing = committing
        self._clock = clock
        self._retention_s = retention_s

    async def run(self) -> None:
        """Reserve positions, make room and forget what is old; runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.room.run())
            await self._tend()

    async def _tend(self) -> None:
        health = self._store.health
        forgotten_at = 0.0
        while True:
            try:
                await self._step()
                if not 0 <= self._clock() - forgotten_at < FORGET_S:
                    forgotten_at = self._clock()
                    await self._forget_what_can_be()
            except sqlite3.Error as error:
                health.failed(error)
            with contextlib.suppress(TimeoutError):
                # A storm of snapshots takes many positions within a second.
                async with asyncio.timeout(TEND_S):
                    await self._taken.wanted.wait()
            if health.failing_since is not None:
                await asyncio.sleep(TEND_S)

    async def _step(self) -> None:
        health = self._store.health
        stuck = health.failing_since is not None and not self._committing()
        if stuck or self._taken.wanted.is_set():
            await self._taken.reserve()
            if stuck:
                health.recovered()

    async def _forget_what_can_be(self) -> None:
        """Old events on a damaged page stay; what is new can still be stored."""
        try:
            await self.forget()
            await self.room.give_back()
        except sqlite3.DatabaseError as error:
            if not self._store.health.met(error):
                raise

    async def forget(self) -> None:
        """Delete what is older than the retention, in small slices; never the window."""
        before = self._clock() - self._retention_s
        after: int | None = 0
        while after is not None:
            after = await self._store.tidy.forget_events(before, self._floor(), after, SLICE)
            await asyncio.sleep(SLICE_PAUSE_S)
            await self._step()
        await self._store.tidy.forget_rest(before)
