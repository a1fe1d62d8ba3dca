"""After a start, what a gateway tells of the time before is folded at the times it happened.

Its shim has kept those facts, in order. Until one comes that is of our own time no time passes
for its runs but by these facts: that loomid was away must not count as Hermes' silence. The
inventory that each hello asks for is such a fact, if no other is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.lmp.facts import GatewayLost, Tick, Unheard

if TYPE_CHECKING:
    from loomid.lmp.facts import Arrival


@dataclass(slots=True)
class _Behind:
    at: float
    """Up to here its runs know what happened."""
    boots: set[str]
    """Processes that may have more to tell."""


class CatchUp:
    """The gateways that were doing something when a loomid before us ended."""

    def __init__(self) -> None:
        self._behind: dict[str, _Behind] = {}
        self.since = 0.0
        """When our own time began."""

    def __contains__(self, gateway_id: str) -> bool:
        return gateway_id in self._behind

    def stored(self, arrival: Arrival) -> None:
        """What is alive rests on this. What we noted of the link says nothing of Hermes' time."""
        if arrival.n:
            new = _Behind(arrival.at, set())
            self._behind.setdefault(arrival.gateway_id, new).boots.add(arrival.boot)
        elif type(arrival.fact) not in (Tick, Unheard) or arrival.gateway_id not in self:
            return
        behind = self._behind[arrival.gateway_id]
        behind.at = max(behind.at, arrival.at)

    def at(self, arrival: Arrival) -> float | None:
        """When it happened, if it may be of the time before; None: it is new."""
        behind = self._behind.get(arrival.gateway_id)
        if behind is None:
            return None
        if type(arrival.fact) is GatewayLost or (arrival.n and arrival.t >= self.since):
            behind.boots.discard(arrival.boot)  # it is gone, or has told all of the time before
            if not behind.boots:
                self.end(arrival.gateway_id)
                return None
        if not arrival.n:
            return None
        behind.at = max(behind.at, min(arrival.t, arrival.at))
        return behind.at

    def end(self, gateway_id: str) -> None:
        """It has told all, or is waited for no longer."""
        self._behind.pop(gateway_id, None)
