"""The one place that writes to a phone.

Not a task: with a thousand phones, waking that many tasks for each tick was a tenth of a
core, and a kilobyte each. A task is there only while a phone lags behind.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from loomid.bell import Bell
from loomid.errors import LoomiError
from loomid.lmp.wsframe import header
from loomid.ring import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.outbox import Outbox


class SocketClosed(LoomiError):
    """Nothing more can be read; `code` as the WebSocket has it, `cause` for the log.

    `by_us`: the phone sent what cannot be read, and has yet to hear that.
    """

    def __init__(self, code: int, cause: str, *, by_us: bool = False) -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.by_us = by_us


class Socket(Protocol):
    """What a connection needs of its WebSocket."""

    async def receive(self) -> str | bytes:
        """The next text or binary message. Raises SocketClosed."""

    def write(self, blob: bytes) -> bool:
        """Hand over whole WebSocket frames; False: wait for `drained` before the next."""

    async def drained(self) -> None:
        """Return when more can be written or the socket is gone. To be awaited to its end."""

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""

    def goodbye(self, code: int, reason: str) -> None:
        """Send a close frame; nothing is written after it."""

    def drop(self) -> None:
        """End the connection, whatever is still unsent."""


class Writer:
    """All that waits for a phone goes out as one blob, again and again, while it takes it.

    `start` before anything can be written. `slow` is called, once or more, when the phone
    takes too little: it ends the connection. `bell` rings after each write.
    """

    def __init__(self, socket: Socket, stall_s: float, slow: Callable[[str], None]) -> None:
        self.bell = Bell()
        self.outbox: Outbox | None = None
        self._socket = socket
        self._stall_s = stall_s
        self._slow = slow
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.TaskGroup | None = None
        self._first: list[bytes] = []
        self._due = False
        self._lagging = False

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Write from now on; a failure raises in `tasks`."""
        self._tasks = tasks
        self.wake()

    def say(self, frame: bytes) -> None:
        """Write a frame that has no position: before there is an outbox, or its hello.ok."""
        self._first.append(frame)
        self.wake()

    def wake(self) -> None:
        """There may be something to write."""
        if not self._due and not self._lagging and self._tasks is not None:
            self._due = True
            self._loop.call_soon(self.write)

    @property
    def waiting(self) -> bool:
        """Whether something waits that no reconnect would bring again: errors and answers."""
        return bool(self._first) or (self.outbox is not None and self.outbox.waiting)

    async def finish(self, until: float) -> None:
        """Write on until nothing but events waits, or until that time of the loop; then no more."""
        self.wake()
        try:
            async with asyncio.timeout_at(until):
                while self.waiting and self._tasks is not None:
                    await self.bell.heard()
        except TimeoutError:
            pass
        self.stop()

    def stop(self) -> None:
        """Write no more."""
        self._tasks = None
        self.bell.ring()

    def end(self) -> None:
        """Stop, with no task left; `slow` is let go of, else only a collection would free both."""
        self.stop()
        self._slow = _nobody

    def flush(self) -> None:
        """Write what a connection that failed can still be told at once."""
        with contextlib.suppress(Gone, AssertionError):  # if that was the failure
            self._socket.write(self._next())

    def write(self) -> None:
        """Write at once: one blob, so that no phone keeps the others waiting; then the next."""
        self._due = False
        if self._tasks is None or self._lagging:
            return
        try:
            blob = self._next()
            if blob and self._socket.write(blob):
                self.wake()
            elif blob:
                self._lagging = True
                self._tasks.create_task(self._catch_up())
        except Gone:
            self._slow("fell out of the window")
        except Exception as error:  # noqa: BLE001 - it is raised where the connection is served
            self._tasks.create_task(_fail(error))
        self.bell.ring()

    def _next(self) -> bytes:
        if self._first:
            first = b"".join(header(len(frame)) + frame for frame in self._first)
            self._first.clear()
            return first
        return b"" if self.outbox is None else self.outbox.take()

    async def _catch_up(self) -> None:
        """Wait until the phone has taken most of what was written; then go on.

        The wait is never broken off while the connection lives: nobody can wait for an
        aiohttp transport again after that.
        """
        timer: asyncio.TimerHandle

        def look(before: int) -> None:
            nonlocal timer
            unsent = self._socket.unsent
            if unsent >= before:
                self._slow("takes nothing")
            timer = self._loop.call_later(self._stall_s, look, unsent)

        timer = self._loop.call_later(self._stall_s, look, self._socket.unsent)
        try:
            await self._socket.drained()
        finally:
            timer.cancel()
        self._lagging = False
        self.wake()


def _nobody(_: str) -> None:
    pass


async def _fail(error: Exception) -> None:
    raise error
