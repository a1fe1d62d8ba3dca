"""The shim's end of the link to loomid: two threads, and the only sockets of the shim.

Hooks only put a tuple into a queue. The waker thread turns that into a wake-up of the link
thread, which numbers and encodes facts, keeps them until loomid has them on disk, and runs
each command at most once. Knows nothing of Hermes.
"""

from __future__ import annotations

import atexit
import os
import socket
import time
import weakref
from collections import deque
from dataclasses import asdict, dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
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
RETRY_BEATS = 15  # refused or replaced: an upgraded loomid is noticed at once, the rest by this
PATIENCE_BEATS_MAX = 15  # a loomid that is stopped keeps what we sent; no need to hurry
MESSAGE_MAX = 16 << 20
_PREFIX = "ipc://"
TALKING = ("linked", "replaced")  # states in which loomid takes facts


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
        self._control = Lock()  # start and stop; never taken by emit
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._inbox: deque[Any] = deque()
        self._awake = False
        self._turned_away = 0
        self._forked = False
        self._state = "stopped"
        self._threads: tuple[Thread, ...] = ()
        self._zmq: Any = None
        self._pipe = -1, -1
        self._end: object = None  # what in the queue tells both threads to end
        self._stop_at = 0.0
        # From here on: of the link thread alone.
        self._backlog = Backlog()
        self._reported: dict[str, int] = {}
        self._orders = Orders(identity.boot, execute)
        self._context: Any = None
        self._socket: Any = None
        self._due = 0.0
        self._stopping = False
        self._told: set[str] = set()  # log lines not to be repeated until we are linked
        self._next = 0  # endpoint to try first
        self._endpoint: str | None = None
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

        if self._forked:
            return
        with self._control:
            if any(thread.is_alive() for thread in self._threads):
                return
            self._zmq, self._pipe, self._end = zmq, os.pipe(), object()
            os.set_blocking(self._pipe[0], False)
            self._state, self._stopping, self._awake = "connecting", False, False
            makers = {"loomi-waker": self._wake, "loomi-link": self._run}
            self._threads = tuple(Thread(target=makers[n], name=n, daemon=True) for n in makers)
            for thread in self._threads:
                thread.start()
            atexit.register(self.stop, 0.2)

    def stop(self, wait_s: float = 1.0) -> None:
        """Wait at most `wait_s` for acknowledgements, say bye and end the threads."""
        if self._forked or self._state == "stopped":
            return
        with self._control:
            atexit.unregister(self.stop)
            self._stop_at = time.monotonic() + wait_s * 0.75  # the rest is for the bye
            self._queue.put(self._end)
            self._threads[-1].join(wait_s)
            self._state = "stopped"

    # ── waker thread ──

    def _wake(self) -> None:
        """Writing to the pipe gives up the GIL, which would cost a hook milliseconds."""
        item = None
        while item is not self._end:
            item = self._queue.get()
            self._inbox.append(item)
            if not self._awake:
                self._awake = True
                os.write(self._pipe[1], b"\0")

    # ── link thread ──

    def _run(self) -> None:
        self._context = self._zmq.Context()
        while not self._over():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - a guest never hurts its host
                self._complain(f"the link met an error and starts anew: {error!r:.200}")
                time.sleep(self._tick_s)
                self._lose()
        self._send(wire.Bye(self._identity.boot))
        self._close(linger_ms=100)
        self._context.term()
        self._threads[0].join()
        for fd in self._pipe:
            os.close(fd)
        self._state = "stopped"

    def _over(self) -> bool:
        if not self._stopping:
            return False
        waiting = self._state in TALKING and (len(self._backlog) or self._orders.results)
        return not waiting or time.monotonic() >= self._stop_at

    def _step(self) -> None:
        until = min(self._due, self._stop_at) if self._stopping else self._due
        ends = [self._pipe[0]] if self._socket is None else [self._pipe[0], self._socket]
        self._zmq.select(ends, [], [], max(0.0, until - time.monotonic()))
        self._take()
        self._receive()
        if time.monotonic() >= self._due:
            # Not `+=`: after a suspend, one look around is enough.
            self._due = time.monotonic() + self._tick_s
            self._tick()
        self._flush()

    def _take(self) -> None:
        """Number what hooks said. Clearing the flag first means no wake-up is missed."""
        try:
            os.read(self._pipe[0], 16)
        except BlockingIOError:
            return
        self._awake = False
        while self._inbox:
            item = self._inbox.popleft()
            if isinstance(item, tuple):
                self._backlog.add(*item)
            elif isinstance(item, wire.Result):
                self._orders.settle(item)
            elif item is self._end:  # else of an earlier stop
                self._stopping = True

    def _receive(self) -> None:
        while self._socket is not None:
            try:
                data = b"".join(self._socket.recv_multipart(self._zmq.NOBLOCK))
            except self._zmq.Again:
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

    def _hello(self) -> bool:
        who, first = asdict(self._identity), self._backlog.first
        return self._send(
            wire.Hello(wire.WIRE_VERSION, first=first, dropped=self._dropped(), **who)
        )

    def _welcome(self, message: wire.Welcome, ack: int) -> None:
        self._backlog.rewind(ack)
        if self._state != "linked":
            self._log.info("linked to loomid %s at %s", message.loomid_version, self._endpoint)
        self._state = "linked"
        self._next = 0
        self._patience = wire.BEATS_MISSED * TICKS_A_BEAT
        self._told.clear()
        try:
            self._inventory()
        except Exception as error:  # noqa: BLE001 - a guest never hurts its host
            self._complain(f"what is alive cannot be told: {error!r:.200}")

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

    def _tick(self) -> None:
        """Beats, silence and retries, counted in ticks: a suspended machine adds none."""
        self._ticks += 1
        self._silent += 1
        if self._state in TALKING:
            if self._silent > wire.BEATS_MISSED * TICKS_A_BEAT:
                self._log.warning("loomid is silent; facts are kept until it is back")
                self._lose()
            elif self._ticks % TICKS_A_BEAT == 0:
                self._send(wire.Beat())
        if self._state == "connecting":
            self._reach()
        elif self._state != "linked" and self._ticks % (RETRY_BEATS * TICKS_A_BEAT) == 0:
            self._lose()  # and say hello again, wherever loomid is now

    def _reach(self) -> None:
        if self._socket is None:
            self._connect()
        elif self._silent > self._patience:
            self._complain_nobody()
            self._patience = min(2 * self._patience, PATIENCE_BEATS_MAX * TICKS_A_BEAT)
            self._next += 1
            self._connect()
        elif self._silent % TICKS_A_BEAT == 0:
            self._hello()  # in case loomid did not ask

    def _connect(self) -> None:
        self._close()
        first = self._next % len(self._endpoints)
        places = self._endpoints[first:] + self._endpoints[:first]
        self._endpoint = next(filter(_listens, places), None)
        if self._endpoint is None:
            self._complain_nobody()
            return
        peer = self._context.socket(self._zmq.DEALER)
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

    def _close(self, linger_ms: int = 0) -> None:
        if self._socket is not None:
            self._socket.close(linger=linger_ms)
            self._socket = None

    def _complain(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._log.warning("%s", text)

    def _complain_nobody(self) -> None:
        places = ", ".join(self._endpoints)
        self._complain(f"no loomid answers at {places}; facts are kept and it is tried again")

    def _flush(self) -> None:
        if self._state not in TALKING:
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
        if self._socket is None:
            return False
        data = message if isinstance(message, bytes) else wire.encode(message)
        try:
            self._socket.send(data, self._zmq.NOBLOCK)
        except self._zmq.Again:
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
