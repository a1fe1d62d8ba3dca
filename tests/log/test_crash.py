"""kill -9 of a writing process at random moments: nothing shown is lost or renumbered."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from loomid.store import Store
from tests.support.log import open_log, text_of

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 20


def run_and_kill(path: Path, label: str, after: float) -> list[list[str]]:
    """What the process reported before it was killed, line by line."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.log.writer", str(path), label],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        deadline = time.monotonic() + after
        while time.monotonic() < deadline and (line := process.stdout.readline()):
            lines.append(line)
        process.kill()
        lines += process.stdout.readlines()
        assert process.wait() == -9
    return [line.split() for line in lines if line.endswith("\n")]


async def test_kill_minus_nine(tmp_path: Path):
    path = tmp_path / "loomid.db"
    dice = random.Random(7)
    reported: dict[int, str] = {}
    highest = 0
    for kill in range(KILLS):
        lines = run_and_kill(path, str(kill), dice.uniform(0.0, 0.25))
        positions = [int(line[1]) for line in lines]
        assert positions[0] > highest
        assert positions == sorted(set(positions))
        highest = positions[-1]
        reported |= {int(line[1]): line[2] for line in lines if line[0] == "event"}
        async with await Store.open(path, time.time) as store:
            stored = {row[0]: row[-1].decode() for row in (await store.newest(10**6, 10**9))[0]}
            acked = (await store.acks()).get(("gw", "boot"), 0)
            kept = [arrival.n for arrival, _ in await store.facts()]
        for position, text in reported.items():
            assert f'"{text}"' in stored[position]
        assert acked >= max((int(line[2]) for line in lines if line[0] == "control"), default=0)
        assert kept == list(range(max(acked // 10 * 10 - 10, 1), acked + 1))
    async with open_log(path) as log:
        assert log.visible > highest
        assert log.resumable(highest)
        last = list(log.read(highest, 9999))
        assert len({text_of(entry) for entry in last}) == len(last)
    assert len(reported) > 200
