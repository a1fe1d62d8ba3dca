"""A few at a time: what a thousand phones do at once must not keep the others waiting."""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """Lets so many through in each round of the loop, first come, first served."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turning = False

    async def turn(self) -> None:
        """Return when it is the caller's turn."""
        loop = asyncio.get_running_loop()
        if not self._turning:
            self._turning = True
            loop.call_soon(self._next_round)
        if self._left:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next_round(self) -> None:
        self._left = self._at_once
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():  # who waited may have gone
                turn.set_result(None)
                self._left -= 1
        self._turning = self._left < self._at_once
        if self._turning:
            asyncio.get_running_loop().call_soon(self._next_round)
