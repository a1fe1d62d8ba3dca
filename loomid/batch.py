"""What one step of the pump has for the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loomid.lmp.facts import GatewayForgotten

if TYPE_CHECKING:
    from loomid.lmp.facts import Arrival
    from loomid.lmp.folding import FileTold, Outcome, TaskSeen
    from loomid.lmp.frames import Event
    from loomid.lmp.merging import Merge


@dataclass(slots=True)
class Batch:
    """What one step of the pump stores at once.

    `release` takes effect before `facts` are stored; `add` sees to it that no fact of a
    released tag is among them.
    """

    events: list[Event] = field(default_factory=list)
    facts: list[tuple[Arrival, str]] = field(default_factory=list)
    release: list[tuple[str, str]] = field(default_factory=list)
    acks: dict[tuple[str, str], int] = field(default_factory=dict)
    tasks: list[TaskSeen] = field(default_factory=list)
    told: list[FileTold] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    """Take effect after all else."""
    forgotten: list[Arrival] = field(default_factory=list)
    """Gateways of which nothing may be kept; takes effect first."""

    def __bool__(self) -> bool:
        return bool(self.events or self.facts or self.release or self.acks or self.tasks)

    def add(self, arrival: Arrival, outcome: Outcome) -> None:
        """Take in one folded arrival and what became of it."""
        if type(arrival.fact) is GatewayForgotten:
            self._forget(arrival)
        if arrival.n:
            key = (arrival.gateway_id, arrival.boot)
            self.acks[key] = max(arrival.n, self.acks.get(key, 0))
        self.events += outcome.events
        self.tasks += outcome.tasks
        self.told += outcome.told
        if outcome.retain is not None:
            self.facts.append((arrival, outcome.retain))
        if outcome.merge is not None:
            self.merges.append(outcome.merge)
        if outcome.release:
            gone = {(arrival.gateway_id, tag) for tag in outcome.release}
            self.release += gone
            self.facts = [one for one in self.facts if (one[0].gateway_id, one[1]) not in gone]
            self.merges = [m for m in self.merges if (m.arrival.gateway_id, m.tag) not in gone]

    def _forget(self, arrival: Arrival) -> None:
        gone = arrival.gateway_id
        self.forgotten.append(arrival)
        self.facts = [one for one in self.facts if one[0].gateway_id != gone]
        self.release = [one for one in self.release if one[0] != gone]
        self.acks = {key: n for key, n in self.acks.items() if key[0] != gone}
        self.tasks = [one for one in self.tasks if one.gateway_id != gone]
        self.merges = [one for one in self.merges if one.arrival.gateway_id != gone]
