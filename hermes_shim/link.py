"""The shim's end of the link to loomid: one thread, and the only socket of the shim.

Hooks only put a tuple into a queue. The link thread numbers and encodes what is in it, keeps
it until loomid has it on disk, and runs each command at most once. Knows nothing of Hermes.
"""

import atexit
import os
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import zmq

from .ledger import Backlog, Orders
from .wire import BEAT_S, BEATS_MISSED, WIRE_VERSION, Message, dump, log, once, said

# What may wait for a link thread that is not there (not started yet, or stopped). A running
# one empties the queue within milliseconds.
QUEUE_MAX = 20_000
# The thread sleeps on the queue, so that a fact leaves at once and a hook makes no system call
# to wake it; it looks for what loomid says this often.
POLL_S = 0.02
RETRY_BEATS = 15  # refused, we try again: loomid may be another one by then
TALKING = ("linked", "replaced")  # states in which loomid takes facts


class Link:
    """One process' numbered facts to loomid, and loomid's commands to it.

    `identity` is what each hello says. On the link thread, what `owner()` returns is asked
    `ready()` before a connection is made, and told `execute(command)`, to be answered by `reply`;
    neither may block.
    """

    def __init__(
        self, identity: Message, endpoints: list[str], owner: Any, beat_s: float = BEAT_S
    ) -> None:
        if not endpoints or not all(place.startswith("ipc://") for place in endpoints):
            # Whoever reaches the other end drives the agent: files, whose modes we trust.
            raise ValueError("the link needs ipc:// endpoints")
        self.state = "stopped"
        """connecting, linked, refused, replaced or stopped."""
        self._identity, self._endpoints = identity, endpoints
        self._owner, self._beat_s = owner, beat_s
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread: Thread | None = None
        self._stop_at = self._due = 0.0  # 0: not to be stopped; when the next beat is due
        # From here on: of the link thread alone.
        self._backlog, self._orders = Backlog(identity["boot"]), Orders(identity["boot"])
        self._socket: Any = None
        self._place = self._silent = 0  # endpoint to try first, beats since we heard one
        atexit.register(self.stop, 0.2)

    # ── any thread ──

    def emit(self, kind: str, body: Message) -> None:
        """Take a fact; never waits, never raises, makes no system call of its own.

        `body` belongs to the link from now on.
        """
        if self._queue.qsize() >= QUEUE_MAX:
            self._backlog.dropped["queue"] += 1
        else:
            self._queue.put((kind, time.time(), body))

    def reply(self, result: Message) -> None:
        """Tell how a command ended; the first result of an id counts."""
        self._queue.put(result)

    def start(self) -> None:
        """Start the thread, unless it runs. After a fork the link stays with the parent."""
        runs = self._thread is not None and self._thread.is_alive()
        if not runs and os.getpid() == self._identity["pid"]:
            self.state, self._stop_at = "connecting", 0.0
            self._thread = Thread(target=self._run, name="loomi-link", daemon=True)
            self._thread.start()

    def stop(self, wait_s: float = 1.0) -> None:
        """Wait at most `wait_s` for acknowledgements, say bye and end the thread."""
        if self._thread is not None:
            self._stop_at = time.monotonic() + wait_s * 0.75  # the rest is for the bye
            self._thread.join(wait_s)
            self.state = "stopped"

    # ── link thread ──

    def _run(self) -> None:
        with zmq.Context() as context:
            while not self._over():
                try:
                    self._step(context)
                except Exception as error:  # noqa: BLE001 - a guest never hurts its host
                    once(f"the link met an error and starts anew: {error!r:.200}")
                    self._close()
                    time.sleep(self._beat_s)
            self._send(dump({"m": "bye", "boot": self._identity["boot"]}))
            self._close(linger_ms=100)

    def _over(self) -> bool:
        waiting = self._backlog.facts or self._orders.results or not self._queue.empty()
        may_wait = self.state in TALKING and waiting and time.monotonic() < self._stop_at
        return self._stop_at > 0 and not may_wait

    def _step(self, context: zmq.Context[Any]) -> None:
        self._take()
        with suppress(zmq.Again):
            while self._socket is not None:
                message = self._socket.recv_json(zmq.NOBLOCK)
                self._silent = 0
                self._on(message)
        if time.monotonic() >= self._due:
            # Not `+=`: after a suspend, one look around is enough.
            self._due = time.monotonic() + self._beat_s
            self._beat(context)
        if self.state in TALKING:
            self._flush()

    def _take(self) -> None:
        """Number what hooks said, and keep what commands returned."""
        wait = POLL_S
        with suppress(Empty):
            for _ in range(1_000):  # then the socket has its turn
                item = self._queue.get(timeout=wait)
                wait = 0.0
                if isinstance(item, tuple):
                    self._backlog.add(*item)
                else:
                    self._orders.settle(item)

    def _on(self, message: Message) -> None:
        match message:
            case {"m": "who"}:  # so loomid answers each new connection
                self.state = "connecting"
                self._send(dump({"m": "hello", "wire": WIRE_VERSION, **self._identity}))
            case {"m": "welcome", "ack": n, "loomid_version": version}:
                log.info("loomi: linked to loomid %s", version)
                self.state = "linked"
                said.clear()
                self._backlog.ack(n)
                self._backlog.rewind()
            case {"m": "refused", "reason": reason, "text": text}:
                # Replaced, what this process still has to say counts: loomid knows what is new.
                self.state = reason
                once(text)
                self._backlog.rewind()
            case {"m": "ack", "boot": boot, "n": n} if boot == self._identity["boot"]:
                self._backlog.ack(n)
            case {"m": "command" | "recall"} if self._orders.take(message):
                self._owner().execute(message)

    def _beat(self, context: zmq.Context[Any]) -> None:
        """Silence is counted in beats: a suspended machine adds none."""
        self._silent += 1
        patience = RETRY_BEATS if self.state == "refused" else BEATS_MISSED
        if self._socket is None or self._silent > patience:
            self._connect(context)
        elif self.state in TALKING:
            self._send(dump({"m": "beat", "dropped": self._backlog.dropped}))

    def _connect(self, context: zmq.Context[Any]) -> None:
        """Connect to the next of our places where there is a socket."""
        in_vain = self._socket is not None and self.state != "refused"
        self._close()
        self._place += in_vain
        there = [e for e in self._endpoints if Path(e.removeprefix("ipc://")).is_socket()]
        if in_vain or not there:
            places = ", ".join(self._endpoints)
            once(f"no loomid answers at {places}, or it is silent: facts are kept")
        if there and self._owner().ready():
            self._socket, self._silent = context.socket(zmq.DEALER), 0
            # Only a live connection takes messages; what was on a dead one is not sent later.
            self._socket.immediate = 1
            # An empty message on each connection: loomid answers `who`, we say hello.
            self._socket.probe_router = 1
            self._socket.connect(there[self._place % len(there)])

    def _close(self, linger_ms: int = 0) -> None:
        if self._socket is not None:
            self._socket.close(linger=linger_ms)
        self._socket, self.state = None, "connecting"

    def _flush(self) -> None:
        """Send what waits; without a live connection, or while loomid does not read, it stays."""
        results, unsent = self._orders.results, self._backlog.unsent
        while results and self._send(results[0]):
            results.popleft()
        while unsent and self._send(self._backlog.facts[unsent[0]][1]):
            unsent.popleft()

    def _send(self, data: bytes) -> bool:
        with suppress(zmq.Again):
            if self._socket is not None:
                self._socket.send(data, zmq.NOBLOCK)
                return True
        return False
