"""One phone's connection: one reader, one writer, requests in order.

The session decides; this carries out its actions on a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from loomid.errors import LoomiError, PhoneError, RateLimited, TooLarge
from loomid.lmp import envelope
from loomid.lmp.session import (
    Action,
    Authenticate,
    Close,
    Code,
    Execute,
    Rest,
    Send,
    Session,
    Timing,
)
from loomid.lmp.wsframe import header
from loomid.log import Gone
from loomid.positions import Exhausted

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.lmp.envelope import ClientFrame
    from loomid.lmp.frames import ClientHello, Payload
    from loomid.outbox import Outbox
    from loomid.places import Place
    from loomid.vault import Device

GOODBYE_S = 2.0
"""How long the phone may take to answer a close frame."""
FLUSH_S = 1.0
"""How long control frames may still wait for their turn once the connection is to end."""


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
        """Return when more can be written or the socket is gone."""

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""

    def goodbye(self, code: int, reason: str) -> None:
        """Send a close frame; nothing is written after it."""

    def drop(self) -> None:
        """End the connection, whatever is still unsent."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A hello that was right: hello.ok, and from where the device goes on."""

    device: Device
    hello_ok: bytes
    outbox: Outbox


class Door(Protocol):
    """What a connection asks of the hub."""

    async def admit(self, phone: Phone, hello: ClientHello) -> Admission:
        """Verify a hello. Raises PhoneError."""

    async def execute(self, device: Device, frame: ClientFrame) -> tuple[str, Payload]:
        """Carry out a request. Raises PhoneError. Cancelled, what has begun still ends well."""


class Phone:
    """Serves one connection until it ends; `ended` then says how."""

    def __init__(
        self,
        socket: Socket,
        door: Door,
        clock: Callable[[], float],
        timing: Timing,
        place: Place,
        *,
        max_first_bytes: int,
        stall_s: float,
    ) -> None:
        self._socket = socket
        self._door = door
        self._clock = clock
        self._max_first_bytes = max_first_bytes
        self._stall_s = stall_s
        self._loop = asyncio.get_running_loop()
        self._session = Session(self._loop.time(), timing)
        self._timer: asyncio.TimerHandle | None = None
        # Lists, and one event for all who wait: with a thousand phones it shows.
        self._first: list[bytes] = []
        self._requests: list[ClientFrame] = []
        self._worker: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._gone = False
        self._flush_until = 0.0
        self._patience: asyncio.Timeout | None = None
        self.place = place
        self.started = self._loop.time()
        self.device: Device | None = None
        self.outbox: Outbox | None = None
        self.ended: tuple[int, str] | None = None

    async def run(self) -> None:
        """Serve until the socket is closed. Nothing of the phone's own making escapes."""
        self._arm()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write())
                await self._read(tasks)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def wake(self) -> None:
        """There may be something to write."""
        self._changed.set()

    def end(self, code: int, cause: str) -> None:
        """End the connection; the first caller's reason counts."""
        if self.ended is not None:
            return
        self.ended = (code, cause)
        self._session.end()
        self._flush_until = self._loop.time() + FLUSH_S
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(self._flush_until)
        self._changed.set()

    def make_way(self) -> None:
        """Leave the door to others, as no hello has come."""
        self.refuse(RateLimited("Too many connections without hello."))

    def refuse(self, error: PhoneError) -> None:
        """Tell an error of the whole connection, and close."""
        self._do_all(self._session.failed(error))

    async def leave(self) -> None:
        """Close after serving failed: what can be told at once is told."""
        with contextlib.suppress(AssertionError):  # if that was the failure
            self._socket.write(self._next())
        self._socket.goodbye(*(self.ended or (Code.INTERNAL, "internal")))
        with contextlib.suppress(TimeoutError, SocketClosed):
            async with asyncio.timeout(GOODBYE_S):
                while True:
                    await self._socket.receive()
        self._socket.drop()

    def drop(self) -> None:
        """Wait for the phone no longer."""
        self._socket.drop()

    async def hold(self, seconds: float) -> None:
        """Wait, but not beyond the connection's end nor the time for a hello."""
        until = min(self._loop.time() + seconds, self._session.hello_by)
        await self._until(lambda: self.ended is not None, until)

    async def _until(self, condition: Callable[[], bool], at: float | None = None) -> None:
        """Wait until a condition of this connection holds, or for a time."""
        with contextlib.suppress(TimeoutError):
            while not condition():
                async with asyncio.timeout_at(at):
                    self._changed.clear()
                    await self._changed.wait()

    # ── reading ─────────────────────────────────────────────────────────────

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        """Read until the socket is closed: after our close frame, only for the phone's."""
        try:
            while True:
                await self._roomy()
                await self._read_one(tasks)
        except SocketClosed as closed:
            self.end(closed.code, closed.cause)
            self._flush_until = 0.0
            if not closed.by_us:  # else it gets some time to read our close frame
                self._gone = True
                self._changed.set()

    async def _read_one(self, tasks: asyncio.TaskGroup) -> None:
        """Nothing of a message, a credential say, stays behind while the next is waited for."""
        message = await self._socket.receive()
        if self.ended is None:
            for action in self._take(message):
                await self._carry_out(action, tasks)

    def _take(self, message: str | bytes) -> list[Action]:
        now = self._loop.time()
        if self.device is None and _size(message) > self._max_first_bytes:
            return self._session.failed(TooLarge())
        if isinstance(message, bytes):
            return self._session.receive_binary(now)
        return self._session.receive(message, now)

    async def _carry_out(self, action: Action, tasks: asyncio.TaskGroup) -> None:
        match action:
            case Authenticate(hello):
                await self._authenticate(hello)
            case Execute(frame):
                self._requests.append(frame)
                if self._worker is None or self._worker.done():
                    self._worker = tasks.create_task(self._work())
            case Rest(seconds):
                await asyncio.sleep(seconds)
            case _:
                self._do(action)

    async def _authenticate(self, hello: ClientHello) -> None:
        try:
            admission = await self._door.admit(self, hello)
        except PhoneError as error:
            self._do_all(self._session.failed(error))
            return
        self.device = admission.device
        if self.ended is not None:
            return
        self._session.accepted(self._loop.time())
        self._first.append(admission.hello_ok)
        self.outbox = admission.outbox
        self._arm()
        self.wake()

    async def _roomy(self) -> None:
        """A phone that does not take its answers is not read (docs/protocol.md)."""
        await self._until(
            lambda: self.outbox is None or not self.outbox.full or self.ended is not None
        )

    async def _work(self) -> None:
        """Carry out what was asked, in order, as long as there is somebody to answer."""
        while self._requests and self.ended is None:
            frame = self._requests.pop(0)
            for action in await self._execute(frame):
                await self._roomy()
                self._do(action)

    async def _execute(self, frame: ClientFrame) -> list[Action]:
        device = self.device
        if device is None:
            raise AssertionError("a request before hello.ok")
        try:
            type_, payload = await self._door.execute(device, frame)
        except PhoneError as error:
            self._session.finished()
            return self._session.failed(error, frame.request_id)
        self._session.finished()
        return [Send(type_, payload)]

    # ── time ────────────────────────────────────────────────────────────────

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._session.deadline is not None:
            self._timer = self._loop.call_at(self._session.deadline, self._tick)

    def _tick(self) -> None:
        self._do_all(self._session.tick(self._loop.time()))
        self._arm()

    # ── writing ─────────────────────────────────────────────────────────────

    def _do_all(self, actions: list[Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Send(type_, payload):
                self._send(type_, payload)
            case Close(code, reason):
                self.end(code, reason)
            case _:
                raise AssertionError("only the reader carries that out")

    def _send(self, type_: str, payload: Payload) -> None:
        parts = envelope.frame_parts(
            type_, self._clock(), None, None, envelope.encode_payload(payload)
        )
        if self.outbox is None:
            self._first.append(envelope.render(0, parts))
        else:
            try:
                self.outbox.push(parts)
            except Exhausted:
                self.end(Code.INTERNAL, "the disk has failed for too long")
        self.wake()

    async def _write(self) -> None:
        """The one writer: all that waits goes out as one blob, again and again."""
        while self._unfinished():
            self._changed.clear()
            blob = self._next()
            if blob:
                await self._put(blob)
                self._changed.set()
            else:
                await self._wait()
        if self.ended is not None:
            self._socket.goodbye(*self.ended)
        await self._until(lambda: self._gone, self._loop.time() + GOODBYE_S)
        self._socket.drop()
        if self._worker is not None:
            self._worker.cancel()

    def _unfinished(self) -> bool:
        """At the end only errors and answers are still waited for: events can be resumed."""
        if self.ended is None or self._first:
            return True
        if self.outbox is None or not self.outbox.waiting:
            return False
        return self._loop.time() < self._flush_until

    def _next(self) -> bytes:
        if self._first:
            first = b"".join(header(len(frame)) + frame for frame in self._first)
            self._first.clear()
            return first
        if self.outbox is None:
            return b""
        try:
            return self.outbox.take()
        except Gone:
            self._give_up("fell out of the window")
            return b""

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._flush_until if self.ended else None):
                await self._changed.wait()

    async def _put(self, blob: bytes) -> None:
        """Write, then wait until the phone has taken most of it."""
        roomy = self._socket.write(blob)
        while not roomy:
            unsent = self._socket.unsent
            until = self._flush_until if self.ended else self._loop.time() + self._stall_s
            try:
                async with asyncio.timeout_at(until) as self._patience:
                    await self._socket.drained()
                    roomy = True
            except TimeoutError:
                if self.ended is not None:
                    return
                if self._socket.unsent >= unsent:
                    self._give_up("takes nothing")
                    return
            finally:
                self._patience = None

    def _give_up(self, cause: str) -> None:
        """Too slow: the phone reconnects and resumes, or is told that it cannot."""
        self.end(Code.TOO_SLOW, cause)
        self._flush_until = 0.0


def _size(message: str | bytes) -> int:
    return len(message if isinstance(message, bytes) else message.encode("utf-8", "replace"))
