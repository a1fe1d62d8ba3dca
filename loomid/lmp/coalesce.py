"""Few frames for many deltas (docs/protocol.md): one run's deltas on their way out."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal

from loomid.lmp.frames import RunDelta

if TYPE_CHECKING:
    from collections import Counter

GAP_S = 0.040
"""25 frames a second for each kind, and no delta held longer than this."""
SLACK_S = 0.008
"""One frame may come this much before its time; those after it keep to theirs. Deltas that
come every 20 ms, give or take, would else often wait for the timer."""

Kind = Literal["text", "reasoning"]


class Coalescer:
    """Joins adjacent deltas of one run, kind and iteration.

    The first goes out at once. What follows too soon is held, and leaves with the next delta
    that may go, so that the newest text of a frame is new; at the latest at `due`. The owner
    calls `flush` before any other event of the run, so that joining never changes the order.
    """

    def __init__(self, run_id: str, dropped: Counter[str]) -> None:
        self._run_id = run_id
        self._dropped = dropped  # `joined` of it: what went out in the frame of another
        self._next: dict[Kind, float] = {}  # when the rate allows the next frame
        self._held: list[str] = []
        self._kind: Kind = "text"
        self._iteration = 0
        self._part = ""
        self.due: float | None = None

    def add(self, at: float, kind: Kind, iteration: int, part: str, text: str) -> list[RunDelta]:
        """Take a delta of that part; returns the frames that are to go out now."""
        ready: list[RunDelta] = []
        if self._held and (kind, iteration) != (self._kind, self._iteration):
            ready += self.flush(at)
        if not self._held:
            self.due = at + GAP_S
        self._held.append(text)
        self._kind, self._iteration, self._part = kind, iteration, part
        if at >= self._next.get(kind, -inf) - SLACK_S:
            ready += self.flush(at)
        return ready

    def resume(self, kind: Kind, next_at: float) -> None:
        """As after frames up to one that lets the next go at that time; nothing is held."""
        self._held, self.due = [], None
        self._next[kind] = next_at

    def next_at(self, kind: Kind) -> float | None:
        """When the next frame of a kind may go; None: something is held."""
        return None if self._held else self._next.get(kind)

    def flush(self, at: float) -> list[RunDelta]:
        """What is held, as one frame (or none)."""
        if not self._held:
            return []
        self._dropped["joined"] += len(self._held) - 1
        text, self._held, self.due = "".join(self._held), [], None
        self._next[self._kind] = max(at, self._next.get(self._kind, -inf)) + GAP_S
        return [
            RunDelta(
                run_id=self._run_id,
                text=text,
                kind=self._kind,
                iteration=self._iteration,
                part=self._part,
            )
        ]
