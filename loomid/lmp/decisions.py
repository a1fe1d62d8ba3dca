"""The ledger of what Hermes asks (LMP §5): what may become of an approval or a question.

pending → shown → claimed → applied, expired, cancelled or lost; of a question: answered,
timeout, cancelled or lost. A claim says "this answer won, its command is on its way". It is
given back only when that command provably did not run, so at most one command ever runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from loomid.errors import AlreadyResolved, LoomiError, UnknownApproval, UnknownQuestion
from loomid.lmp import requests
from loomid.lmp.frames import (
    ApprovalRequired,
    ApprovalResolved,
    QuestionRequired,
    QuestionResolved,
)
from loomid.lmp.preview import cut

if TYPE_CHECKING:
    from loomid.errors import PhoneError
    from loomid.lmp.asks import AskView

OWNER = "loomictl"
"""Stands for a device where the owner answers at the machine's terminal."""

Kind = Literal["approval", "question"]
State = Literal[
    "pending",
    "shown",
    "claimed",
    "applied",
    "expired",
    "answered",
    "timeout",
    "cancelled",
    "lost",
]
_BOTH: frozenset[State] = frozenset({"cancelled", "lost"})
ENDS: dict[Kind, frozenset[State]] = {
    "approval": _BOTH | {"applied", "expired"},
    "question": _BOTH | {"answered", "timeout"},
}
MOVES: dict[State, frozenset[State]] = {
    "pending": frozenset({"shown", "claimed"}),
    "shown": frozenset({"claimed"}),
    "claimed": frozenset({"pending", "shown"}),
}
"""What each state may become beside an end. From `claimed` back: its command did not run."""

Required = ApprovalRequired | QuestionRequired
Resolved = ApprovalResolved | QuestionResolved


class IllegalMove(LoomiError):
    """A bug: this cannot become that."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The first valid answer; on disk before its command leaves."""

    id: str
    device_id: str
    request_id: str
    answer: str
    """An approval's choice; of a question the answers as JSON, null where it is cancelled."""
    command_id: str
    at: float
    kind: Kind = "approval"

    @property
    def cancels(self) -> bool:
        """Whether it says that there is no answer to a question."""
        return self.kind == "question" and self.answer == "null"

    @property
    def word(self) -> str:
        """It in a word, for the log: never what somebody wrote."""
        if self.kind == "approval":
            return self.answer
        return "cancelled" if self.cancels else "answered"


@dataclass(frozen=True, slots=True)
class Entry:
    """One approval or question in the ledger; each change gives a new one. Raises IllegalMove.

    `answer` is what the claim says, `choice` what was decided in the end (approvals alone).
    """

    id: str
    task_id: str | None
    run_id: str | None
    preview: str
    """Of the command, or of the first question."""
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
    kind: Kind = "approval"

    @classmethod
    def opened(cls, asked: Required, at: float) -> Entry:
        """As it enters the ledger, with the event that asks."""
        where = name(asked), asked.task_id, asked.run_id
        if isinstance(asked, ApprovalRequired):
            return cls(*where, cut(asked.command).text, at, asked.deadline_ts)
        first = asked.questions[0].question if asked.questions else ""
        deadline = None if asked.deadline_ts is UNSET else asked.deadline_ts
        return cls(*where, cut(first).text, at, deadline, kind="question")

    @property
    def over(self) -> bool:
        """Whether it has its one end."""
        return self.state not in MOVES

    @property
    def waits(self) -> bool:
        """Whether an answer can still win."""
        return "claimed" in MOVES.get(self.state, ())

    def _moved(self, to: State, **fields: Any) -> Entry:  # noqa: ANN401 - fields of ours
        can = frozenset() if self.over else MOVES[self.state] | ENDS[self.kind]
        if to not in can:
            raise IllegalMove(f"a {self.kind} that is {self.state} cannot become {to}")
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
            answer=claim.answer,
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

    def ended(self, how: Resolved, at: float) -> Entry:
        """What Hermes reported, or that it was lost with its process."""
        end = {"decided_by": how.decided_by, "ended_at": at}
        if isinstance(how, QuestionResolved):
            return self._moved(how.outcome, **end)
        outcome = "applied" if how.outcome is UNSET else how.outcome
        return self._moved(outcome, choice=how.choice, **end)

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
            self.id,
            self.device_id,
            self.request_id,
            self.answer,
            self.command_id,
            self.claimed_at,
            self.kind,
        )

    @property
    def by(self) -> str | None:
        """Who it is to the owner: the device that answers or answered, else `decided_by`."""
        owners = self.decided_by == "local" and self.device_id == OWNER
        return self.device_id if self.decided_by in (None, "remote") or owners else self.decided_by

    def refusal(self) -> AlreadyResolved:
        """What an answer hears that came too late: all that is known (docs/protocol.md)."""
        asked = self.kind == "question"
        # Of one that is over, what was claimed counts unless another's answer came first.
        counts = self.state in ("claimed", "answered") and self.by == self.device_id
        error = AlreadyResolved(
            state=self.state,
            choice=None if asked else self.choice if self.over else self.answer,
            answers=msgspec.json.decode(self.answer or "null") if asked and counts else None,
            outcome=self.state if self.over else None,
            decided_by=self.decided_by,
        )
        error.params = {name: value for name, value in error.params.items() if value is not None}
        return error


def name(told: Required | Resolved) -> str:
    """The id of what an event asks or ends."""
    match told:
        case ApprovalRequired() | ApprovalResolved():
            return told.approval_id
        case _:
            return told.question_id


def check(entry: Entry | None, view: AskView | None, kind: Kind) -> AskView:
    """What an answer may be given to; raises the error that it deserves if it is too late."""
    if entry is None or entry.kind != kind:
        raise unknown(kind)
    if not entry.waits:
        raise entry.refusal()
    if view is None:
        raise unknown(kind)
    return view


def unknown(kind: Kind) -> PhoneError:
    """What an answer hears to something that never was."""
    return UnknownApproval() if kind == "approval" else UnknownQuestion()


def decider(command_id: str) -> Literal["local", "remote"]:
    """Who gave the answer that this command brought to Hermes."""
    return "local" if OWNER in requests.about(command_id)[2:] else "remote"


def gives_back(code: str) -> bool:
    """Whether a Result with that error lets everybody answer again.

    `not_pending` proves that nothing ran, but also that nobody can answer any more: what
    Hermes reports is on its way.
    """
    return code != "not_pending" and not requests.may_have_run(code)
