"""Who may still answer which approval (LMP §5): claims and their fate.

A claim says "this answer won, its command is on its way". It is given back only when
that command provably did not run, so at most one command per approval ever runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.errors import AlreadyResolved, BadChoice, NotPermitted, UnknownApproval
from loomid.lmp import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loomid.lmp.runs import ApprovalView

WORDS = frozenset({"once", "session", "always", "deny"})
"""Hermes takes any other word for a yes, so no other word may leave us."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The first valid answer to an approval; on disk before its command leaves."""

    approval_id: str
    device_id: str
    request_id: str
    choice: str
    command_id: str
    at: float


class Claims:
    """All standing claims, as on disk. Holds no approval that nobody answered."""

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._claims = {claim.approval_id: claim for claim in claims}

    def check(self, view: ApprovalView | None, approval_id: str, choice: str) -> ApprovalView:
        """Raise the error that this answer deserves, or return the approval to claim."""
        claim = self._claims.get(approval_id)
        if claim is not None:
            raise AlreadyResolved(choice=claim.choice)
        if view is None:
            raise UnknownApproval
        if not view.pending:
            raise AlreadyResolved
        if not view.answerable:
            raise NotPermitted(reason="not_answerable")
        offered = [word for word in view.choices if word in WORDS]
        if choice not in offered:
            raise BadChoice(choices=offered)
        return view

    def add(self, claim: Claim) -> None:
        """A claim was stored."""
        self._claims[claim.approval_id] = claim

    def drop(self, claim: Claim) -> None:
        """A claim was removed from the store."""
        if self._claims.get(claim.approval_id) == claim:
            del self._claims[claim.approval_id]

    def of_request(self, device_id: str, request_id: str) -> Claim | None:
        """The claim that a request made."""
        asked = (device_id, request_id)
        found = (c for c in self._claims.values() if (c.device_id, c.request_id) == asked)
        return next(found, None)

    def all(self) -> list[Claim]:
        """Every standing claim, oldest first."""
        return sorted(self._claims.values(), key=lambda claim: claim.at)

    def outdated(self, before: float, pending: Callable[[str], bool]) -> list[Claim]:
        """Claims from before a time whose approval is over: they tell nobody anything."""
        return [c for c in self.all() if c.at < before and not pending(c.approval_id)]


def gives_back(code: str) -> bool:
    """Whether a Result with that error returns the approval to the phones.

    `not_pending` proves that nothing ran, but also that nobody can answer any more:
    what Hermes reports about the approval is on its way.
    """
    return code != "not_pending" and not requests.may_have_run(code)
