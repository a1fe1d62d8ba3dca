"""Positions: handed out once, whatever happens to the process, the machine or the file.

They are reserved on disk in blocks before the first of a block is handed out, and each
start begins above every reservation and above the clock in microseconds. So a position
from a history that this database has lost lies where none can lie.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from loomid.errors import LoomiError

if TYPE_CHECKING:
    from loomid.store import Start, Store

# Large enough to outlast a long outage of the disk; small enough that an unclean stop
# pushes positions only a second ahead of the clock, on which a lost history relies.
BLOCK = 2**20
LOW_WATER = BLOCK // 4 * 3
STARTS_KEPT = 4096


class Exhausted(LoomiError):
    """The disk has failed so long that no reserved position is left."""


class Positions:
    """The counter of one start, and what is known of the starts before."""

    def __init__(self, store: Store, starts: list[Start], last: int) -> None:
        self._store = store
        self._starts = starts
        self._reserving = asyncio.Lock()
        self.wanted = asyncio.Event()
        """Set when it is time to reserve more."""
        # The first position of a start is nobody's: it stands for "nothing seen yet".
        self.last = last

    @classmethod
    async def open(cls, store: Store, kernel: str, given_up: list[tuple[int, int]]) -> Positions:
        """Begin a start; `kernel` is the boot id of the machine.

        `given_up`: events between these positions get new ones.
        """
        return cls(store, *await store.begin(BLOCK, kernel, STARTS_KEPT, given_up))

    async def close(self) -> None:
        """Record a clean stop and give back what was not handed out."""
        await self._store.end(self._starts[-1].id, self.last)

    @property
    def beginning(self) -> int:
        """Up to here are the positions of earlier starts, and those of lost histories."""
        return self._starts[-1].first - 1

    @property
    def left(self) -> int:
        """How many positions can be handed out now."""
        return self._starts[-1].reserved - self.last

    def take(self, count: int = 1) -> int:
        """Hand out the next `count` positions; the last of them.

        Raises Exhausted when they are not reserved.
        """
        if self.left < count:
            raise Exhausted
        self.last += count
        if self.left < LOW_WATER:
            self.wanted.set()
        return self.last

    def give_back(self, count: int) -> None:
        """Take back the last ones, which nobody has seen and no file has kept."""
        self.last -= count

    async def reserve(self) -> None:
        """Have a whole block ahead, on disk when this returns."""
        async with self._reserving:
            upto = self.last + BLOCK
            await self._store.reserve(self._starts[-1].id, upto)
            self._starts[-1] = replace(self._starts[-1], reserved=upto)
            self.wanted.clear()

    def known(self, position: int) -> bool:
        """Whether all that was shown up to here is in this database.

        Not so above all positions, between two starts, before a power loss, and before
        the file was replaced.
        """
        at = bisect_right(self._starts, position, key=lambda start: start.first) - 1
        if at < 0 or position > min(self.last, self._starts[at].reserved):
            return False
        return not any(start.broken for start in self._starts[at + 1 :])
