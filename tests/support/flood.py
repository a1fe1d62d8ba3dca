"""Strangers at the door, as many as one process can make.

    python -m tests.support.flood --port 8770 KIND

KIND: `silent` (connects, says nothing), `slow` (a request's head that never ends), `upgraded`
(a WebSocket without hello), `wrong` (a hello with a wrong credential), `mixed`; `tls`: a handshake
that is only begun, then these behind TLS. It keeps up to --hold connections, opens new ones as fast
as it can for the oldest, and prints `holding` when it has begun to do so, or cannot get more. It
ends when stdin is closed, with a line of what it did.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import socket
import ssl
import sys
import time
from collections import deque

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def frame(type_: str, payload: dict[str, object]) -> bytes:
    """A client's WebSocket frame, masked with zeros."""
    text = json.dumps({"v": 1, "type": type_, "payload": payload}).encode()
    size = bytes([len(text)]) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2)
    return b"\x81" + bytes([0x80 | size[0]]) + size[1:] + bytes(4) + text


WRONG = frame("hello", {"protocol_version": 1, "device_id": "dev_0", "credential": "wrong"})
FIRST = {
    "silent": b"",
    "slow": b"GET /ws HTTP/1.1\r\nHost: x\r\nX: ",
    "upgraded": UPGRADE,
    "wrong": UPGRADE + WRONG,
}
WITHIN_S = 0.5


TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE


def handshake() -> bytes:
    """The first message of one."""
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


KINDS = {
    **{kind: [(False, first)] for kind, first in FIRST.items()},
    "mixed": [(False, first) for first in FIRST.values()],
    "tls": [(False, handshake()), *((True, first) for first in FIRST.values())],
}
"""Whether behind TLS, and what is sent."""


def connect(port: int, first: bytes, *, tls: bool) -> socket.socket | None:
    one = socket.socket()
    one.settimeout(WITHIN_S)
    try:
        one.connect(("127.0.0.1", port))
        if tls:
            one = TLS.wrap_socket(one)
        one.sendall(first)
    except OSError:
        one.close()
        return None
    one.setblocking(False)
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hold", type=int, default=1500)
    options = parser.parse_args()
    held: deque[socket.socket] = deque()
    made = failed = 0
    told = False
    begun = time.monotonic()
    for tls, first in itertools.cycle(KINDS[options.kind]):
        if made % 64 == 0 and select.select([0], [], [], 0)[0] and not os.read(0, 1):
            break
        one = connect(options.port, first, tls=tls)
        made += one is not None
        failed += one is None
        if one is not None:
            held.append(one)
        if len(held) > options.hold:
            with contextlib.suppress(OSError):
                held.popleft().close()
        if not told and (len(held) == options.hold or failed):
            told = True
            sys.stdout.write("holding\n")
            sys.stdout.flush()
    took = time.monotonic() - begun
    sys.stdout.write(json.dumps({"made": made, "failed": failed, "seconds": took}) + "\n")


if __name__ == "__main__":
    main()
