"""Counts of durations in buckets: plain numbers, read when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class Histogram:
    """How often something took how long."""

    def __init__(self) -> None:
        self.sum = 0.0
        """Seconds, of all together."""
        self._counts = [0] * (len(BOUNDS_S) + 1)  # the last: longer than all bounds

    def observe(self, seconds: float) -> None:
        """It took so long. A clock that was set back meanwhile makes it 0."""
        seconds = max(seconds, 0.0)
        self._counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Each bound, and how many took no longer; the last bound is infinite."""
        return list(zip((*BOUNDS_S, float("inf")), accumulate(self._counts), strict=True))

    def within(self, share: float) -> float | None:
        """The lowest bound that this share of them kept to; None: there were none."""
        wanted = share * self.count
        return next((bound for bound, n in self.buckets() if n and n >= wanted), None)
