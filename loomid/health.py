"""Whether the database takes what it is given; one line in the journal for each change."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("loomid.health")


class Health:
    """Told by all who write; `fails` and `works` are set for those who wait for a change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.failing_since: float | None = None
        """Unix time in seconds; None: it works."""
        self.fails = asyncio.Event()
        self.works = asyncio.Event()
        self.works.set()
        self._clock = clock

    def failed(self, error: Exception) -> None:
        """Something could not be stored, and will be tried again."""
        if self.failing_since is None:
            self.failing_since = self._clock()
            self.works.clear()
            self.fails.set()
            log.error("cannot store: %s; trying until it works", str(error) or "too slow")

    def recovered(self) -> None:
        """Something was stored."""
        if self.failing_since is not None:
            log.warning("stored again after %.1f s", self._clock() - self.failing_since)
            self.failing_since = None
            self.fails.clear()
            self.works.set()
