"""How many strangers may be at the door at once: the oldest yields to a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

LEAVING_SHARE = 4


class Place:
    """One connection whose hello was not accepted yet; `leave` it then, or at the end."""

    def __init__(self, places: Places, drop: Callable[[], object]) -> None:
        self._places: Places | None = places
        self.drop = drop
        """Ends the connection at once."""
        self.yield_: Callable[[], object] | None = None
        """How its holder is told to go, where that can be told; else it is dropped."""
        self.too_much: Callable[[], object] | None = None
        """How it is told that it sends more than a stranger may; else it is dropped."""
        places.enter(self)

    def leave(self) -> None:
        """It is a stranger no longer, or gone; calling again does nothing."""
        self.yield_ = self.too_much = None  # they hold the connection, and that holds this
        places, self._places = self._places, None
        if places is not None:
            places.left(self)


class Places:
    """A bounded number of strangers, oldest first.

    In a flood of connections each lasts as long as it takes to fill all places: whoever
    says hello within that time gets in, however long the flood goes on.
    """

    def __init__(self, count: int, refused: Counter[str]) -> None:
        self._refused = refused
        self._count = count
        self._held: dict[Place, None] = {}
        self._leaving: dict[Place, None] = {}  # told to go, and not gone yet

    def __len__(self) -> int:
        return len(self._held) + len(self._leaving)

    def enter(self, place: Place) -> None:
        """One more."""
        self._held[place] = None
        if len(self._held) > self._count:
            self.make_way()

    def left(self, place: Place) -> None:
        """A place is free again."""
        self._held.pop(place, None)
        self._leaving.pop(place, None)

    def make_way(self, *, at_once: bool = False) -> bool:
        """Have the oldest go, `at_once` without a word. False: there is nobody."""
        if at_once and self._leaving:
            self._drop(next(iter(self._leaving)))
            return True
        if not self._held:
            return False
        oldest = next(iter(self._held))
        del self._held[oldest]
        self._refused["yielded"] += 1
        if at_once or oldest.yield_ is None:
            self._drop(oldest)
            return True
        self._leaving[oldest] = None
        oldest.yield_()
        if len(self._leaving) > self._count // LEAVING_SHARE:
            self._drop(next(iter(self._leaving)))
        return True

    def _drop(self, place: Place) -> None:
        self._leaving.pop(place, None)
        place.drop()
