"""How fast loomid is, beside others: `python -m tests.bench [--only fanout,storm]`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.bench import fanout, storm
from tests.bench.rounds import take_turns
from tests.bench.subjects import SUBJECTS


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", default="fanout,storm")
    parser.add_argument("--phones", default="1,10,100,1000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    seconds = 0.3 if options.quick else 1.5
    result: dict[str, Any] = {}
    for section in options.only.split(","):
        if section == "fanout":
            for phones in map(int, options.phones.split(",")):
                result[f"fanout {phones}"] = take_turns(
                    SUBJECTS,
                    rounds,
                    lambda subject, n=phones: fanout.cell(subject, n, seconds),  # type: ignore[misc]
                    f"{phones} phones",
                )
        if section == "storm":
            count = 50 if options.quick else 1000
            result["storm"] = take_turns(
                SUBJECTS, rounds, lambda subject: storm.storm(subject, count), "storm"
            )
    for name, figures in result.items():
        for subject, row in figures.items():
            print(name, subject)
            for key, value in row.items():
                print("   ", key, value)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
