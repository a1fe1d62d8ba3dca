"""An event loop whose time is virtual: waiting costs nothing, and nothing is left to chance."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
import secrets
import selectors
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from hermes_shim import ledger, link

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 1_700_000_000.0


class _Jump(selectors.DefaultSelector):
    """Instead of waiting, sets the loop's time to when something is due."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing would ever happen again"
        self.loop.now += timeout
        return []


class _Timer(asyncio.TimerHandle):
    """Of two that are due at once, the one that was set first comes first."""

    serial: int

    def __lt__(self, other: Any) -> bool:
        return (self.when(), self.serial) < (other.when(), other.serial)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Nothing outside may wake it: no threads, no sockets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.failures: list[BaseException] = []
        jump = _Jump()
        jump.loop = self
        super().__init__(jump)
        self._serials = itertools.count()
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        return self.now

    def clock(self) -> float:
        """The time of day."""
        return EPOCH + self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> _Timer:
        """As asyncio's, which leaves it to chance which of two equal times comes first."""
        timer = _Timer(when, callback, args, self, context)
        timer.serial = next(self._serials)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that are not done, oldest first."""
        return sorted(asyncio.all_tasks(self), key=lambda task: int(task.get_name()[5:]))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        timer = self.call_later(seconds, self.stop)
        self.run_forever()
        timer.cancel()
        assert not self.failures, self.failures

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or RuntimeError(context["message"]))


@contextlib.contextmanager
def virtual(seed: int) -> Iterator[VirtualLoop]:
    """A loop; meanwhile the shim's time is its time, and secrets follow from the seed."""
    loop, chance = VirtualLoop(), random.Random(seed)
    time = SimpleNamespace(time=loop.clock, monotonic=loop.time)
    with (
        mock.patch.object(link, "time", time),
        mock.patch.object(ledger, "time", time),
        mock.patch.object(secrets, "token_bytes", chance.randbytes),
        mock.patch.object(secrets, "token_hex", lambda n: chance.randbytes(n).hex()),
    ):
        try:
            yield loop
        finally:
            loop.close()
