"""What a connection's tasks wait for: that something, anything, has changed.

asyncio.Event would do; with a deque each, a thousand of them cost most of a megabyte.
"""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes all who wait at that moment. It remembers nothing: look, then wait at once."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Wake everybody."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():  # it may have been cancelled
                one.set_result(None)

    def heard(self) -> asyncio.Future[None]:
        """To be awaited at once: done with the next ring."""
        one = asyncio.get_running_loop().create_future()
        self._waiting.append(one)
        return one
