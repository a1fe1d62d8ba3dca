"""The shim's end of the link to loomid: two threads, and the only sockets of the shim.

Hooks only put a tuple into a queue. The waker thread turns that into a wake-up of the link
thread, which numbers and encodes facts, keeps them until loomid has them on disk, and runs
each command at most once. Knows nothing of Hermes.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from . import wire
from .backlog import Backlog
from .orders import Orders

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence

# What may wait for a link thread that is not there (not started yet, or stopped): deltas
# leave room for everything else. A running one empties the queue within milliseconds.
QUEUE_DELTAS = 10_000
QUEUE_ALL = 20_000
TICKS_A_BEAT = 4  # the link thread looks around this often; a new loomid is found within one
RETRY_BEATS = 15  # refused: an upgraded loomid is noticed by its new socket, the rest by this
PATIENCE_BEATS_MAX = 15  # a loomid that is stopped keeps what we sent; no need to hurry
MESSAGE_MAX = 16 << 20
_PREFIX = "ipc://"
_STOP = object()


@dataclass(frozen=True)
class Identity:
    """Who this process is: the fields of `wire.Hello` that do not change."""

    gateway_id: str
    boot: str
    pid: int
    pid_started: float
    name: str
    hermes_version: str
    shim_version: str
    hooks: list[str]
    features: list[str]
    home_chat: str = wire.HOME_CHAT
    home_key: str | None = None


class Link:
    """One process' numbered facts to loomid, and loomid's commands to it.

    `execute` and `inventory` are called on the link thread and must not block.
    """

    def __init__(
        self,
        identity: Identity,
        endpoints: Sequence[str],
        *,
        execute: Callable[[wire.Command], None],
        inventory: Callable[[], None],
        log: logging.Logger,
        beat_s: float = wire.BEAT_S,
    ) -> None:
        if not endpoints or not all(e.startswith(_PREFIX) for e in endpoints):
            # Whoever reaches the other end drives the agent: files, whose modes we trust.
            raise ValueError("the link needs ipc:// endpoints")
        self._identity, self._endpoints = identity, list(endpoints)
        self._inventory, self._log = inventory, log
        self._tick_s = beat_s / TICKS_A_BEAT
        self._control = threading.Lock()  # start and stop; never taken by emit
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._inbox: deque[Any] = deque()
        self._awake = False
        self._turned_away = 0
        self._forked = False
        self._state = "stopped"
        self._threads: tuple[threading.Thread, ...] = ()
        self._stop_at = 0.0
        # From here on: of the link thread alone.
        self._backlog = Backlog()
        self._reported: dict[str, int] = {}
        self._orders = Orders(identity.boot, execute)
        self._socket: Any = None
        self._stopping = False
        self._told: set[str] = set()  # log lines not to be repeated until we are linked
        self._next = 0  # endpoint to try first
        self._ticks = self._silent = 0
        self._patience = wire.BEATS_MISSED * TICKS_A_BEAT
        os.register_at_fork(after_in_child=partial(_forked, weakref.ref(self)))

    # ── any thread ──

    @property
    def state(self) -> str:
        """connecting, linked, refused, replaced or stopped."""
        return self._state

    def emit(self, kind: str, body: dict[str, Any]) -> None:
        """Take a fact; never waits, never raises, makes no system call.

        `body` belongs to the link from now on.
        """
        room = QUEUE_DELTAS if kind == "delta" else QUEUE_ALL
        if self._forked or self._queue.qsize() >= room:
            self._turned_away += 1
        else:
            self._queue.put((kind, time.time(), body))

    def reply(self, result: wire.Result) -> None:
        """Tell how a command ended; the first result of an id counts."""
        self._queue.put(result)

    def start(self) -> None:
        """Start the threads. Raises ImportError without pyzmq."""
        import zmq

        with self._control:
            if self._forked or any(thread.is_alive() for thread in self._threads):
                return
            fds = os.pipe()
            for fd in fds:
                os.set_blocking(fd, False)
            self._state, self._stopping, self._awake = "connecting", False, False
            waker = threading.Thread(
                target=self._wake, args=(fds[1],), name="loomi-waker", daemon=True
            )
            link = threading.Thread(
                target=self._run, args=(zmq, fds, waker), name="loomi-link", daemon=True
            )
            self._threads = waker, link
            for thread in self._threads:
                thread.start()
            atexit.register(self.stop, 0.2)

    def stop(self, wait_s: float = 1.0) -> None:
        """Wait at most `wait_s` for acknowledgements, say bye and end the threads."""
        with self._control:
            if self._forked or not self._threads:
                return
            atexit.unregister(self.stop)
            end = time.monotonic() + wait_s
            self._stop_at = end - wait_s / 4  # the rest is for the bye
            self._queue.put(_STOP)
            for thread in self._threads:
                thread.join(max(0.0, end - time.monotonic()))
            self._threads = tuple(thread for thread in self._threads if thread.is_alive())
            self._state = "stopped"

    # ── waker thread ──

    def _wake(self, fd: int) -> None:
        """Writing to the pipe gives up the GIL, which would cost a hook milliseconds."""
        item = None
        while item is not _STOP:
            item = self._queue.get()
            self._inbox.append(item)
            if not self._awake:
                self._awake = True
                os.write(fd, b"\0")

    # ── link thread ──

    def _run(self, zmq: Any, fds: tuple[int, int], waker: threading.Thread) -> None:  # noqa: ANN401
        context = zmq.Context()
        try:
            while not self._over():
                try:
                    self._serve(zmq, context, fds[0])
                except Exception as error:  # noqa: BLE001 - a guest never hurts its host
                    self._complain(f"the link met an error and starts anew: {error!r:.200}")
                    time.sleep(self._tick_s)
                    self._lose()
        finally:
            if self._state in ("linked", "replaced"):
                self._send(wire.Bye(self._identity.boot))
                self._socket.close(linger=100)
            self._close()
            context.term()
            waker.join()
            for fd in fds:
                os.close(fd)

    def _over(self) -> bool:
        if not self._stopping:
            return False
        waiting = len(self._backlog) or self._orders.results
        linked = self._state in ("linked", "replaced")
        return not (linked and waiting) or time.monotonic() >= self._stop_at

    def _serve(self, zmq: Any, context: Any, wake_fd: int) -> None:  # noqa: ANN401
        poller = zmq.Poller()
        poller.register(wake_fd, zmq.POLLIN)
        polled = None
        due = time.monotonic()
        while not self._over():
            if polled is not self._socket:
                if polled is not None:
                    poller.unregister(polled)
                if self._socket is not None:
                    poller.register(self._socket, zmq.POLLIN)
                polled = self._socket
            until = min(due, self._stop_at) if self._stopping else due
            poller.poll(max(0.0, until - time.monotonic()) * 1000)
            self._take(wake_fd)
            if self._socket is not None:
                self._receive(zmq)
            if time.monotonic() >= due:
                # Not `due +=`: after a suspend, one look around is enough.
                due = time.monotonic() + self._tick_s
                self._tick(zmq, context)
            self._flush()

    def _take(self, wake_fd: int) -> None:
        """Number what hooks said. Clearing the flag first means no wake-up is missed."""
        try:
            os.read(wake_fd, 16)
        except BlockingIOError:
            return
        self._awake = False
        while self._inbox:
            item = self._inbox.popleft()
            if item is _STOP:
                self._stopping = True
            elif isinstance(item, wire.Result):
                self._orders.settle(item)
            else:
                kind, t, body = item
                self._backlog.add(kind, t, body)

    def _receive(self, zmq: Any) -> None:  # noqa: ANN401
        peer = self._socket
        while self._socket is peer:
            try:
                data = b"".join(peer.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            self._silent = 0
            try:
                self._on(wire.decode(data))
            except (wire.WireError, TypeError, ValueError) as error:
                self._complain(f"loomid sent what this shim does not understand: {error!r:.200}")

    def _on(self, message: wire.Message) -> None:
        match message:
            case wire.WhoAreYou():
                self._state = "connecting"
                self._hello()
            case wire.Welcome(ack=ack):
                self._welcome(message, ack)
            case wire.Refused():
                self._refused(message)
            case wire.Ack(boot=boot, n=n) if boot == self._identity.boot:
                self._backlog.ack(n)
            case wire.Command():
                self._orders.take(message)
            case wire.Recall(id=command_id):
                self._orders.recall(command_id)
            case _:  # a beat
                pass

    def _hello(self) -> None:
        dropped = self._dropped()
        first = self._backlog.first
        self._send(
            wire.Hello(
                wire=wire.WIRE_VERSION, first=first, dropped=dropped, **asdict(self._identity)
            )
        )

    def _welcome(self, message: wire.Welcome, ack: int) -> None:
        self._backlog.rewind(ack)
        if self._state != "linked":
            self._log.info("linked to loomid %s at %s", message.loomid_version, self._endpoint)
        self._state = "linked"
        self._next = 0
        self._patience = wire.BEATS_MISSED * TICKS_A_BEAT
        self._told.clear()
        self._inventory()

    def _refused(self, message: wire.Refused) -> None:
        if message.reason == "replaced":
            # What this process still has to say counts; loomid drops what it knows already.
            self._state = "replaced"
            self._backlog.rewind()
            self._complain("another process is this gateway now: no more commands come here")
        else:
            self._state = "refused"
            self._complain(
                f"loomid speaks wire version {message.speaks}, this shim {wire.WIRE_VERSION}:"
                " upgrade one of them; it is tried again"
            )

    # ── the connection ──

    @property
    def _endpoint(self) -> str:
        return self._endpoints[self._next % len(self._endpoints)]

    def _tick(self, zmq: Any, context: Any) -> None:  # noqa: ANN401
        """Beats, silence and retries, counted in ticks: a suspended machine adds none."""
        self._ticks += 1
        self._silent += 1
        if self._state in ("linked", "replaced"):
            if self._silent > wire.BEATS_MISSED * TICKS_A_BEAT:
                self._log.warning("loomid is silent; facts are kept until it is back")
                self._lose()
            elif self._ticks % TICKS_A_BEAT == 0:
                self._send(wire.Beat())
        if self._state == "connecting":
            self._reach(zmq, context)
        elif self._state != "linked" and self._ticks % (RETRY_BEATS * TICKS_A_BEAT) == 0:
            self._hello()

    def _reach(self, zmq: Any, context: Any) -> None:  # noqa: ANN401
        if self._socket is None:
            self._connect(zmq, context)
        elif self._silent > self._patience:
            self._complain_nobody()
            self._patience = min(2 * self._patience, PATIENCE_BEATS_MAX * TICKS_A_BEAT)
            self._next += 1
            self._connect(zmq, context)
        elif self._silent % TICKS_A_BEAT == 0:
            self._hello()  # in case loomid did not ask

    def _connect(self, zmq: Any, context: Any) -> None:  # noqa: ANN401
        self._close()
        for _ in self._endpoints:
            if _listens(self._endpoint):
                break
            self._next += 1
        else:
            self._complain_nobody()
            return
        peer = context.socket(zmq.DEALER)
        peer.linger = 0
        peer.maxmsgsize = MESSAGE_MAX
        # Only a live connection takes messages; what was on a dead one is not sent later.
        peer.immediate = 1
        peer.reconnect_ivl = 200
        # An empty message on each connection: loomid answers `who`, we say hello.
        peer.probe_router = 1
        peer.connect(self._endpoint)
        self._socket, self._silent = peer, 0

    def _lose(self) -> None:
        self._state = "connecting"
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def _complain(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._log.warning("%s", text)

    def _complain_nobody(self) -> None:
        places = ", ".join(self._endpoints)
        self._complain(f"no loomid answers at {places}; facts are kept and it is tried again")

    def _flush(self) -> None:
        if self._state not in ("linked", "replaced"):
            return
        while self._orders.results and self._send(self._orders.results[0]):
            self._orders.results.popleft()
        dropped = self._dropped()
        if dropped != self._reported:
            self._reported = dropped
            self._backlog.add("dropped", time.time(), {"counts": dropped})
        while batch := self._backlog.batch():
            if not self._send(wire.facts_message(self._identity.boot, batch)):
                break  # no live connection, or loomid does not read: the next tick tries again
            self._backlog.sent(batch)

    def _dropped(self) -> dict[str, int]:
        away = {"queue": self._turned_away} if self._turned_away else {}
        return away | self._backlog.dropped

    def _send(self, message: wire.Message | bytes) -> bool:
        import zmq

        if self._socket is None:
            return False
        data = message if isinstance(message, bytes) else wire.encode(message)
        try:
            self._socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True


def _forked(link: weakref.ref[Link]) -> None:
    """In a child process: threads and sockets stayed in the parent, locks may be held for ever."""
    if (me := link()) is not None:
        me._forked, me._threads, me._state = True, (), "stopped"


def _listens(endpoint: str) -> bool:
    """A socket file whose owner died still exists, but refuses."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(endpoint.removeprefix(_PREFIX))
        except BlockingIOError:
            return True  # its queue is full: it lives, but does not take connections now
        except (OSError, ValueError):
            return False
    return True
