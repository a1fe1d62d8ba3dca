"""Notes in the ledger which phone was the first to have an approval or a question.

Beside all else: looked at now and then while one waits, so that no frame and no commit
waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.hub import Hub
    from loomid.ledger import Ledger
    from loomid.log import Log

log = logging.getLogger("loomid.ledger")

LOOK_S = 0.5


class Shown:
    """`run` until cancelled."""

    def __init__(
        self,
        events: Log,
        hub: Hub,
        ledger: Ledger,
        clock: Callable[[], float],
        look_s: float = LOOK_S,
    ) -> None:
        self._log = events
        self._hub = hub
        self._ledger = ledger
        self._clock = clock
        self._look_s = look_s
        self._noted: set[str] = set()
        self._waiting = asyncio.Event()

    async def run(self) -> None:
        """Look twice a second while one waits that no phone has; else sleep."""
        unwatch = self._log.watch(self._moved)
        self._moved()
        try:
            while True:
                await self._waiting.wait()
                await asyncio.sleep(self._look_s)
                if not await self._look():
                    self._waiting.clear()
        finally:
            unwatch()

    def _moved(self) -> None:
        """The log has moved. Called at every commit, so only this is done here."""
        if self._log.projection.waiting():
            self._waiting.set()

    async def _look(self) -> bool:
        """Note what has been seen since; whether there is more to look for."""
        waiting = self._log.projection.waiting()
        self._noted &= waiting.keys()
        seen: dict[str, str] = {}
        for name in waiting.keys() - self._noted:
            if (device_id := self._hub.reached(waiting[name].position)) is not None:
                seen[name] = device_id
        if seen:
            try:
                await self._ledger.shown(seen, self._clock())
            except sqlite3.Error as error:
                log.debug("cannot note who was shown a question: %s", error)
            else:
                self._noted |= seen.keys()
        return not waiting.keys() <= self._noted  # some may have ended meanwhile
