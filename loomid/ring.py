"""The newest visible events, encoded once for all devices; bounded in number and in bytes."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

from loomid.errors import LoomiError

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ENTRIES = 4096
MAX_BYTES = 64 * 2**20


class Gone(LoomiError):
    """Events after that position have left the ring: the reader is too slow."""


class Entry(Struct, frozen=True, gc=False):
    """One visible event, encoded once for all devices: see envelope.render."""

    position: int
    parts: bytes
    type: str
    urgent: bool


class Ring:
    """At least `window` events, unless they are so large that fewer must do."""

    def __init__(self, window: int) -> None:
        self.floor = 0
        """Every event up to here has left the ring."""
        self._window = window
        self._capacity = max(MAX_ENTRIES, window)
        self._entries: list[Entry] = []
        self._positions: list[int] = []
        self._bytes = 0

    @property
    def last(self) -> int:
        """Position of the newest event."""
        return self._positions[-1] if self._positions else self.floor

    @property
    def window_floor(self) -> int:
        """Whoever saw everything up to here has missed no more than the window."""
        beyond = len(self._positions) - self._window
        return self._positions[beyond - 1] if beyond > 0 else self.floor

    @property
    def held(self) -> tuple[int, int]:
        """How many events are here, and how many bytes they take."""
        return len(self._entries), self._bytes

    def read(self, after: int, limit: int) -> Sequence[Entry]:
        """Events beyond a position, oldest first. Raises Gone when one has left the ring."""
        if after < self.floor:
            raise Gone
        at = bisect_right(self._positions, after)
        return self._entries[at : at + limit]

    def count(self, after: int) -> int:
        """How many events there are beyond a position. Raises Gone as `read` does."""
        if after < self.floor:
            raise Gone
        return len(self._positions) - bisect_right(self._positions, after)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the newest events; old ones leave many at a time, so that it costs nothing each."""
        self._entries += entries
        self._positions += [entry.position for entry in entries]
        self._bytes += sum([len(entry.parts) for entry in entries])
        excess = len(self._entries) - self._capacity
        if excess >= self._capacity // 4:
            self._drop(excess)
        if self._bytes > MAX_BYTES:
            self._drop(self._too_large())

    def _too_large(self) -> int:
        """How many must go to leave room for a while; the newest stays."""
        over = self._bytes - MAX_BYTES * 3 // 4
        for count, entry in enumerate(self._entries[:-1], 1):
            over -= len(entry.parts)
            if over <= 0:
                return count
        return len(self._entries) - 1

    def _drop(self, count: int) -> None:
        if count:
            self.floor = self._positions[count - 1]
            self._bytes -= sum([len(entry.parts) for entry in self._entries[:count]])
            del self._entries[:count], self._positions[:count]
