"""The ledger of approvals (LMP §5): what may become of one, and who may still answer it.

pending → shown → claimed → applied, expired, cancelled or lost. A claim says "this answer
won, its command is on its way". It is given back only when that command provably did not
run, so at most one command per approval ever runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from loomid.errors import AlreadyResolved, BadChoice, LoomiError, NotPermitted, UnknownApproval
from loomid.lmp import requests
from loomid.lmp.preview import cut
from loomid.wire import CHOICES

if TYPE_CHECKING:
    from loomid.lmp.frames import ApprovalRequired, ApprovalResolved
    from loomid.lmp.runs import ApprovalView

OWNER = "loomictl"
"""Stands for a device where the owner answers at the machine's terminal."""

State = Literal["pending", "shown", "claimed", "applied", "expired", "cancelled", "lost"]
ENDS: frozenset[State] = frozenset({"applied", "expired", "cancelled", "lost"})
MOVES: dict[State, frozenset[State]] = {
    "pending": ENDS | {"shown", "claimed"},
    "shown": ENDS | {"claimed"},
    "claimed": ENDS | {"pending", "shown"},
    "applied": frozenset(),
    "expired": frozenset(),
    "cancelled": frozenset(),
    "lost": frozenset(),
}
"""What each state may become. From `claimed` back: its command did not run."""


class IllegalMove(LoomiError):
    """A bug: an approval cannot become that."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The first valid answer to an approval; on disk before its command leaves."""

    approval_id: str
    device_id: str
    request_id: str
    choice: str
    command_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One approval in the ledger; each change gives a new one. Raises IllegalMove.

    `answer` is what the claim chose, `choice` what was decided in the end.
    """

    approval_id: str
    task_id: str | None
    run_id: str | None
    command: str
    """A preview."""
    asked_at: float
    deadline_ts: float | None
    state: State = "pending"
    shown_to: str | None = None
    """The first device that had it."""
    shown_at: float | None = None
    device_id: str | None = None
    request_id: str | None = None
    answer: str | None = None
    command_id: str | None = None
    claimed_at: float | None = None
    choice: str | None = None
    decided_by: str | None = None
    ended_at: float | None = None

    @classmethod
    def opened(cls, asked: ApprovalRequired, at: float) -> Entry:
        """As it enters the ledger, with the event that asks."""
        preview = cut(asked.command).text
        return cls(asked.approval_id, asked.task_id, asked.run_id, preview, at, asked.deadline_ts)

    @property
    def over(self) -> bool:
        """Whether it has its one end."""
        return self.state in ENDS

    @property
    def waits(self) -> bool:
        """Whether an answer can still win."""
        return "claimed" in MOVES[self.state]

    def _moved(self, to: State, **fields: Any) -> Entry:  # noqa: ANN401 - fields of ours
        if to not in MOVES[self.state]:
            raise IllegalMove(f"an approval that is {self.state} cannot become {to}")
        return replace(self, state=to, **fields)

    def shown(self, device_id: str, at: float) -> Entry:
        """A device has it."""
        return self._moved("shown", shown_to=device_id, shown_at=at)

    def claimed(self, claim: Claim) -> Entry:
        """An answer won. Whoever gave it had seen the question."""
        return self._moved(
            "claimed",
            shown_to=self.shown_to or claim.device_id,
            shown_at=self.shown_at or claim.at,
            device_id=claim.device_id,
            request_id=claim.request_id,
            answer=claim.choice,
            command_id=claim.command_id,
            claimed_at=claim.at,
        )

    def given_back(self) -> Entry:
        """The command of the claim did not run: it waits again, for everybody."""
        return self._moved(
            "pending" if self.shown_to is None else "shown",
            device_id=None,
            request_id=None,
            answer=None,
            command_id=None,
            claimed_at=None,
        )

    def ended(self, how: ApprovalResolved, at: float) -> Entry:
        """What Hermes reported, or that it was lost with its process."""
        outcome = "applied" if how.outcome is UNSET else how.outcome
        return self._moved(outcome, choice=how.choice, decided_by=how.decided_by, ended_at=at)

    @property
    def claim(self) -> Claim | None:
        """The answer that stands or stood."""
        if (
            self.device_id is None
            or self.request_id is None
            or self.answer is None
            or self.command_id is None
            or self.claimed_at is None
        ):
            return None
        return Claim(
            self.approval_id,
            self.device_id,
            self.request_id,
            self.answer,
            self.command_id,
            self.claimed_at,
        )

    @property
    def by(self) -> str | None:
        """Who it is to the owner: the device that answers or answered, else `decided_by`."""
        owners = self.decided_by == "local" and self.device_id == OWNER
        return self.device_id if self.decided_by in (None, "remote") or owners else self.decided_by

    def refusal(self) -> AlreadyResolved:
        """What an answer hears that came too late: all that is known (docs/protocol.md)."""
        if not self.over:
            return AlreadyResolved(state=self.state, choice=self.answer)
        return AlreadyResolved(
            state=self.state,
            choice=self.choice,
            outcome=self.state,
            decided_by=self.decided_by,
        )


def check(entry: Entry | None, view: ApprovalView | None, choice: str) -> ApprovalView:
    """Raise the error that this answer deserves, or return the approval to claim."""
    if entry is None:
        raise UnknownApproval
    if not entry.waits:
        raise entry.refusal()
    if view is None:
        raise UnknownApproval
    if not view.answerable:
        raise NotPermitted(reason="not_answerable")
    offered = [word for word in view.choices if word in CHOICES]
    if choice not in offered:
        raise BadChoice(choices=offered)
    return view


def decider(command_id: str) -> Literal["local", "remote"]:
    """Who gave the answer that this command brought to Hermes."""
    return "local" if OWNER in requests.about(command_id)[2:] else "remote"


def gives_back(code: str) -> bool:
    """Whether a Result with that error returns the approval to the phones.

    `not_pending` proves that nothing ran, but also that nobody can answer any more:
    what Hermes reports about the approval is on its way.
    """
    return code != "not_pending" and not requests.may_have_run(code)
