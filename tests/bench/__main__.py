"""How fast loomid is, beside others: `python -m tests.bench`.

Fan-out at 1, 10, 100 and 1,000 phones, a reconnect storm, and what loomid costs. The servers
take turns round by round; what is told is the median of the rounds (of a start: the best).
Servers that are not installed are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import fanout, hook_cost, idle, messages, minute, report, storm, swarm
from tests.bench.rounds import Figures, progress, take_turns
from tests.bench.subjects import SUBJECTS, Subject


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    subjects: tuple[Subject, ...]
    phones: tuple[int, ...]
    rounds: int
    quick: bool

    def pick(self, full: Any, quick: Any) -> Any:
        """One of two values."""
        return quick if self.quick else full


def _fanout(options: Options) -> Figures:
    seconds = options.pick(1.5, 0.2)
    return {
        str(count): take_turns(
            options.subjects,
            options.rounds,
            lambda subject, count=count: fanout.cell(subject, count, seconds),
            f"{count} phones",
        )
        for count in options.phones
    }


def _storm(options: Options) -> Figures:
    phones = options.pick(1000, 50)
    return take_turns(options.subjects, options.rounds, lambda s: storm.storm(s, phones), "storm")


def _memory(options: Options) -> Figures:
    phones = options.pick(1000, 50)
    return take_turns(options.subjects, 1, lambda s: idle.memory(s, phones), "memory")


def _hook_cost(options: Options) -> Figures:
    samples = options.pick(10_000, 500)
    return {state: hook_cost.run(state, samples) for state in hook_cost.STATES}


SECTIONS = {
    "fanout": _fanout,
    "storm": _storm,
    "hook_to_phone": lambda options: minute.minute(options.pick(60.0, 2.0)),
    "hook_cost": _hook_cost,
    "idle": lambda options: idle.idle(options.pick(10.0, 1.0)),
    "start": lambda options: idle.start(options.pick(1_000_000, 10_000), options.pick(9, 1)),
    "memory": _memory,
}


def about(options: Options) -> Figures:
    """Where it runs, and what is measured."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "message_bytes": messages.SIZE,
        "rounds": options.rounds,
        "versions": {subject.name: subject.version() for subject in options.subjects},
    }


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas")
    parser.add_argument("--phones", default="1,10,100,1000", help="numbers, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", default="", help="parts of names, with commas")
    parser.add_argument("--quick", action="store_true", help="a look whether all works")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--svg", type=Path, help="also plot the fan-out")
    asked = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # for a thousand connections
    if reason := swarm.missing():
        sys.exit(f"the load client cannot be built: {reason}")
    wanted = [s for s in SUBJECTS if any(part in s.name for part in asked.servers.split(","))]
    missing = {s.name: reason for s in wanted if (reason := s.missing())}
    options = Options(
        subjects=tuple(s for s in wanted if s.name not in missing),
        phones=tuple(map(int, asked.phones.split(","))),
        rounds=1 if asked.quick else asked.rounds,
        quick=asked.quick,
    )
    result: Figures = {"about": about(options), "left_out": missing}
    for section in asked.only.split(","):
        progress(section)
        result[section] = SECTIONS[section](options)
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(report.tables(result)))
    if asked.svg:
        report.plot(result, asked.svg)


if __name__ == "__main__":
    main()
