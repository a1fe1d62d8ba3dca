"""loomid's end of the link for tests of the shim alone: facts in, commands out."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import zmq

from loomid import hermes_words, text, wire
from loomid.lmp import facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Fact = dict[str, Any]


class Peer:
    """A ROUTER in a thread that welcomes each shim, acknowledges and remembers its facts.

    A fact is its body, typed by loomid, with `kind`, `n`, `t` and `boot` beside it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / wire.SOCKET_NAME
        self.endpoint = f"ipc://{self.path}"
        self.facts: list[Fact] = []
        self.hellos: list[wire.Hello] = []
        self.byes: list[str] = []
        self._results: dict[str, wire.Result] = {}
        self._changed = threading.Condition()
        self._serial = itertools.count(1)
        self._out: list[wire.Message] = []
        self._address = b""
        self._done = False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        self._thread.join(5)

    def _serve(self) -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            router.setsockopt(zmq.ROUTER_HANDOVER, 1)
            router.linger = 0
            router.bind(self.endpoint)
            beat = 0.0
            while not self._done:
                if router.poll(10):
                    address, data = router.recv_multipart()
                    # A new connection begins with an empty message.
                    message = wire.from_shim(text.valid_json_text(data.decode())) if data else None
                    for answer in self._take(address, message) if message else [wire.WhoAreYou()]:
                        router.send_multipart([address, wire.encode(answer)])
                with self._changed:
                    out, self._out = self._out, []
                if self._address and time.monotonic() > beat:
                    beat = time.monotonic() + wire.BEAT_S / 2
                    out.append(wire.Beat())
                for message in out:
                    router.send_multipart([self._address, wire.encode(message)])

    def _take(self, address: bytes, message: wire.Message) -> list[wire.Message]:
        with self._changed:
            self._changed.notify_all()
            match message:
                case wire.Hello():
                    self.hellos.append(message)
                    self._address = address
                    ask = ("stock-1", message.boot, time.time() + 10, "running")
                    return [
                        wire.Welcome(message.wire, "test", "test", 0),
                        wire.Command(*ask, {"fact": "inventory"}),
                    ]
                case wire.Facts():
                    for n, t, kind, said in message.facts:
                        fact = facts.parse(kind, hermes_words.body_of(kind, said))
                        where = {"kind": kind, "n": n, "t": t, "boot": message.boot}
                        self.facts.append({**asdict(fact), **where})
                    return [wire.Ack(message.boot, message.facts[-1][0])]
                case wire.Result():
                    self._results[message.id] = message
                case wire.Bye():
                    self.byes.append(message.boot)
        return []

    def until(self, what: Callable[[], Any], seconds: float = 30, why: str = "") -> Any:
        """The first true value of `what`, looked at after each message."""
        with self._changed:
            value = self._changed.wait_for(what, seconds)
        assert value, f"not within {seconds:g} s: {why or what}; last facts: {self.facts[-12:]}"
        return value

    def mark(self) -> int:
        """A point in the facts: pass it as `after`."""
        return len(self.facts)

    def all(self, kind: str, after: int = 0, **fields: Any) -> list[Fact]:
        """The facts of this kind with these values, so far."""
        return [
            fact
            for fact in list(self.facts)[after:]
            if fact["kind"] == kind and all(fact.get(k) == v for k, v in fields.items())
        ]

    def wait(self, kind: str, after: int = 0, seconds: float = 30, **fields: Any) -> Fact:
        """The first fact of this kind with these values."""
        self.until(lambda: self.all(kind, after, **fields), seconds, f"{kind} {fields}")
        return self.all(kind, after, **fields)[0]

    def send(self, op: str, *, deadline_s: float = 10, **args: Any) -> str:
        """Send a command to the shim that said hello last; returns its id."""
        command_id = f"c{next(self._serial)}-{time.monotonic_ns()}"
        command = wire.Command(command_id, self.hellos[-1].boot, time.time() + deadline_s, op, args)
        with self._changed:
            self._out.append(command)
        return command_id

    def result(self, command_id: str, seconds: float = 20) -> wire.Result:
        """The answer to a command."""
        self.until(lambda: command_id in self._results, seconds, f"result of {command_id}")
        return self._results[command_id]

    def call(self, op: str, **args: Any) -> wire.Result:
        """Send a command and wait for its answer."""
        return self.result(self.send(op, **args))


def key_of(chat: str) -> str:
    """The session key of one of our chats."""
    return f"agent:main:{wire.PLATFORM}:dm:{chat}"


def inject(
    peer: Peer, text: str, chat: str, message_id: str, mode: str = "queue", **more: str
) -> wire.Result:
    """Hand a phone's message to Hermes."""
    return peer.call("inject", chat_id=chat, text=text, message_id=message_id, mode=mode, **more)


def run(peer: Peer, text: str, chat: str, message_id: str, seconds: float = 40) -> tuple[int, str]:
    """Inject and wait until Hermes is done with it: where its facts begin, and its turn."""
    at = peer.mark()
    assert inject(peer, text, chat, message_id).error is None
    peer.wait("processing.ended", at, seconds, message_id=message_id)
    return at, peer.wait("turn.started", at, session_key=key_of(chat))["turn_id"]
