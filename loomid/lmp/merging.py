"""Adjacent deltas of a live run become one stored fact, so that a long run restarts fast.

What deltas leave behind is their joined text, and when the next frame may go out: this holds
from one moment at which nothing was held back to another, as long as nothing but deltas of
the same attempt (and the ticks that sent what was held) touched the turn meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.lmp.facts import Arrival, Deltas

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.attempts import Attempt
    from loomid.lmp.coalesce import Coalescer, Kind

MERGE_AT = 256


def kind_of(fact: wire.Delta | Deltas) -> Kind:
    """What a delta is part of."""
    return "reasoning" if fact.channel == "reasoning" else "text"


def _flows(attempt: Attempt, call: int) -> bool:
    """Whether deltas of that call are this attempt's, and are shown as they come."""
    return (
        attempt.call == call
        and attempt.iteration is not None
        and not attempt.waiting
        and attempt.over_at is None
        and not attempt.settled
    )


@dataclass(frozen=True, slots=True)
class Merge:
    """The stored facts of `tag` and of the arrival's boot with numbers from `first` to the
    arrival's become this arrival, at the place of the first."""

    tag: str
    first: int
    arrival: Arrival


class Segment:
    """The deltas since the last quiet moment from which they could be merged."""

    def __init__(self) -> None:
        self._ticks: list[str] = []
        self._of: tuple[Attempt, Kind, str] | None = None
        self._first = 0
        self._texts: list[str] = []

    def end(self) -> None:
        """Something else touched the turn."""
        self._of = None
        self._first = 0
        self._texts.clear()
        self._ticks.clear()

    def tick(self, tag: str) -> None:
        """A tick, stored under that tag, sent what was held."""
        if self._of is not None:
            self._ticks.append(tag)

    def take_ticks(self) -> list[str]:
        """Tags of the ticks that a merge makes superfluous."""
        ticks, self._ticks = self._ticks, []
        return ticks

    def add(self, arrival: Arrival, attempt: Attempt | None, outgoing: Coalescer) -> Merge | None:
        """A delta came and was taken in; `attempt` is the turn's last."""
        fact: wire.Delta = arrival.fact
        if attempt is None or not _flows(attempt, fact.iteration):
            self.end()
            return None
        kind = kind_of(fact)
        of, next_at = (attempt, kind, arrival.boot), outgoing.next_at(kind)
        if self._of == of:
            self._first = self._first or arrival.n
            self._texts.append(fact.text)
        elif self._of is not None:
            self.end()
        if next_at is None:
            return None
        if self._of is None:
            self._of = of
        elif len(self._texts) >= MERGE_AT:
            text = "".join(self._texts)
            whole = Deltas(fact.turn_id, fact.iteration, fact.channel, text, next_at)
            first, self._first = self._first, 0
            self._texts.clear()
            a = arrival
            merged = Arrival(a.gateway_id, a.boot, a.n, a.t, a.at, whole)
            return Merge(fact.turn_id, first, merged)
        return None
