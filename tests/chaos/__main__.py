"""python -m tests.chaos --seed N --minutes M [--kills N] [--host-kills K]

Runs loomid, a host and phones, lets random faults happen to them, and checks what each phone
sees and how each request is answered. A summary in JSON goes to stdout. Exit status 1 when a
promise was broken: the plan and the trace (what happened when) are then named on stderr.

The plan is made from the seed. `--replay FILE` carries out a plan again; `--shrink FILE` leaves
out steps of it for as long as the same promise is broken. The plan is the same each time, but
not how the kernel schedules the processes: a failure may need several attempts.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.plan import Plan, generate
from tests.chaos.run import Run
from tests.chaos.shrink import shrink, until
from tests.chaos.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTEMPTS = 3
"""How often a plan is tried before it counts as one that breaks nothing."""


def attempt(
    plan: Plan, folder: Path, *, rests: bool = True
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Carry out a plan in a folder of its own: its summary, and what was violated.

    Unless it `rests` at the end, only what is wrong meanwhile is found.
    """
    folder.mkdir(parents=True)
    plan.save(folder / "plan.jsonl")
    trace = Trace(folder / "trace.jsonl")
    run = Run(plan, folder, trace, rests=rests)
    try:
        asyncio.run(run.go())
        return run.summary(), trace.violations
    finally:
        trace.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kills", type=int, help="SIGKILLs of loomid [8 a minute]")
    parser.add_argument("--host-kills", type=int, help="SIGKILLs of the host [2 a minute]")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="a plan to carry out again")
    parser.add_argument("--shrink", type=Path, metavar="FILE", help="a plan to make smaller")
    parser.add_argument(
        "--hermes", default="", metavar="RELEASE", help="a real gateway: 19, 20, 22"
    )
    parser.add_argument("--folder", type=Path, help="where files are kept [a temporary one]")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="chaos-"))
    status = _main(options, folder)
    if not status and not options.folder:
        shutil.rmtree(folder)
    return status


def _main(options: argparse.Namespace, folder: Path) -> int:
    if options.shrink:
        return _shrink(Plan.load(options.shrink), folder)
    if options.replay:
        plan = Plan.load(options.replay)
    else:
        kills = round(8 * options.minutes) if options.kills is None else options.kills
        fewer = round(2 * options.minutes) if options.host_kills is None else options.host_kills
        plan = generate(options.seed, options.minutes * 60.0, kills, fewer, options.hermes)
    summary, violations = attempt(plan, folder / "run")
    print(json.dumps(summary, indent=1))
    _say(plan, violations, folder / "run")
    return 1 if violations else 0


def _say(plan: Plan, violations: list[dict[str, object]], folder: Path) -> None:
    for violation in violations[:10]:
        print(json.dumps(violation, default=str), file=sys.stderr)
    if violations:
        print(f"seed {plan.seed}: plan.jsonl and trace.jsonl are in {folder}", file=sys.stderr)


def _shrink(plan: Plan, folder: Path) -> int:
    """Find the promise that a plan breaks, and the least of the plan that still breaks it."""
    numbers = itertools.count()

    def broken(candidate: Plan, *, rests: bool) -> tuple[object, float] | None:
        where = folder / f"attempt-{next(numbers)}"
        summary, found = attempt(candidate, where, rests=rests)
        return (found[0]["violated"], float(str(summary["seconds"]))) if found else None

    tried = (broken(plan, rests=True) for _ in range(ATTEMPTS))
    kind, seconds = next((found for found in tried if found is not None), (None, 0.0))
    if kind is None:
        print(f"nothing was broken in {ATTEMPTS} attempts", file=sys.stderr)
        return 0
    plan, late = until(plan, seconds), seconds > plan.seconds

    def fails(candidate: Plan) -> bool:
        tried = (broken(candidate, rests=late) for _ in range(ATTEMPTS))
        found = any(one is not None and one[0] == kind for one in tried)
        print(f"{len(candidate.steps)} steps: {kind if found else 'no'}", file=sys.stderr)
        if found:
            candidate.save(folder / "shrunk.jsonl")
        return found

    plan.save(folder / "shrunk.jsonl")
    least = shrink(plan, fails)
    print(f"{kind}: {len(least.steps)} steps in {folder / 'shrunk.jsonl'}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
