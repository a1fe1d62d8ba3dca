"""What loomid costs when nothing happens: start, memory, processor; and each connected phone."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from loomid.lmp import envelope
from loomid.log import Log
from loomid.store import Store
from tests.bench import messages
from tests.bench.messages import RUN, TASK
from tests.bench.swarm import Swarm
from tests.support.daemon import Daemon

if TYPE_CHECKING:
    from tests.bench.subjects import Subject

PAGE = os.sysconf("SC_PAGE_SIZE")
SETTLE_S = 1.0
LASTING_EVERY = 100
"""Of so many events one is an end or a notification."""


def started(daemon: Daemon) -> dict[str, float]:
    """Start it; seconds until it accepts connections, and processor time until then."""
    port = daemon.port
    begun = time.monotonic()
    daemon.spawn()
    while not _accepts(port):
        if daemon.process is None or daemon.process.poll() is not None:
            raise RuntimeError(daemon.log())
        time.sleep(0.002)  # this is the clock of the measurement
    seconds, cpu_s = time.monotonic() - begun, daemon.cpu_s()
    daemon.wait_notified("READY=1")
    return {"seconds": seconds, "cpu_s": cpu_s}


def free_listen() -> str:
    """An address nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def resting(daemon: Daemon, seconds: float) -> dict[str, float]:
    """Memory, and the share of a core that it uses while nothing happens."""
    used, begun = daemon.cpu_s(), time.monotonic()
    time.sleep(seconds)  # idle is what is measured
    share = (daemon.cpu_s() - used) / (time.monotonic() - begun)
    return {"memory_mib": daemon.rss_mib(), "core_share": share}


def idle(seconds: float) -> dict[str, float]:
    """The same of a fresh daemon."""
    with tempfile.TemporaryDirectory(prefix="lo-") as folder, Daemon(Path(folder)) as daemon:
        return resting(daemon, seconds)


def start(events: int, tries: int) -> dict[str, float]:
    """Seconds until it listens, with and without stored events, and of Python and imports.

    The best of the tries, which take turns: what else the machine does only makes it later.
    """
    taken: dict[str, list[float]] = {"imports_s": [], "empty_s": [], "full_s": []}
    with (
        tempfile.TemporaryDirectory(prefix="lo-") as empty,
        tempfile.TemporaryDirectory(prefix="lo-") as full,
    ):
        daemons = {"empty_s": Daemon(Path(empty)), "full_s": Daemon(Path(full))}
        for daemon in daemons.values():
            daemon.listen = free_listen()
            daemon.state_dir.mkdir(mode=0o700)
        asyncio.run(fill(daemons["full_s"].state_dir / "loomid.db", events))
        for _ in range(tries):
            begun = time.monotonic()
            code = "import loomid.__main__, loomid.daemon"
            subprocess.run([sys.executable, "-c", code], check=True)
            taken["imports_s"].append(time.monotonic() - begun)
            for name, daemon in daemons.items():
                taken[name].append(started(daemon)["seconds"])
                daemon.stop()
        for daemon in daemons.values():
            daemon.close()
    best = {name: min(times) for name, times in taken.items()}
    return best | {
        "events": events,
        "beyond_imports_ms": (best["full_s"] - best["imports_s"]) * 1000,
        "beyond_empty_ms": (best["full_s"] - best["empty_s"]) * 1000,
    }


async def fill(path: Path, count: int) -> None:
    """Write so many events into a database, as if an earlier start had stored them."""
    body = envelope.encode_payload(messages.delta(messages.text(1)))
    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id=_boot_id())
        last, now = log.visible, time.time()
        rows = (
            (last - i, now, "run.delta", TASK, RUN, i % LASTING_EVERY == 0, body)
            for i in range(count)
        )
        await store.safe.write(
            lambda line: line.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        )
        await log.close()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def memory(subject: Subject, phones: int) -> dict[str, float]:
    """Kibibytes a connected phone that is idle adds to the server."""
    with (
        tempfile.TemporaryDirectory(prefix="lo-") as folder,
        subject.start(Path(folder), phones + 1) as server,
        Swarm(server.protocol, server.port, server.words) as swarm,
    ):
        swarm.open(phones, phones + 1)  # what the first one costs is no phone's
        before = _rss(server.pids)
        swarm.open(0, phones)
        time.sleep(SETTLE_S)
        return {"kib": (_rss(server.pids) - before) / phones / 1024}


def _rss(pids: list[int]) -> int:
    sizes = (Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in pids)
    return sum(map(int, sizes)) * PAGE
