"""The vault's connection: what was written is on disk when the call returns, or StorageFailing."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, TypeVar

from loomid.database import BUGS
from loomid.errors import StorageFailing

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.database import Line
    from loomid.health import Health

T = TypeVar("T")

QUEUE_S = 10.0
"""How long a write waits for those before it; a thousand phones may come at once."""


class Durable:
    """A line for those who have somebody to tell."""

    def __init__(self, line: Line, health: Health) -> None:
        self._line = line
        self._health = health

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Read. Raises StorageFailing."""
        try:
            return await self._line.run(work)
        except BUGS:
            raise
        except sqlite3.Error as error:
            raise self._health.unreadable(error) from None

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function as one transaction. Raises StorageFailing: nothing of it is stored."""
        try:
            return await self._line.write(work, QUEUE_S)
        except BUGS:
            raise
        except (sqlite3.Error, TimeoutError) as error:
            self._health.failed(error)
            raise StorageFailing from None
