"""Write far more than the database may hold, and measure what the commits meanwhile take.

python -m tests.storage.volume [--mib 300] [--limit 64] [--event 8192] [--rate 0]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from loomid.log import Batch, Log
from tests.support.log import delta, open_log

PER_COMMIT = 16
MIB = 2**20


@dataclass
class Figures:
    """What a flood did."""

    largest: int = 0
    """Bytes of database and write-ahead log together, at their worst."""
    commits: list[float] = field(default_factory=list)
    """Seconds."""

    def look(self, path: Path) -> None:
        """Measure the files."""
        sizes = [one.stat().st_size for one in path.parent.glob(f"{path.name}*")]
        self.largest = max(self.largest, sum(sizes))

    def of(self, share: float) -> float:
        """The commit time, in ms, that such a share of all did not exceed."""
        times = sorted(self.commits)
        return 1000 * times[min(len(times) - 1, int(share * len(times)))]


async def flood(log: Log, path: Path, total: int, event_bytes: int, rate: float = 0.0) -> Figures:
    """Commit events of so many bytes each until it is `total`; `rate` commits a second."""
    figures = Figures()
    text = "x" * event_bytes
    for _ in range(total // (PER_COMMIT * event_bytes)):
        batch = Batch(events=[delta(text, run_id="run_x") for _ in range(PER_COMMIT)])
        begun = time.perf_counter()
        await log.commit(batch)
        took = time.perf_counter() - begun
        figures.commits.append(took)
        figures.look(path)
        if rate:
            await asyncio.sleep(max(0.0, 1 / rate - took))
    return figures


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=300)
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--event", type=int, default=8192)
    parser.add_argument("--rate", type=float, default=0.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "loomid.db"
        async with (
            open_log(path, max_db_bytes=asked.limit * MIB) as log,
            asyncio.TaskGroup() as group,
        ):
            tending = group.create_task(log.tend())
            begun = time.monotonic()
            figures = await flood(log, path, asked.mib * MIB, asked.event, asked.rate)
            took = time.monotonic() - begun
            tending.cancel()
    print(
        f"{asked.mib} MiB in {len(figures.commits)} commits, {took:.1f} s,"
        f" {asked.mib / took:.1f} MiB/s; files at most {figures.largest / MIB:.1f} MiB"
    )
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    print("commit, ms:", *(f"{name} {figures.of(share):.2f}" for name, share in shares.items()))


if __name__ == "__main__":
    asyncio.run(main())
