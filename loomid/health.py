"""Whether the database takes what it is given; one line in the journal for each change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from typing import TYPE_CHECKING

from loomid.errors import StorageFailing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("loomid.health")

WAY_OUT = "stop loomid, then see 'loomictl db check' and 'loomictl db restore FILE'"
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PRIMARY = 0xFF  # of SQLite's extended error codes


class Health:
    """Told by all who read and write; `fails` and `works` are for those who await a change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.failing_since: float | None = None
        """Unix time in seconds; None: it works."""
        self.reason: str | None = None
        """Why it fails, as SQLite says it."""
        self.damaged = False
        """Something that is not what was once written there was read."""
        self.fails = asyncio.Event()
        self.works = asyncio.Event()
        self.works.set()
        self._clock = clock

    def failed(self, error: Exception) -> None:
        """Something could not be stored, and will be tried again."""
        self.met(error)
        if self.failing_since is None:
            self.failing_since = self._clock()
            self.reason = str(error) or "too slow"
            self.works.clear()
            self.fails.set()
            log.error("cannot store: %s; trying until it works", self.reason)

    @contextlib.contextmanager
    def expecting(self, seconds: float) -> Iterator[None]:
        """What takes longer counts as a failure meanwhile; it is waited for all the same."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self.failed, TimeoutError())
        try:
            yield
        finally:
            timer.cancel()

    def unreadable(self, error: sqlite3.Error) -> StorageFailing:
        """Something could not be read: what to tell who asked."""
        if not self.met(error):
            log.error("cannot read: %s", error)
        return StorageFailing("The server cannot read what it has stored; nothing was done.")

    def met(self, error: Exception) -> bool:
        """Note an error for the owner; whether it means damage."""
        damage = getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _DAMAGE
        if damage and not self.damaged:
            self.damaged = True
            log.critical("the database is damaged (%s): %s", error, WAY_OUT)
        return damage

    def recovered(self) -> None:
        """Something was stored."""
        if self.failing_since is not None:
            log.warning("stored again after %.1f s", self._clock() - self.failing_since)
            self.failing_since = self.reason = None
            self.fails.clear()
            self.works.set()
