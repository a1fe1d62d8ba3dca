"""How much one gateway may have alive: beyond that its oldest silent runs must go.

No gateway in ordinary use comes near (docs/protocol.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomid import wire
from loomid.lmp.facts import Deltas, Tick

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loomid.lmp.turns import Turn

MAX_TURNS = 4_096
ENDED_KEPT = 2 * MAX_TURNS
"""Turns that are over, and known as such when more comes of them. Before the last fact of one
comes, all that were alive beside it may end, and as many that took their places."""
MAX_WEIGHT = 32 * 2**20
"""Characters."""
NOTE = 512
"""What a fact that is no delta weighs beside its text."""
SHARE = 16
TOO_MANY = "too_many_runs"
TOO_MUCH = "too_much_text"


_TEXT_ALONE = frozenset({wire.Delta, Deltas, Tick})
_NO_TEXT = frozenset({wire.Sent, wire.Edited})
"""Theirs is the run's once more, and is not kept."""


class Quota:
    """What all turns of a gateway weigh together."""

    def __init__(self) -> None:
        self.weight = 0
        self._of: dict[str, int] = {}

    def note(self, turn: Turn, fact: object) -> None:
        """A fact touched this turn."""
        kind = type(fact)
        size = 0 if kind in _TEXT_ALONE else NOTE
        if kind not in _NO_TEXT:
            size += len(getattr(fact, "text", None) or "")
        self._of[turn.turn_id] = self._of.get(turn.turn_id, 0) + size
        self.weight += size

    def free(self, turn: Turn) -> None:
        """That turn is forgotten."""
        self.weight -= self._of.pop(turn.turn_id, 0)

    def surplus(self, turns: Iterable[Turn], count: int) -> tuple[str, list[Turn]]:
        """Which turns must go, and why: ended ones first, then those that said nothing longest.

        Some at once, as they are sorted.
        """
        if count > MAX_TURNS:
            return TOO_MANY, _oldest(turns)[: MAX_TURNS // SHARE]
        if self.weight <= MAX_WEIGHT:
            return "", []
        going: list[Turn] = []
        left = self.weight
        for turn in _oldest(turns):
            if left <= MAX_WEIGHT * 3 // 4:
                break
            left -= self._of.get(turn.turn_id, 0)
            going.append(turn)
        return TOO_MUCH, going


def _oldest(turns: Iterable[Turn]) -> list[Turn]:
    return sorted(turns, key=lambda turn: (turn.live, turn.last_at))
