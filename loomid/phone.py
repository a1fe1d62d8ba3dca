"""One phone's connection: what it sends is read, requests are carried out in order.

The session decides; this carries out its actions on a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from loomid.errors import PhoneError, RateLimited, TooLarge
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
from loomid.positions import Exhausted
from loomid.writer import SocketClosed, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.lmp.envelope import ClientFrame
    from loomid.lmp.frames import ClientHello, Payload
    from loomid.outbox import Outbox
    from loomid.places import Place
    from loomid.vault import Device
    from loomid.writer import Socket

GOODBYE_S = 2.0
"""How long the phone may take to answer a close frame."""
FLUSH_S = 1.0
"""How long control frames may still wait for their turn once the connection is to end."""


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
        self._writer = Writer(socket, stall_s, self._give_up)
        self._loop = asyncio.get_running_loop()
        self._session = Session(self._loop.time(), timing)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._requests: list[ClientFrame] = []
        self._worker: asyncio.Task[None] | None = None
        self._gone = False
        self._flush_s = FLUSH_S
        self.place = place
        self.started = self._loop.time()
        self.device: Device | None = None
        self.ended: tuple[int, str] | None = None

    async def run(self) -> None:
        """Serve until the socket is closed. Nothing of the phone's own making escapes."""
        self._arm()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._writer.start(self._tasks)
                if self.ended is not None:
                    self._tasks.create_task(self._close(*self.ended))
                await self._read()
        finally:
            self._tasks = None
            self._writer.end()  # it may have failed, and nobody would hear of another failure
            if self._timer is not None:
                self._timer.cancel()

    @property
    def outbox(self) -> Outbox | None:
        """What it has yet to be sent; None before hello.ok."""
        return self._writer.outbox

    @property
    def rate_limited(self) -> int:
        """Frames of it that came too fast."""
        return self._session.limited

    def write(self) -> None:
        """There may be something to write: do it at once."""
        self._writer.write()

    def end(self, code: int, cause: str) -> None:
        """End the connection; the first caller's reason counts."""
        if self.ended is not None:
            return
        self.ended = (code, cause)
        self._session.end()
        self._writer.bell.ring()
        if self._tasks is not None:
            self._tasks.create_task(self._close(code, cause))

    async def _close(self, code: int, cause: str) -> None:
        """What only this connection can tell is told; then the close frame, and the end."""
        await self._writer.finish(self._loop.time() + self._flush_s)
        self._socket.goodbye(code, cause)
        await self._until(lambda: self._gone, self._loop.time() + GOODBYE_S)
        self._socket.drop()
        if self._worker is not None:
            self._worker.cancel()

    def make_way(self) -> None:
        """Leave the door to others, as no hello has come."""
        self.refuse(RateLimited("Too many connections without hello."))

    def too_much(self) -> None:
        """More came than a first frame may have; nothing of it is kept."""
        self.refuse(TooLarge())

    def refuse(self, error: PhoneError) -> None:
        """Tell an error of the whole connection, and close."""
        self._do_all(self._session.failed(error))

    async def leave(self) -> None:
        """Close after serving failed: what can be told at once is told."""
        self._writer.flush()
        self._socket.goodbye(*(self.ended or (Code.INTERNAL, "internal")))
        with contextlib.suppress(TimeoutError, SocketClosed):
            async with asyncio.timeout(GOODBYE_S):
                while True:
                    await self._socket.receive()
        self._socket.drop()

    def tell(self, type_: str, payload: Payload) -> None:
        """Send a control frame of the server's own accord."""
        if self.outbox is not None and self.ended is None:
            self._send(type_, payload)

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
                    await self._writer.bell.heard()

    # ── reading ─────────────────────────────────────────────────────────────

    async def _read(self) -> None:
        """Read until the socket is closed: after our close frame, only for the phone's."""
        try:
            while True:
                if self._stuffed():
                    await self._roomy()
                # Nothing of a message, a credential say, stays behind in here.
                await self._read_one(await self._socket.receive())
        except SocketClosed as closed:
            self._flush_s = 0.0
            self.end(closed.code, closed.cause)
            if not closed.by_us:  # else it gets some time to read our close frame
                self._gone = True
                self._writer.stop()

    async def _read_one(self, message: str | bytes) -> None:
        if self.ended is None:
            for action in self._take(message):
                await self._carry_out(action)

    def _take(self, message: str | bytes) -> list[Action]:
        now = self._loop.time()
        if self.device is None and _size(message) > self._max_first_bytes:
            return self._session.failed(TooLarge())
        if isinstance(message, bytes):
            return self._session.receive_binary(now)
        return self._session.receive(message, now)

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Authenticate(hello):
                await self._authenticate(hello)
            case Execute(frame):
                self._requests.append(frame)
                if self._tasks is not None and (self._worker is None or self._worker.done()):
                    self._worker = self._tasks.create_task(self._work())
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
        self._writer.say(admission.hello_ok)
        self._writer.outbox = admission.outbox
        self._arm()

    async def _roomy(self) -> None:
        """A phone that does not take its answers is not read (docs/protocol.md)."""
        await self._until(lambda: not self._stuffed())

    def _stuffed(self) -> bool:
        return self.outbox is not None and self.outbox.full and self.ended is None

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
            self._writer.say(envelope.render(0, parts))
            return
        try:
            self.outbox.push(parts)
        except Exhausted:
            self.end(Code.INTERNAL, "the disk has failed for too long")
        self._writer.wake()

    def _give_up(self, cause: str) -> None:
        """Too slow: the phone reconnects and resumes, or is told that it cannot."""
        self._flush_s = 0.0
        self.end(Code.TOO_SLOW, cause)


def _size(message: str | bytes) -> int:
    return len(message if isinstance(message, bytes) else message.encode("utf-8", "replace"))
