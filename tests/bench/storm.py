"""A reconnect storm: a thousand phones come back at once, each with a gap of 512 events.

A few phones stay connected, and events go on at a steady pace meanwhile.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.messages import Order
from tests.bench.swarm import Swarm

if TYPE_CHECKING:
    from tests.bench.subjects import Subject

STAY = 10
GAP = 512
RATE = 200.0
PIECE_S = 0.1
SEEN_S = 0.5
"""Until the server has seen that they are gone, whichever it is."""


def storm(subject: Subject, phones: int) -> dict[str, Any]:
    """Seconds until the last one has caught up, and how those that stayed fared meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="lo-") as folder,
        subject.start(Path(folder), STAY + phones) as server,
        Swarm(server.protocol, server.port, server.words, apart=STAY) as swarm,
    ):
        swarm.open()
        last = server.publish(Order(1, 100))["last"]
        swarm.until(last)
        swarm.shut(STAY, STAY + phones)
        time.sleep(SEEN_S)
        last = server.publish(Order(last + 1, GAP))["last"]
        swarm.until(last, 0, STAY)
        swarm.clear()
        cpu, begun = server.cpu_s(), time.monotonic_ns()
        swarm.ask(f"open {STAY} {STAY + phones}")
        swarm.ask(f"until {STAY} {STAY + phones} {last} 90")
        while True:
            last = server.publish(Order(last + 1, int(RATE * PIECE_S), RATE))["last"]
            if swarm.has_told():
                break
        opened = swarm.told()
        if not opened["open"]:
            raise RuntimeError(opened["trouble"])
        got = swarm.checked(swarm.told())
        used = server.cpu_s() - cpu
        swarm.until(last)
        seconds = (got["at"] - begun) / 1e9
        return {
            "phones": phones,
            "seconds": seconds,
            "connected_s": (opened["at"] - begun) / 1e9,
            "stayed_p50_ms": got["latency_us"][1]["p50"] / 1000,
            "stayed_p99_ms": got["latency_us"][1]["p99"] / 1000,
            "stayed_max_ms": got["latency_us"][1]["max"] / 1000,
            "server_cpu_s": used,
            "server_cpu": used / seconds,
            "client_cpu": got["cpu_us"] / 1e6 / seconds,
        }
