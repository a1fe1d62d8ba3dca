"""Publishers for brokers: `python -m tests.bench.brokers KIND PORT PHONES`.

Each publication is acknowledged by the broker (QoS 1; JetStream's answer to a publication);
at most `window` of them are under way.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from typing import Any, Protocol

from tests.bench import messages
from tests.bench.messages import Order, say

CHUNK = 64
"""So many publications go out in one write."""
READ = 256 * 1024
STREAM = "events"
ACKS = {"jetstream": "all", "jetstream-none": "none"}
ACK_PENDING = 4096
"""How many events JetStream sends a phone before it waits for an acknowledgement."""


class Broker(Protocol):
    """A connection to one."""

    socket: socket.socket
    window: int

    def packet(self, number: int) -> bytes:
        """The publication of an event."""

    def acknowledged(self, data: bytes) -> int:
        """How many publications are acknowledged by what was read."""


class Mqtt:
    """MQTT 3.1.1; the topic is `e`."""

    window = 64  # with more it is not faster, and what waits in the broker makes all late

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(b"\x10\x0f\0\4MQTT\4\2\0\0\0\3pub")
        if self.socket.recv(4) != b"\x20\2\0\0":
            raise RuntimeError("the broker refuses the publisher")
        self._rest = 0

    def packet(self, number: int) -> bytes:
        body = b"\0\1e" + (number % 65535 + 1).to_bytes(2) + messages.message(number).encode()
        high, low = divmod(len(body), 128)
        return bytes((0x32, 128 | low, high)) + body

    def acknowledged(self, data: bytes) -> int:
        count, self._rest = divmod(self._rest + len(data), 4)  # PUBACK alone comes here
        return count


class Nats:
    """A stream in a file, and a durable push consumer for each phone.

    With `ack` "all" the phones acknowledge what they got with one message: that is the cheapest
    policy by which JetStream sends again what was on its way when a connection broke. With "none"
    that is lost to the phone, as nobody tells JetStream where it was.
    """

    window = 512

    def __init__(self, port: int, phones: int, ack: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self._text = b""
        self._call(
            b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB answers.* 1\r\nPING\r\n',
            b"PONG\r\n",
        )
        self._api(f"STREAM.CREATE.{STREAM}", name=STREAM, subjects=["e"], storage="file")
        for i in range(phones):
            config: dict[str, Any] = {
                "durable_name": f"p{i}",
                "deliver_subject": f"d.{i}",
                "deliver_policy": "all",
                "ack_policy": ack,
            }
            if ack == "all":
                config["max_ack_pending"] = ACK_PENDING
            call = f"CONSUMER.DURABLE.CREATE.{STREAM}.p{i}"
            self._api(call, stream_name=STREAM, config=config)

    def _api(self, call: str, **asked: Any) -> None:
        body = json.dumps(asked).encode()
        what = b"PUB $JS.API.%s answers.1 %d\r\n%s\r\n" % (call.encode(), len(body), body)
        self._call(what, b"}\r\n")

    def _call(self, what: bytes, end: bytes) -> None:
        self.socket.sendall(what)
        got = b""
        while end not in got:
            got += self.socket.recv(READ)
        if b'"error"' in got:
            raise RuntimeError(got.decode())

    def packet(self, number: int) -> bytes:
        body = messages.message(number).encode()
        return b"PUB e answers.1 %d\r\n%s\r\n" % (len(body), body)

    def acknowledged(self, data: bytes) -> int:
        self._text += data
        count = self._text.count(b"}\r\n")
        self._text = self._text[self._text.rfind(b"}\r\n") + 3 :] if count else self._text
        return count


def publish(broker: Broker, order: Order) -> dict[str, int]:
    """Carry out one order."""
    begun, since, sent, waiting = time.monotonic_ns(), time.monotonic(), 0, 0
    while (due := order.due(since, sent)) >= 0 or waiting:
        count = max(0, min(due, CHUNK, broker.window - waiting))
        first = order.first + sent
        broker.socket.sendall(b"".join(map(broker.packet, range(first, first + count))))
        sent += count
        waiting += count
        patience = order.pause(since, sent) if due == 0 else None if count == 0 else 0.0
        if select.select([broker.socket], [], [], patience)[0]:
            waiting -= broker.acknowledged(broker.socket.recv(READ))
    return order.done(begun, sent)


def main() -> None:
    """Each line of stdin is an order."""
    kind, port, phones = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    broker: Broker = Mqtt(port) if kind == "mqtt" else Nats(port, phones, ACKS[kind])
    say(ready=True)
    for line in sys.stdin:
        say(**publish(broker, Order(**json.loads(line))))


if __name__ == "__main__":
    main()
