"""Fan-out: how many deliveries a second, and how long each takes, by number of phones."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.messages import Order
from tests.bench.subjects import TICKS
from tests.bench.swarm import Swarm

if TYPE_CHECKING:
    from tests.bench.subjects import Running, Subject

RATE = 1000.0
SAMPLES = 1_000_000


def cell(subject: Subject, phones: int, seconds: float) -> dict[str, Any]:
    """One server with so many phones: at full speed, then paced."""
    with (
        tempfile.TemporaryDirectory(prefix="lo-") as folder,
        subject.start(Path(folder), phones) as server,
        Swarm(server.protocol, server.port, server.words) as swarm,
    ):
        swarm.open()
        most = subject.most or sys.maxsize
        count, last = min(max(20, 10_000 // phones), most), 0
        while True:  # warm up, and learn how many events fill the time
            full = _run(server, swarm, Order(last + 1, count))
            last = full["last"]
            if full["seconds"] > seconds / 5 or count == most:
                break
            count = min(count * 3, most)
        count = min(max(int(count / full["seconds"] * seconds), 10), most)
        full = _run(server, swarm, Order(last + 1, count))
        order = Order(full["last"] + 1, int(RATE * seconds), RATE, seconds)
        return {"full": full, "paced": _run(server, swarm, order)}


def _run(server: Running, swarm: Swarm, order: Order) -> dict[str, Any]:
    """Publish, and wait until every phone has everything."""
    # An odd step, so that it takes all places of a batch in turn.
    swarm.clear(max(1, order.count * swarm.count // SAMPLES) | 1)
    before = server.cpu_s()
    done = server.publish(order)
    got = swarm.until(done["last"])
    used = server.cpu_s() - before
    sent = done["last"] - order.first + 1
    if got["messages"] != sent * swarm.count:
        raise RuntimeError(f"{got['messages']} of {sent * swarm.count}")
    seconds = (got["at"] - done["begun"]) / 1e9
    return {
        "last": done["last"],
        "events": sent,
        "seconds": seconds,
        "published_s": sent / max((done["ended"] - done["begun"]) / 1e9, 1e-9),
        "behind_ms": (got["at"] - done["ended"]) / 1e6,
        "events_s": sent / seconds,
        "deliveries_s": got["messages"] / seconds,
        "p50_ms": got["latency_us"][0]["p50"] / 1000,
        "p99_ms": got["latency_us"][0]["p99"] / 1000,
        "deliveries_cpu_s": got["messages"] / max(used, 1 / TICKS),
        "server_cpu": used / seconds,
        "client_cpu": got["cpu_us"] / 1e6 / seconds,
        "bytes_per_read": got["bytes"] / got["reads"],
    }
