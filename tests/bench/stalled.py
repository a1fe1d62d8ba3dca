"""What a healthy phone notices of others: `python -m tests.bench.stalled [--rounds N]`.

A real loomid, and in each round, one after the other: the healthy phone alone; with --phones
that have stopped reading; alone again, asking; with one that asks 10,000 times a second. Prints
the medians of the rounds, in milliseconds: from the hook to the phone, and from a request to
its answer; and by how much loomid's memory grew. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.daemon import ROOT, Daemon
from tests.support.phone import Connection, Phone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

RATE = 200.0
PAD = 500
"""Characters a delta; of one iteration loomid keeps a million (docs/protocol.md)."""
EVERY_S = 1 / 40
PHASES = ("alone", "stalled", "asks alone", "asks beside a flood")


class Bench:
    """One daemon, the healthy phone, and those beside it."""

    def __init__(self, daemon: Daemon, seconds: float, phones: int) -> None:
        self.daemon = daemon
        self.seconds = seconds
        self.phones = phones

    async def paired(self) -> Phone:
        phone = Phone(self.daemon.url)
        token = (await asyncio.to_thread(self.daemon.pair))["qr"]["token"]
        async with phone.connect(token):
            pass
        return phone

    async def events(self, healthy: Connection) -> list[float]:
        """Milliseconds from the hook to the phone, of the newest delta of each frame."""
        took: list[float] = []
        take = healthy._take

        async def timed(text: str) -> None:
            now = time.time()
            await take(text)
            got = healthy.got[-1]
            if got.type == "run.delta":
                took.append((now - float(got.payload["text"].split()[-1])) * 1000)

        healthy._take = timed  # type: ignore[method-assign]
        command = [sys.executable, "-m", "tests.bench.hook_to_phone", "--host"]
        command += [str(self.daemon.runtime_dir / "hermes.sock"), "--rate", str(RATE)]
        process = await asyncio.create_subprocess_exec(
            *(*command, "--seconds", str(self.seconds), "--pad", str(PAD)),
            stdout=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
        )
        await process.wait()
        healthy._take = take  # type: ignore[method-assign]
        return took

    async def requests(self, healthy: Connection) -> list[float]:
        """Milliseconds from a request to its answer."""
        took: list[float] = []
        for _ in range(int(self.seconds / EVERY_S)):
            begun = time.monotonic()
            await healthy.request("task.list", request_id=f"{begun}")
            took.append((time.monotonic() - begun) * 1000)
            await asyncio.sleep(EVERY_S)
        return took

    async def beside_stalled(self, healthy: Connection) -> list[float]:
        """Events while others do not read; they are gone before loomid lets go of them."""
        async with AsyncExitStack() as stack:
            for _ in range(self.phones):
                stuck = await stack.enter_async_context((await self.paired()).connect())
                transport: Any = stuck.ws._writer.transport
                transport.pause_reading()
                stack.callback(transport.abort)
            return await self.events(healthy)

    async def beside_flood(self, healthy: Connection) -> list[float]:
        """Requests while another phone makes far too many."""
        greedy = await self.paired()
        command = [sys.executable, "-m", "tests.support.chatter"]
        command += ["--port", str(self.daemon.port), "--device", str(greedy.device_id)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{greedy.credential}\n".encode())
        await process.stdout.readline()
        took = await self.requests(healthy)
        process.stdin.close()
        await process.wait()
        return took

    async def rounds(self, count: int) -> dict[str, dict[str, list[float]]]:
        """p50, p99 and growth in MiB by phase, one of each a round."""
        found: dict[str, dict[str, list[float]]] = {
            phase: {"p50": [], "p99": [], "MiB": []} for phase in PHASES
        }
        work: list[Callable[[Connection], Awaitable[list[float]]]] = [
            *(self.events, self.beside_stalled, self.requests, self.beside_flood)
        ]
        async with (await self.paired()).connect() as healthy:
            for _ in range(count):
                for phase, measure in zip(PHASES, work, strict=True):
                    before = self.daemon.rss_mib()
                    cuts = statistics.quantiles(await measure(healthy), n=100)
                    found[phase]["p50"].append(cuts[49])
                    found[phase]["p99"].append(cuts[98])
                    found[phase]["MiB"].append(self.daemon.rss_mib() - before)
                    healthy.got.clear()
                    healthy.phone.got.clear()
        return found


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stalled")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each phase; less than 30")
    parser.add_argument("--phones", type=int, default=50, help="that stop reading")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lo-") as folder, Daemon(Path(folder)) as daemon:
        bench = Bench(daemon, options.seconds, options.phones)
        found = asyncio.run(bench.rounds(options.rounds))
    medians: dict[str, Any] = {
        phase: {name: statistics.median(values) for name, values in row.items()}
        for phase, row in found.items()
    }
    print(f"{'ms':22}{'p50':>9}{'p99':>9}{'MiB':>9}")
    for phase, row in medians.items():
        print(f"{phase:22}" + "".join(f"{value:9.2f}" for value in row.values()))
    for alone, beside in (PHASES[:2], PHASES[2:]):
        ratio = medians[beside]["p99"] / medians[alone]["p99"]
        medians[beside]["p99 ratio"] = ratio
        print(f"p99 {beside}: {ratio:.2f} times {alone}")
    if options.json:
        options.json.write_text(json.dumps({"medians": medians, "rounds": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
