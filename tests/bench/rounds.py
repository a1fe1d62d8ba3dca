"""What is common to the comparisons: rounds that take turns, medians, ratios."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench.subjects import Subject

Figures = dict[str, Any]


def take_turns(
    subjects: Sequence[Subject], rounds: int, measure: Callable[[Subject], Figures], title: str
) -> dict[str, Figures]:
    """Measure one after the other, `rounds` times; medians by name, or why there are none."""
    taken: dict[str, list[Figures]] = {subject.name: [] for subject in subjects}
    failed: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for subject in subjects:
            if subject.name in failed:
                continue
            progress(f"{title}, round {number} of {rounds}: {subject.name}")
            try:
                taken[subject.name].append(measure(subject))
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                failed[subject.name] = f"{type(error).__name__}: {error}"
                progress(f"{subject.name}: {failed[subject.name]}")
    return {
        name: {"failed": failed[name]} if name in failed else middle(rows)
        for name, rows in taken.items()
    }


def middle(rows: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    return {
        key: middle([row[key] for row in rows])
        if isinstance(value, dict)
        else statistics.median(row[key] for row in rows)
        for key, value in rows[0].items()
    }


def progress(text: str) -> None:
    """Tell whoever waits."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
