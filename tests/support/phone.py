"""A phone for tests: pairs, connects, resumes, and checks each frame it gets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from loomid.lmp import envelope, frames
from tests.support.waiting import WAIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loomid.lmp.envelope import Frame


class Closed(Exception):
    """The server closed the connection."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


@dataclass
class Got:
    """One frame and its payload as plain JSON."""

    frame: Frame
    payload: dict[str, Any]

    @property
    def type(self) -> str:
        return self.frame.type

    @property
    def seq(self) -> int:
        return self.frame.seq


@dataclass
class Phone:
    """One device across its connections: what it would keep on its disk."""

    url: str
    capabilities: list[str] = field(default_factory=list)
    device_id: str | None = None
    credential: str | None = None
    last_seq: int | None = None
    got: list[Got] = field(default_factory=list)
    """Every frame after hello.ok, over all connections."""
    ssl: Any = True
    answer_pings: bool = True

    @asynccontextmanager
    async def connect(self, token: str | None = None, **hello: Any) -> AsyncIterator[Connection]:
        """Connect and say hello (with a token: pair); yields once hello.ok has come."""
        async with self.open() as connection:
            await connection.hello(token, **hello)
            yield connection

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        """Connect without saying hello."""
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(self.url, ssl=self.ssl, max_msg_size=0, autoping=True) as ws,
            asyncio.TaskGroup() as tasks,
        ):
            connection = Connection(self, ws)
            reader = tasks.create_task(connection.read())
            try:
                yield connection
            finally:
                await ws.close()
                reader.cancel()

    def events(self, *types: str) -> list[Got]:
        """The frames of some types, in the order they came; without types: all events."""
        return [g for g in self.got if g.type in (types or frames.EVENTS)]


class Connection:
    """One connection of a phone."""

    def __init__(self, phone: Phone, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.phone = phone
        self.ws = ws
        self.hello_ok: Got | None = None
        self.got: list[Got] = []
        """Every frame of this connection, hello.ok included."""
        self.closed: int | None = None
        self._seq: int | None = None
        self._changed = asyncio.Event()

    async def hello(self, token: str | None = None, **more: Any) -> Got:
        """Say hello and wait for hello.ok; raises Closed when it is refused."""
        phone = self.phone
        payload: dict[str, Any] = {
            "protocol_version": 1,
            "device_info": {"model": "Pixel", "os": "Android 16", "app_version": "1.0"},
        }
        if phone.capabilities:
            payload["capabilities"] = phone.capabilities
        if token is not None:
            payload["token"] = token
        else:
            payload |= {"device_id": phone.device_id, "credential": phone.credential}
            if phone.last_seq is not None:
                payload["last_seq"] = phone.last_seq
        await self.send("hello", payload | more)
        await self.wait_for(lambda: self.hello_ok is not None)
        assert self.hello_ok is not None
        return self.hello_ok

    async def send(self, type_: str, payload: dict[str, Any] | None = None) -> None:
        """Send one frame."""
        await self.send_text(json.dumps({"v": 1, "type": type_, "payload": payload or {}}))

    async def send_text(self, text: str) -> None:
        """Send one text message as it is."""
        await self.ws.send_str(text)

    async def request(self, type_: str, **payload: Any) -> Got:
        """Send a request with a request_id and wait for its result or error."""
        await self.send(type_, payload)
        wanted = payload["request_id"]
        return await self.wait_for(
            lambda: next((g for g in self.got if g.payload.get("request_id") == wanted), None)
        )

    async def wait_for(self, predicate: Callable[[], Any], timeout: float = WAIT_S) -> Any:  # noqa: ASYNC109
        """Wait until a condition holds and give its value; raises Closed, TimeoutError."""
        async with asyncio.timeout(timeout):
            while not (value := predicate()):
                if self.closed is not None:
                    raise Closed(self.closed)
                self._changed.clear()
                await self._changed.wait()
        return value

    async def wait_type(self, type_: str, count: int = 1, timeout: float = WAIT_S) -> Got:  # noqa: ASYNC109
        """Wait for the count-th frame of a type on this connection."""

        def found() -> Got | None:
            matching = [g for g in self.got if g.type == type_]
            return matching[count - 1] if len(matching) >= count else None

        got: Got = await self.wait_for(found, timeout)
        return got

    async def wait_closed(self, timeout: float = WAIT_S) -> int:  # noqa: ASYNC109
        """Wait until the server has closed; its code."""
        async with asyncio.timeout(timeout):
            while self.closed is None:
                self._changed.clear()
                await self._changed.wait()
        return self.closed

    @property
    def errors(self) -> list[str]:
        """Codes of the errors that came on this connection."""
        return [g.payload["code"] for g in self.got if g.type == "error"]

    async def read(self) -> None:
        """Take what comes until the connection is closed."""
        async for message in self.ws:
            assert message.type is aiohttp.WSMsgType.TEXT, message.type
            await self._take(message.data)
            self._changed.set()
        self.closed = self.ws.close_code or 1006
        self._changed.set()

    async def _take(self, text: str) -> None:
        frame, _ = envelope.decode_server(text)
        got = Got(frame, msgspec.json.decode(frame.payload))
        self.got.append(got)
        assert frame.event_id == f"e_{frame.seq}"
        if frame.type == "hello.ok":
            self._greeted(got)
        elif self.hello_ok is None:
            assert (frame.type, frame.seq) == ("error", 0)
        else:
            assert self._seq is not None
            assert frame.seq > self._seq, (frame.type, frame.seq, self._seq)
            self._seq = self.phone.last_seq = frame.seq
            self.phone.got.append(got)
        if frame.type == "ping" and self.phone.answer_pings:
            await self.send("pong")

    def _greeted(self, got: Got) -> None:
        assert self.hello_ok is None
        self.hello_ok = got
        self._seq = self.phone.last_seq = got.seq
        assert got.payload["last_seq"] == got.seq
        self.phone.device_id = got.payload["device_id"]
        self.phone.credential = got.payload.get("credential", self.phone.credential)
