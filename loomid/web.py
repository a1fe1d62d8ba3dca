"""The public port: /ws and the doors for files, /health, /internal/pair/new for scripts here."""

from __future__ import annotations

import asyncio
import hmac
import http
import logging
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import WebSocketError, WSMsgType, web

from loomid import values
from loomid.doors import BACKLOG
from loomid.errors import StorageFailing
from loomid.lmp import pairing, scopes, wsframe
from loomid.lmp.session import Code
from loomid.reception import STRANGERS, Reception, Stranger
from loomid.writer import SocketClosed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from aiohttp.abc import AbstractStreamWriter

    from loomid.hub import Hub
    from loomid.lmp.pairing import Secret
    from loomid.web_files import FileDoors

log = logging.getLogger("loomid.web")

SEND_BUFFER = 64 * 1024
HIGH_WATER = 64 * 1024
STOP_WITHIN_S = 0.2
"""For requests other than a phone's connection; those have been waited for then."""
REQUEST_WITHIN_S = 10.0
PING_REST_S = 0.02
"""WebSocket's own pings pass by the session and its rate; so much of a flood of them."""
_NOT_A_SCRIPTS = re.compile(
    r"forwarded|x-forwarded-.*|x-original-.*|x-real-ip|.*-client-ip|.*-connecting-ip|via|cookie"
    r"|origin|referer|sec-.*",
    re.IGNORECASE,
)
"""Headers that proxies and browsers add."""
_CAUSES = {
    Code.NOT_A_FRAME: "not a WebSocket frame",
    Code.TOO_LARGE: "frame too large",
    Code.NOT_UTF8: "not UTF-8",
}
_HEALTH = b'{"ok":true,"v":1}'


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the port needs to know besides its sockets."""

    admin_token: Secret
    public_url: str
    server_name: str
    fingerprint: str = ""
    max_frame_bytes: int = 1024 * 1024
    strangers: int = STRANGERS


class _PairRequest(msgspec.Struct, frozen=True):
    name: str | None = None
    ttl: float = pairing.TOKEN_TTL_S
    scopes: tuple[str, ...] = scopes.DEFAULT


class Web:
    """The HTTP server on the listening sockets."""

    def __init__(self, hub: Hub, config: WebConfig, files: FileDoors) -> None:
        self._hub = hub
        self._files = files
        self._config = config
        self._runner: web.AppRunner | None = None
        self._listening: dict[socket.socket, asyncio.Task[None]] = {}
        self._tidying: asyncio.Task[None] | None = None
        self.reception: Reception | None = None

    async def start(
        self,
        sockets: Iterable[socket.socket],
        ssl_context: ssl.SSLContext | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Serve on sockets that are bound, and perhaps listen, already."""
        app = web.Application(client_max_size=4096)
        app.router.add_get("/ws", self._ws)
        app.router.add_get("/health", self._health)
        app.router.add_post("/internal/pair/new", self._pair)
        self._files.add_to(app.router)
        app.on_response_prepare.append(_anonymous)
        runner = self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            keepalive_timeout=REQUEST_WITHIN_S,
            lingering_time=1.0,
            shutdown_timeout=STOP_WITHIN_S,
        )
        await runner.setup()
        serve = runner.server
        if serve is None:
            raise AssertionError("set up, a runner has a server")
        refused = self._hub.tally.refused
        reception = Reception(serve, ssl_context, refused, strangers=self._config.strangers)
        self.reception = reception
        self._tidying = tasks.create_task(reception.tidy())
        for one in sockets:
            one.listen(BACKLOG)
            self._listening[one] = tasks.create_task(reception.accept(one, tasks))

    async def stop(self) -> None:
        """Take no more connections, end those there are with 1001, then the rest."""
        runner, self._runner = self._runner, None
        if runner is not None:
            for listener, accepting in self._listening.items():
                accepting.cancel()
                listener.close()
            if self._tidying is not None:
                self._tidying.cancel()
            await self._hub.close(Code.GOING_AWAY)
            await runner.cleanup()

    # ── phones ──────────────────────────────────────────────────────────────

    async def _ws(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        stranger = None if transport is None else transport.get_protocol()
        response = _Response(
            autoclose=False,
            autoping=False,
            compress=False,
            # The parser refuses what is as large as its limit, too.
            max_msg_size=self._config.max_frame_bytes + 1,
        )
        if transport is None or not isinstance(stranger, Stranger):
            return response  # it did not wait
        try:
            writer = await response.prepare(request)
        except ConnectionError:
            return response
        if request.transport is not None:
            await self._hub.serve(PhoneSocket(response, writer, transport), stranger)
        return response

    # ── others ──────────────────────────────────────────────────────────────

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(body=_HEALTH, content_type="application/json")

    async def _pair(self, request: web.Request) -> web.Response:
        """LMP §3; who may is in the design's table of doors."""
        if not _direct(request):
            raise web.HTTPNotFound
        if not _bearer(request, self._config.admin_token):
            raise web.HTTPForbidden
        try:
            asked = msgspec.json.decode(await request.read() or b"{}", type=_PairRequest)
            name = None if asked.name is None else values.parse_name(asked.name)
            held = scopes.parse(asked.scopes)
        except ValueError:
            raise web.HTTPBadRequest from None
        try:
            token, expires = await self._hub.desk.mint(name, asked.ttl, held)
        except StorageFailing:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "5"}) from None
        config = self._config
        qr = pairing.qr(config.public_url, token, config.server_name, config.fingerprint)
        return web.json_response({**qr, "expires_at": expires}, headers=_NO_STORE)


_NO_STORE = {"Cache-Control": "no-store"}


async def _anonymous(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Strangers need not know what we are made of, and ask once a connection."""
    response.headers["Server"] = "loomid"
    response.force_close()
    if response.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
        # aiohttp has written its own word on that before; unsaid, a client would use it again.
        response.headers["Connection"] = "close"


def _direct(request: web.Request) -> bool:
    """Whether a program on this host asks, not a browser and not a proxy."""
    headers = request.headers
    if any(_NOT_A_SCRIPTS.fullmatch(name) for name in headers):
        return False
    peer = None if request.transport is None else request.transport.get_extra_info("peername")
    return (
        isinstance(peer, tuple)
        and values.is_loopback(str(peer[0]))
        and _loopback_host(headers.get("Host", ""))
    )


def _loopback_host(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname or ""
    except ValueError:
        return False
    if parts.netloc != host or parts.username is not None:
        return False
    return values.is_loopback(name)


def _bearer(request: web.Request, token: Secret) -> bool:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    presented = pairing.digest(value.strip())
    return hmac.compare_digest(presented, token.hash) and scheme.lower() == "bearer"


class _Response(web.WebSocketResponse):
    """Leaves closing to us: aiohttp would close the TCP connection at once, and what the phone
    is still sending would make the kernel reset it, our close frame unread."""

    async def close(self, *, code: int = 1000, message: bytes = b"", drain: bool = True) -> bool:
        """Do nothing, see above."""
        return False


class PhoneSocket:
    """A phone's WebSocket: aiohttp reads, whole blobs of frames go to the transport.

    Of a transport that is closing nothing is asked: TLS's, closed twice, cannot answer.
    """

    def __init__(
        self,
        response: web.WebSocketResponse,
        writer: AbstractStreamWriter,
        transport: asyncio.Transport,
    ) -> None:
        self._response = response
        self._writer = writer
        self._transport = transport
        self._said_goodbye = False
        self._heard_goodbye = False
        if transport.is_closing():
            return
        transport.set_write_buffer_limits(high=HIGH_WATER)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            # Else the kernel holds megabytes for each phone that is stuck.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)

    async def receive(self) -> str | bytes:
        """The next message; raises SocketClosed."""
        while True:
            message = await self._response.receive()
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                data: str | bytes = message.data
                return data
            if message.type is WSMsgType.PING:
                if not self.unsent:  # the newest may stand for all that were not answered
                    self.write(wsframe.pong(message.data))
                await asyncio.sleep(PING_REST_S)
            elif message.type is not WSMsgType.PONG:
                raise self._closed(message.type, message.data)

    def _closed(self, kind: WSMsgType, data: Any) -> SocketClosed:  # noqa: ANN401 - aiohttp's
        if kind is WSMsgType.CLOSE:
            self._heard_goodbye = True
            return SocketClosed(data or 1005, "closed by the phone")
        if isinstance(data, WebSocketError):
            cause = _CAUSES.get(data.code, "cannot be read")
            return SocketClosed(data.code, cause, by_us=True)
        return SocketClosed(1006, "connection lost")

    def write(self, blob: bytes) -> bool:
        """Hand over whole frames; False when the phone lags behind."""
        if self._said_goodbye or self._transport.is_closing():
            return True
        self._transport.write(blob)
        return self.unsent <= HIGH_WATER

    async def drained(self) -> None:
        """Return when the transport can take more; a lost connection shows in `receive`."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    @property
    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()

    def goodbye(self, code: int, reason: str) -> None:
        """Send a close frame, once; nothing is written after it."""
        if not self._said_goodbye and not self._transport.is_closing():
            self._said_goodbye = True
            self._transport.write(wsframe.close(code, reason))

    def drop(self) -> None:
        """End the connection, whatever the phone does: it may take nothing, or never end TLS."""
        if self._heard_goodbye and not self._transport.is_closing() and not self.unsent:
            self._transport.close()
        else:
            self._transport.abort()
