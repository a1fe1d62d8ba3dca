"""When phones are written to: at once after a pause, then at most once a tick.

The system call of a write is the dearest part of a delivery, so the tick grows with the
number of phones. What is urgent waits for no tick.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loomid.log import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.log import Log

WRITE_S = 0.00025
"""The part of the loop's time that each phone's writes may take, as a tick's share."""
MIN_TICK_S = 0.002
MAX_TICK_S = 0.05
_LOOKED_AT = 256


class Pace:
    """Calls `flush` when the log has moved, but not more often than the load allows."""

    def __init__(self, log: Log, flush: Callable[[], None], phones: Callable[[], int]) -> None:
        self._log = log
        self._flush = flush
        self._phones = phones
        self._seen = log.visible
        self._flushed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unwatch = log.watch(self._moved)

    def stop(self) -> None:
        """Look at the log no more."""
        self._unwatch()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def tick_s(self) -> float:
        """Seconds between two writes to one phone; 0 while there are few."""
        tick = self._phones() * WRITE_S
        return 0.0 if tick < MIN_TICK_S else min(tick, MAX_TICK_S)

    def _moved(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._flushed_at + self.tick_s
        if self._urgent() or loop.time() >= due:
            self._go()
        elif self._timer is None:
            self._timer = loop.call_at(due, self._go)

    def _urgent(self) -> bool:
        try:
            entries = self._log.read(self._seen, _LOOKED_AT)
        except Gone:
            entries = ()
        self._seen = self._log.visible
        return len(entries) == _LOOKED_AT or any(entry.urgent for entry in entries)

    def _go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flushed_at = asyncio.get_running_loop().time()
        self._flush()
