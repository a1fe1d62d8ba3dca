"""How a turn ended, from what Hermes says or leaves unsaid (docs/hermes.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loomid.lmp.preview import ERROR_CHARS, cut

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.attempts import Attempt


@dataclass(frozen=True, slots=True)
class Ending:
    """The one end of a run."""

    status: Literal["completed", "cancelled", "failed"]
    error: str | None = None
    finished: bool = False
    """The model finished by itself."""


CANCELLED = Ending("cancelled")


def failed(failure: wire.ApiFailed | None, reason: str = "") -> Ending:
    """A failed turn, with the provider's own words (raw, so cut short)."""
    error = reason if failure is None else failure.error or failure.reason
    return Ending("failed", error=cut(error or "unknown", ERROR_CHARS).text)


def of_turn(
    fact: wire.TurnEnded, failure: wire.ApiFailed | None, api_end: wire.ApiEnded | None
) -> Ending:
    """What turn.ended says. `completed` may accompany `interrupted`: that one counts."""
    if fact.interrupted:
        return CANCELLED
    if fact.failed:
        return failed(failure, fact.reason)
    if not fact.completed:
        return Ending("completed", error=cut(fact.reason, ERROR_CHARS).text or None)
    return Ending("completed", finished=api_end is None or api_end.finish_reason != "length")


def concluded(failure: wire.ApiFailed | None, *, answered: bool, last: Attempt | None) -> Ending:
    """A turn that is over although Hermes did not say so."""
    if failure is not None:
        return failed(failure)
    if answered or (last is not None and last.ok and not last.used_tools):
        return Ending("completed", finished=True)
    return Ending("failed", error="ended_without_result")
