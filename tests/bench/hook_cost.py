"""What a hook pays for the link: `python -m tests.bench.hook_cost [--samples N] [--json FILE]`.

A stand-in host process with one CPU-bound Python thread times each `emit`, with loomid
running, absent and stopped (SIGSTOP). A baseline does the same with an empty function: what
the clock and the scheduler cost by themselves. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_shim.link import Link
from tests.bench.host import Owner
from tests.support.host import compute, delta, identity

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
STATES = ("baseline", "running", "absent", "stopped")
BURST = 5  # deltas come in small bursts


def measure(emit: Callable[[str, dict[str, Any]], None], samples: int) -> list[int]:
    """Nanoseconds of each call, made as hooks are: in bursts, by a thread that waits between."""
    clock = time.perf_counter_ns
    taken = []
    for i in range(samples // BURST):
        bodies = [delta(f"word {i} {j} ") for j in range(BURST)]
        for body in bodies:
            before = clock()
            emit("delta", body)
            taken.append(clock() - before)
        time.sleep(0.001)
    return taken


def host(socket: str, samples: int, warm: bool) -> None:
    """The host process: prints its figures as JSON."""
    link = Link(identity(), [f"ipc://{socket}"], Owner)
    if socket != "none":
        link.start()
    while warm and link.state != "linked":
        time.sleep(0.01)
    sys.stdout.write("linked\n")
    sys.stdout.flush()
    sys.stdin.readline()
    threading.Thread(target=compute, daemon=True).start()
    gc.collect()
    taken = measure(link.emit if socket != "none" else lambda _kind, _body: None, samples)
    sys.stdout.write(json.dumps(figures(taken)) + "\n")


def figures(taken: list[int]) -> dict[str, float]:
    taken = sorted(taken)
    at = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    out = {name: taken[int(len(taken) * part)] / 1000 for name, part in at.items()}
    return out | {"max": taken[-1] / 1000, "samples": len(taken)}


def run(state: str, samples: int) -> dict[str, float]:
    """Measure one state."""
    with tempfile.TemporaryDirectory() as folder:
        socket, store = f"{folder}/hermes.sock", f"{folder}/store"
        loomid = None
        if state in ("running", "stopped"):
            command = [sys.executable, "-m", "tests.support.sink", "--socket", socket]
            loomid = subprocess.Popen(
                [*command, "--store", store], cwd=ROOT, stdout=subprocess.PIPE
            )
            loomid.stdout.readline()  # type: ignore[union-attr]
        command = [sys.executable, "-m", "tests.bench.hook_cost", "--samples", str(samples)]
        command += ["--host", "none" if state == "baseline" else socket]
        process = subprocess.Popen(
            command + ["--warm"] * (loomid is not None),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            process.stdout.readline()
            if state == "stopped":
                loomid.send_signal(signal.SIGSTOP)
            out, _ = process.communicate("go\n")
            return json.loads(out)
        finally:
            process.kill()
            process.wait()
            if loomid is not None:
                loomid.kill()
                loomid.wait()
                loomid.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        host(options.host, options.samples, options.warm)
        return
    results = {state: run(state, options.samples) for state in STATES}
    print(f"{'loomid':10} {'p50 µs':>9} {'p99 µs':>9} {'p99.9 µs':>9} {'max µs':>9}")
    for state, row in results.items():
        print(f"{state:10} " + " ".join(f"{row[k]:9.1f}" for k in ("p50", "p99", "p99.9", "max")))
    print(json.dumps(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
