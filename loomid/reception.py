"""Takes connections in: bounded in number and bytes until a phone's hello was accepted.

asyncio and aiohttp bound neither how many half-made requests there are nor, while TLS is
agreed on, who waits; and where descriptors run out they stop accepting for a second.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import resource
from asyncio import sslproto
from typing import TYPE_CHECKING, cast

from loomid.places import Place, Places

if TYPE_CHECKING:
    import socket
    import ssl
    from collections import Counter
    from collections.abc import Callable

log = logging.getLogger("loomid.web")

STRANGERS = 1024
"""Connections without an accepted hello, where there are descriptors for them."""
STRANGER_BYTES = 16 * 1024
"""What one may send: a request's head and a hello of `HubConfig.max_first_bytes`."""
HELD_BYTES = 4 * STRANGER_BYTES
"""So much may have come of one before it could be paused."""
KNOWN_BYTES = 256 * 1024
"""What is read at once of one that is known: asyncio's own measure."""
DESCRIPTORS = 65_536
RESERVED = 64
"""Descriptors that strangers leave to the admin socket, the gateways and the database."""
ACCEPT_SLICE = 8
SLICES = 16
HANDSHAKE_S = 10.0
TLS_BYTES = 16 * 1024
"""What is read of a TLS connection at once: one record."""
GOODBYE_S = 1.0
"""For the phone's end of TLS; the descriptor is held so long, by one that has no place any more."""
RETRY_S = 0.05
CALM_S = 15.0
"""After so long nearly all of a flood have gone."""
FLOOD = 512
"""Connections within CALM_S."""


def raise_descriptors() -> int:
    """Raise the soft limit of open files, which is often 1024, and return what it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _nothing() -> None:
    pass


class Stranger(Place, asyncio.Protocol):
    """Stands before the HTTP protocol of a connection until that one is known.

    Counts what comes in. Once the place is left, the transport speaks to `inner` itself.
    """

    def __init__(
        self, places: Places, protocol: Callable[[], asyncio.Protocol], refused: Counter[str]
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self._protocol = protocol
        self._inner: asyncio.Protocol
        self._refused = refused
        self._taken = 0
        self._excess = False
        self._held: list[bytes] = []
        super().__init__(places, lambda: None)

    def leave(self) -> None:
        """It is known now, or gone."""
        super().leave()
        transport, held, self._held = self.transport, self._held, []
        # TLS's transport may know of no protocol any more once it was closed.
        if transport is not None and not transport.is_closing():
            transport.set_protocol(self._inner)
            _read_at_once(transport, KNOWN_BYTES)
            if held:
                transport.resume_reading()
                self._inner.data_received(b"".join(held))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TCP, and TLS if there is to be some, are agreed on."""
        self.transport = cast("asyncio.Transport", transport)
        self.drop = self.transport.abort
        self._inner = self._protocol()  # not for one that never agrees on TLS
        _read_at_once(self.transport, STRANGER_BYTES)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on what a stranger may send; what comes behind it at once waits until it is known,
        unless it can be told that this is too much."""
        self._taken += len(data)
        if self._taken <= STRANGER_BYTES:
            self._inner.data_received(data)
        elif self.too_much is None and self._taken <= HELD_BYTES and self.transport:
            self.transport.pause_reading()
            self._held.append(data)
        elif not self._excess:
            self._excess = True
            self._refused["too_much"] += 1
            (self.too_much or self.drop)()

    def eof_received(self) -> bool | None:
        """Nothing more will come."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """It takes nothing for now."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It takes more again."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        super().leave()
        self._inner.connection_lost(exc)


def _read_at_once(transport: asyncio.Transport, count: int) -> None:
    """How much asyncio takes of a socket before we have seen it: TLS takes on while we pause."""
    if hasattr(transport, "max_size"):
        transport.max_size = count
    if hasattr(transport, "set_read_buffer_limits"):
        transport.set_read_buffer_limits(count)


class Reception:
    """Accepts on listening sockets; `protocol` makes the HTTP side of one connection."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        refused: Counter[str],
        *,
        strangers: int = STRANGERS,
    ) -> None:
        self.refused = refused
        self._limit = raise_descriptors()
        count = min(strangers, (self._limit - RESERVED) // 2)
        self.places = Places(count, refused)
        # A hello takes a few rounds of the loop: far fewer come in meanwhile than there are places.
        self._slice = max(1, min(ACCEPT_SLICE, count // SLICES))
        self._protocol = protocol
        self._context = context
        if context is not None:
            # 256 KiB for each that only begins to agree, and as long as it is not collected.
            sslproto.SSLProtocol.max_size = TLS_BYTES
        self._came = 0
        self._short = False  # of descriptors; logged once

    async def accept(self, listener: socket.socket, tasks: asyncio.TaskGroup) -> None:
        """Take in whoever comes, until cancelled."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            for _ in range(self._slice):
                try:
                    connection, _ = await loop.sock_accept(listener)
                except ConnectionError:
                    continue  # it did not wait
                except OSError as error:
                    self._short_of(error.strerror)
                    self.places.make_way(at_once=True)
                    await asyncio.sleep(RETRY_S)
                    continue
                if self._has_room(connection):
                    self._take(connection, tasks)
            await asyncio.sleep(0)  # many may come at once; others have work to do, too

    async def tidy(self) -> None:
        """Give back to the system what a flood took, once it is over; runs until cancelled.

        The C library keeps what was freed between other things, and TLS takes much in pieces.
        """
        give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        flooded = False
        while give_back is not None:
            await asyncio.sleep(CALM_S)
            came, self._came = self._came, 0
            before, flooded = flooded, came > FLOOD
            if before and not flooded:
                give_back(0)

    def _has_room(self, connection: socket.socket) -> bool:
        """The kernel gives the lowest free number, so a high one tells that few are left."""
        if connection.fileno() < self._limit - RESERVED or self.places.make_way(at_once=True):
            return True
        connection.close()
        self._short_of("too few descriptors")
        return False

    def _short_of(self, what: str | None) -> None:
        self.refused["no_descriptors"] += 1
        if not self._short:
            self._short = True
            log.error("cannot accept connections: %s; said once", what)

    def _take(self, connection: socket.socket, tasks: asyncio.TaskGroup) -> None:
        self._came += 1
        stranger = Stranger(self.places, self._protocol, self.refused)
        greeting = tasks.create_task(self._greet(stranger, connection))
        if stranger.transport is None:
            stranger.drop = greeting.cancel

        def done(_: asyncio.Task[None]) -> None:
            if stranger.transport is None:
                stranger.leave()
                stranger.drop = _nothing  # the task holds its error, and that all frames
                connection.close()

        greeting.add_done_callback(done)

    async def _greet(self, stranger: Stranger, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: stranger,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S,
                ssl_shutdown_timeout=None if self._context is None else GOODBYE_S,
            )
        except OSError as error:  # TLS's errors and timeouts are such, too
            self.refused["tls"] += 1
            error.__traceback__ = None
