"""How many may be at the door at once: the oldest without a hello yields to a new one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

YIELD_AFTER_S = 1.0


class Place:
    """One place; `leave` it once the hello was accepted, or at the end."""

    __slots__ = ("_places", "since", "yield_")

    def __init__(self, places: Places, since: float) -> None:
        self._places: Places | None = places
        self.since = since
        self.yield_: Callable[[], None] | None = None
        """How its holder is told to go."""

    def leave(self) -> None:
        """Give the place to the next; calling again does nothing."""
        places, self._places = self._places, None
        if places is not None:
            places.left(self)


class Places:
    """A bounded number of places and a queue before them.

    Who waits makes the oldest holder yield, but not before that one had a second to say
    hello: in a storm of reconnecting phones nobody is thrown out.
    """

    def __init__(self, count: int, queue: int) -> None:
        self._count = count
        self._queue_limit = queue
        self._held: dict[Place, None] = {}
        self._queue: deque[asyncio.Future[Place]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def crowded(self) -> bool:
        """Whether even the queue is full."""
        return len(self._queue) >= self._queue_limit

    async def enter(self) -> Place:
        """Take a place, waiting for one if need be."""
        if len(self._held) < self._count:
            return self._grant()
        waiter: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        self._arm()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().leave()
            raise
        finally:
            if waiter in self._queue:
                self._queue.remove(waiter)

    def left(self, place: Place) -> None:
        """A place is free again."""
        self._held.pop(place, None)
        while self._queue and len(self._held) < self._count:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(self._grant())

    def _grant(self) -> Place:
        place = Place(self, asyncio.get_running_loop().time())
        self._held[place] = None
        return place

    def _arm(self) -> None:
        if self._timer is None and self._queue and self._held:
            oldest = next(iter(self._held))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(oldest.since + YIELD_AFTER_S, self._make_way)

    def _make_way(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for place in list(self._held):
            if not self._queue or place.since + YIELD_AFTER_S > now:
                break
            place.leave()
            if place.yield_ is not None:
                place.yield_()
        self._arm()
