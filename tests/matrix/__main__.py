"""`python -m tests.matrix [--repeat N] [--release 19] [--only NAME] [--load]`.

Plays every scenario on every release, N times, and prints a row a scenario: passed of
played. `--load` keeps all processor cores busy meanwhile. Exit status 1 when any failed.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.matrix.scenarios import SCENARIOS
from tests.matrix.world import World
from tests.support.hermes import RELEASES, Release, Unavailable
from tests.support.model import Model


def burn() -> None:
    """Keep one core busy."""
    while True:
        sum(range(10_000))


async def play(world: World, name: str) -> None:
    """One scenario with a phone of its own."""
    async with world.player("snapshot") as player:
        await SCENARIOS[name](player)


class Tally:
    """What was played, what passed and what went wrong."""

    def __init__(self, names: list[str], repeat: int) -> None:
        self.names, self.repeat = names, repeat
        self.passed: Counter[tuple[str, str]] = Counter()
        self.releases: list[str] = []
        self.failures: list[str] = []

    def fail(self, what: str) -> None:
        """Note a failure and show it at once."""
        self.failures.append(what)
        print(what, flush=True)

    def play(self, release: Release, world: World) -> None:
        """All scenarios on a running world, again and again."""
        self.releases.append(release.name)
        for turn in range(self.repeat):
            for name in self.names:
                try:
                    asyncio.run(play(world, name))
                    self.passed[name, release.name] += 1
                except Exception:  # noqa: BLE001 - a row that failed, whatever the reason
                    self.fail(f"{release.name} {name} #{turn + 1}\n{traceback.format_exc()}")

    def show(self) -> None:
        """The table."""
        print(f"{'scenario':32}" + "".join(f"{release:>10}" for release in self.releases))
        for name in self.names:
            cells = [f"{self.passed[name, r]}/{self.repeat}" for r in self.releases]
            print(f"{name:32}" + "".join(f"{cell:>10}" for cell in cells))


def main() -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--release", choices=[r.name for r in RELEASES], action="append")
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append")
    parser.add_argument("--load", action="store_true", help="keep all cores busy meanwhile")
    options = parser.parse_args()
    cores = multiprocessing.cpu_count() if options.load else 0
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(cores)]
    for burner in burners:
        burner.start()
    tally = Tally(options.only or list(SCENARIOS), options.repeat)
    began = time.monotonic()
    with Model() as model:
        for release in RELEASES:
            if options.release and release.name not in options.release:
                continue
            try:
                release.python()
            except Unavailable as why:
                tally.fail(f"{release.name}: left out: {why}")
                continue
            with (
                tempfile.TemporaryDirectory(prefix="lo-") as folder,
                World(release, Path(folder), model) as world,
            ):
                tally.play(release, world)
    for burner in burners:
        burner.kill()
    tally.show()
    print(f"{len(tally.failures)} failures in {time.monotonic() - began:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
