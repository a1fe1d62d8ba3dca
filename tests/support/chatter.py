"""A paired phone that asks as fast as it can.

    python -m tests.support.chatter --port 8770 --device dev_… --rate 10000 < credential

It reads the credential from the first line of stdin, prints `asking` when it has begun, ends
when stdin is closed, and then prints a line of what it was told.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import threading
import time
from collections import Counter
from typing import Any

from tests.support.flood import UPGRADE, frame


class Chatter:
    """One connection: a thread that reads, and one that writes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(UPGRADE)
        self.file = self.socket.makefile("rb")
        while self.file.readline() != b"\r\n":
            pass
        self.told: Counter[str] = Counter()
        self.order: dict[str, list[int]] = {}

    def frames(self) -> Any:
        """What the server says."""
        while len(head := self.file.read(2)) == 2 and head[0] == 0x81:
            size = head[1]
            if size > 125:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            yield json.loads(self.file.read(size))

    def listen(self) -> None:
        for got in self.frames():
            payload = got["payload"]
            self.told[payload.get("code", got["type"])] += 1
            if "request_id" in payload:
                self.order.setdefault(got["type"], []).append(int(payload["request_id"]))

    def ask(self, rate: float) -> tuple[int, float]:
        """Ask until stdin is closed, never more than `rate` a second; how often, how long."""
        sent, begun = 0, time.monotonic()
        while not (select.select([0], [], [], 0)[0] and not os.read(0, 1)):
            due = min(100, int((time.monotonic() - begun) * rate) - sent)
            asked = b"".join(
                frame("task.list", {"request_id": str(sent + n)}) for n in range(max(due, 0))
            )
            view = memoryview(asked)
            while view and select.select([0, self.socket], [self.socket], [], 0.2)[1]:
                view = view[self.socket.send(view) :]
            if view:  # it is not read any more: what was begun cannot be taken back
                break
            sent += max(due, 0)
            time.sleep(0.001)
        return sent, time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--rate", type=float, default=10_000.0)
    options = parser.parse_args()
    credential = sys.stdin.readline().strip()
    chatter = Chatter(options.port)
    hello = {"protocol_version": 1, "device_id": options.device, "credential": credential}
    chatter.socket.sendall(frame("hello", hello))
    listening = threading.Thread(target=chatter.listen, daemon=True)
    listening.start()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    sent, took = chatter.ask(options.rate)
    rows = {kind: numbers == sorted(numbers) for kind, numbers in chatter.order.items()}
    sys.stdout.write(
        json.dumps({"sent": sent, "seconds": took, "told": chatter.told, "in_order": rows}) + "\n"
    )


if __name__ == "__main__":
    main()
