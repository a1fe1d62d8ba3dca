"""The socket between shims and loomid, in memory: it can break, and loses what was on its way."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import zmq

from loomid.gateway import Gateways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Wire:
    """What is bound and what is connected at one ipc path."""

    def __init__(self) -> None:
        self.router: Router | None = None
        self.dealers: dict[bytes, Dealer] = {}
        self._names = itertools.count(1)

    def socket(self, _: int) -> Dealer:
        """In place of zmq.Context.socket, for a shim."""
        return Dealer(self, b"peer-%d" % next(self._names))

    def bind(self, router: Router) -> None:
        """loomid listens: all who are connected find it."""
        self.router = router
        for dealer in self.dealers.values():
            dealer.probe()

    def unbind(self) -> None:
        """loomid is gone."""
        self.router = None


class Router:
    """loomid's end."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._inbox: deque[list[bytes]] = deque()
        self.readable: Callable[[], object] = lambda: None

    def put(self, peer: bytes, data: bytes) -> None:
        self._inbox.append([peer, data])
        self.readable()

    def recv_multipart(self, _: int) -> list[bytes]:
        if not self._inbox:
            raise zmq.Again
        return self._inbox.popleft()

    def send_multipart(self, parts: tuple[bytes, bytes], _: int) -> None:
        dealer = self._wire.dealers.get(parts[0])
        if dealer is None or dealer.cut or self._wire.router is not self:
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        dealer.put(parts[1])

    def lose(self, peer: bytes) -> None:
        """What this peer sent and nobody has read yet is lost."""
        self._inbox = deque(parts for parts in self._inbox if parts[0] != peer)


class Dealer:
    """A shim's end."""

    def __init__(self, wire: Wire, name: bytes) -> None:
        self.cut = False
        self.readable: Callable[[], object] = lambda: None
        self._wire = wire
        self._name = name
        self._inbox: deque[bytes] = deque()
        self.immediate = self.probe_router = 0

    def connect(self, _: str) -> None:
        self._wire.dealers[self._name] = self
        self.probe()

    def probe(self) -> None:
        """The empty message that begins a connection."""
        if self._wire.router is not None and not self.cut:
            self._wire.router.put(self._name, b"")

    def send(self, data: bytes, _: int) -> None:
        if self._wire.router is None or self.cut:
            raise zmq.Again
        self._wire.router.put(self._name, data)

    def put(self, data: bytes) -> None:
        self._inbox.append(data)
        self.readable()

    def recv_json(self, _: int) -> Any:
        if not self._inbox:
            raise zmq.Again
        return json.loads(self._inbox.popleft())

    def close(self, linger: int = 0) -> None:
        self._wire.dealers.pop(self._name, None)

    def sever(self) -> None:
        """The connection breaks, and what was on its way is lost."""
        self.cut = True
        self._inbox.clear()
        if self._wire.router is not None:
            self._wire.router.lose(self._name)

    def mend(self) -> None:
        """It is there again."""
        if self.cut:
            self.cut = False
            self.probe()


class WiredGateways(Gateways):
    """Gateways on that socket instead of ZeroMQ's."""

    def __init__(self, wire: Wire, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._wire = wire

    @contextmanager
    def _listening(self) -> Iterator[Any]:
        router, loop = Router(self._wire), asyncio.get_running_loop()
        router.readable = lambda: loop.call_soon(self._drain_soon)
        self._wire.bind(router)
        try:
            yield router
        finally:
            if self._wire.router is router:
                self._wire.unbind()
