"""From a hook to the phone: `python -m tests.bench.hook_to_phone [--rate N] [--seconds S]`.

A stand-in host process emits deltas through the shim's link, each one its own time; a real
loomid assembles, stores and sends them; a real WebSocket client takes the newest delta of
each frame. Beside it, in the same run: a plain pipe through the same two processes, which
tells what the machine itself costs. Prints milliseconds; nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.host import linked
from tests.support.daemon import Daemon
from tests.support.host import delta
from tests.support.phone import Phone

ROOT = Path(__file__).parents[2]


def host(socket: str, rate: float, seconds: float, pad: int) -> None:
    """The host process: deltas at a steady pace, each told on stdout too."""
    turn = f"s:s:{os.getpid()}"
    link = linked(socket, boot=f"boot{os.getpid()}")
    started = {"turn_id": turn, "session_id": "s", "session_key": "agent:main:loomi:dm:b"}
    link.emit("turn.started", started | {"platform": "loomi", "model": "none", "text": "go"})
    due = time.monotonic()
    for _ in range(int(rate * seconds)):
        due += 1 / rate
        time.sleep(max(0.0, due - time.monotonic()))
        now = f"{time.time():.6f} "
        link.emit("delta", delta("x" * pad + " " * bool(pad) + now, turn))
        sys.stdout.write(now + "\n")
        sys.stdout.flush()
    time.sleep(0.5)
    link.stop()


async def measure(daemon: Daemon, rate: float, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each frame, and of each line through the pipe."""
    took: dict[str, list[float]] = {"hook to phone": [], "plain pipe": []}
    phone = Phone(daemon.url)
    async with phone.connect(daemon.pair()["qr"]["token"]) as connection:
        take = connection._take

        async def timed(text: str) -> None:
            now = time.time()
            await take(text)
            got = connection.got[-1]
            if got.type == "run.delta":
                newest = float(got.payload["text"].split()[-1])
                took["hook to phone"].append((now - newest) * 1000)

        connection._take = timed  # type: ignore[method-assign]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.hook_to_phone", "--host"),
            *(str(daemon.runtime_dir / "hermes.sock"), "--rate", str(rate)),
            *("--seconds", str(seconds)),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        async for line in process.stdout:
            took["plain pipe"].append((time.time() - float(line)) * 1000)
        await process.wait()
    return took


def figures(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """What is told of them."""
    figures: dict[str, dict[str, float]] = {}
    for name, values in took.items():
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        figures[name] = {"count": len(values), "p50": cuts[49], "p90": cuts[89], "p99": cuts[98]}
        figures[name]["max"] = max(values)
    return figures


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.hook_to_phone")
    parser.add_argument("--rate", type=float, default=50.0, help="deltas a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--pad", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        host(options.host, options.rate, options.seconds, options.pad)
        return
    with tempfile.TemporaryDirectory(prefix="lo-") as folder, Daemon(Path(folder)) as daemon:
        told = figures(asyncio.run(measure(daemon, options.rate, options.seconds)))
    print(f"{'ms':16}{'count':>8}{'p50':>8}{'p90':>8}{'p99':>8}{'max':>8}")
    for name, row in told.items():
        cuts = "".join(f"{row[cut]:8.2f}" for cut in ("p50", "p90", "p99", "max"))
        print(f"{name:16}{row['count']:8}{cuts}")
    if options.json:
        options.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
