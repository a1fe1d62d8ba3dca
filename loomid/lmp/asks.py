"""Approvals and questions as Hermes reports them: asked, decided, lost (docs/hermes.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from loomid import wire
from loomid.lmp import decisions, facts, ids, questions
from loomid.lmp.frames import (
    ApprovalRequired,
    ApprovalResolved,
    Choice,
    Notification,
    Question,
    QuestionRequired,
    QuestionResolved,
)
from loomid.lmp.payload import given
from loomid.lmp.placeholder import SOURCE
from loomid.lmp.preview import cut, head_and_tail

if TYPE_CHECKING:
    from loomid.lmp.decisions import Kind, Resolved

Asked = wire.ApprovalAsked | wire.QuestionAsked
Done = wire.ApprovalDone | wire.QuestionDone

Outcome = Literal["answered", "cancelled", "timeout"]
KEEP_S = 600.0
"""How long what was decided is known as such."""
MAX_ASKS = 1_024
"""Pending ones of one gateway; of those decided lately as many are known."""
MAX_BYTES = 8 * 2**20
"""What the facts of either may take in the store; snapshots tell no more of them than that."""
ASKED_RACE_S = 1.0
"""An inventory may miss what was asked while it was made."""

_CHOICES = (
    Choice(label="Allow once", choice="once", style="primary"),
    Choice(label="Allow for this session", choice="session", style="default"),
    Choice(label="Always allow", choice="always", style="default"),
    Choice(label="Deny", choice="deny", style="danger"),
)
_CUT_CHOICES = frozenset({"once", "deny"})
_ALLOWING = {c: c for c in ("once", "session", "always")} | {"smart_approve": "once"}
_CANCELLED = frozenset({"cancelled", "notify_failed"})
_REFUSED = "Too many {}s wait: this one can be answered at Hermes only.\n\n"
_OUTCOMES: dict[str, Outcome] = {"answered": "answered", "timeout": "timeout"}


@dataclass(frozen=True)
class AskView:
    """An approval or a question as commands see it."""

    id: str
    kind: Kind
    shim_id: str
    boot: str
    session_key: str
    run_id: str | None
    task_id: str | None
    pending: bool
    answerable: bool = True
    choices: tuple[str, ...] = ()
    """Of an approval."""
    questions: tuple[Question, ...] = ()


@dataclass(slots=True)
class _Ask:
    """What Hermes waits for."""

    id: str
    boot: str
    t: float
    run_id: str | None
    task_id: str
    part: str | None
    """Of the tool that waits for it."""
    size: int
    """Bytes of its fact in the store."""
    pending: bool

    @property
    def owner(self) -> str:
        """Its name for retention and alarms."""
        return f"~{self.id}"


def _refused(kind: Kind, title: str, text: str) -> Notification:
    """The event that tells of one more than can be kept: nobody can answer it here."""
    shown = cut(_REFUSED.format(kind) + text)
    return Notification(
        category="diagnostic",
        title=title,
        text=shown.text,
        source=SOURCE,
        requires_attention=True,
        truncated=shown.truncated or UNSET,
    )


@dataclass(slots=True)
class Approval(_Ask):
    """One approval."""

    fact: wire.ApprovalAsked
    session_key_ref: str
    kind: Kind = "approval"

    @property
    def shim_id(self) -> str:
        """Its id in its boot."""
        return self.fact.approval_id

    @property
    def choices(self) -> list[Choice]:
        """What may be answered: of Hermes' choices, and less when it cannot be shown whole."""
        if not self.fact.answerable:
            return []
        offered = set(self.fact.choices)
        if head_and_tail(self.fact.command).truncated:
            offered &= _CUT_CHOICES
        return [c for c in _CHOICES if c.choice in offered]

    def required(self) -> ApprovalRequired:
        """The event that asks."""
        fact = self.fact
        command = head_and_tail(fact.command)
        return ApprovalRequired(
            approval_id=self.id,
            run_id=self.run_id,
            task_id=self.task_id,
            command=command.text,
            description=cut(fact.description).text,
            choices=self.choices,
            smart_denied=fact.smart_denied,
            session_key_ref=self.session_key_ref,
            deadline_ts=None if fact.timeout_s is None else self.t + fact.timeout_s,
            truncated=command.truncated or UNSET,
            part=given(self.part),
        )

    def refused(self) -> Notification:
        """The event that tells of one more than can be kept."""
        return _refused(self.kind, "Hermes waits for an approval", self.fact.command)

    def resolved(self, fact: wire.ApprovalDone) -> ApprovalResolved:
        """The event that tells what Hermes says was decided.

        Hermes names no decider; whoever did not answer through us was local (§7).
        """
        choice = fact.choice
        decided_by: Literal["local", "remote", "timeout", "agent"] = "local"
        outcome: Literal["applied", "expired", "cancelled"] = "applied"
        if choice == "timeout":
            decided_by, outcome = "timeout", "expired"
        elif choice in _CANCELLED:
            outcome = "cancelled"
        elif choice.startswith("smart_"):
            decided_by = "agent"
        if fact.command_id is not None:
            decided_by = decisions.decider(fact.command_id)
        return ApprovalResolved(
            approval_id=self.id,
            choice=_ALLOWING.get(choice.removeprefix("transport_"), "deny"),
            decided_by=decided_by,
            outcome=outcome,
        )

    def lost(self) -> ApprovalResolved:
        """The event for one that Hermes no longer knows."""
        return ApprovalResolved(
            approval_id=self.id, choice="deny", decided_by="agent", outcome="lost"
        )

    def view(self) -> AskView:
        """What commands may know."""
        choices = tuple(choice.choice for choice in self.choices)
        return _view(self, answerable=self.fact.answerable, choices=choices)


@dataclass(slots=True)
class Questions(_Ask):
    """What is asked at once."""

    fact: wire.QuestionAsked
    shown: list[Question]
    kind: Kind = "question"

    @property
    def shim_id(self) -> str:
        """Its id in its boot."""
        return self.fact.question_id

    def required(self) -> QuestionRequired:
        """The event that asks."""
        fact = self.fact
        waits = fact.timeout_s is not None and fact.timeout_s > 0
        return QuestionRequired(
            question_id=self.id,
            task_id=self.task_id,
            run_id=self.run_id,
            questions=self.shown,
            call_id=fact.call_id or UNSET,
            intent=questions.CONFIRM if fact.source == questions.CONFIRM else UNSET,
            deadline_ts=self.t + (fact.timeout_s or 0.0) if waits else UNSET,
            part=given(self.part),
        )

    def refused(self) -> Notification:
        """The event that tells of one more than can be kept."""
        asked = "\n".join(question.question for question in self.shown)
        return _refused(self.kind, "Hermes waits for an answer", asked)

    def resolved(self, fact: wire.QuestionDone) -> QuestionResolved:
        """The event that tells how Hermes says it ended; whoever did not through us was local."""
        outcome: Outcome = _OUTCOMES.get(fact.outcome, "cancelled")
        decided_by: Literal["local", "remote", "timeout"] = "local"
        if outcome == "timeout":
            decided_by = "timeout"
        elif fact.command_id is not None:
            decided_by = decisions.decider(fact.command_id)
        return QuestionResolved(question_id=self.id, outcome=outcome, decided_by=decided_by)

    def lost(self) -> QuestionResolved:
        """The event for one that Hermes no longer knows."""
        return QuestionResolved(question_id=self.id, outcome="lost", decided_by="agent")

    def view(self) -> AskView:
        """What commands may know."""
        return _view(self, questions=tuple(self.shown))


Ask = Approval | Questions


def _view(ask: Ask, **offered: Any) -> AskView:  # noqa: ANN401 - fields of it
    return AskView(
        id=ask.id,
        kind=ask.kind,
        shim_id=ask.shim_id,
        boot=ask.boot,
        session_key=ask.fact.session_key,
        run_id=ask.run_id,
        task_id=ask.task_id,
        pending=ask.pending,
        **offered,
    )


class _Pile:
    """What was asked, in the order in which it came here, and what all of it takes."""

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether no further one is to be added."""
        return len(self._asks) >= MAX_ASKS or self._size >= MAX_BYTES

    def add(self, ask: Ask) -> None:
        self._asks[ask.id] = ask
        self._size += ask.size

    def take(self, ask: Ask) -> None:
        if self._asks.pop(ask.id, None) is not None:
            self._size -= ask.size

    def oldest(self) -> Ask:
        return next(iter(self._asks.values()))


class Asks:
    """All of one gateway that is pending or was decided lately."""

    def __init__(self, gateway_id: str, key: bytes) -> None:
        self._gateway_id = gateway_id
        self._key = key
        self._pending = _Pile()
        self._decided = _Pile()
        self._by_id: dict[str, Ask] = {}

    def _id(self, boot: str, fact: Asked | Done) -> str:
        """The id that phones see."""
        where = self._key, self._gateway_id, boot
        if isinstance(fact, (wire.ApprovalAsked, wire.ApprovalDone)):
            return ids.approval_id(*where, fact.approval_id)
        return ids.question_id(*where, fact.question_id)

    def _task_id(self, fact: Asked) -> str:
        """The task of one that is of no run."""
        return ids.task_id(self._key, self._gateway_id, fact.session_key)

    def ask(
        self, boot: str, t: float, fact: Asked, run: tuple[str, str, str | None] | None
    ) -> Ask | None:
        """A new one, of a run (its id, task, and the tool's part) if it has one.

        None: it is known already. One that is not pending is not kept: there are too many.
        """
        name = self._id(boot, fact)
        if name in self._by_id:
            return None
        run_id, task_id, part = run or (None, self._task_id(fact), None)
        ask: Ask
        of = (run_id, task_id, part, len(facts.dump(fact)), not self._pending.full)
        if isinstance(fact, wire.ApprovalAsked):
            ref = ids.session_key_ref(self._key, self._gateway_id, fact.session_key)
            ask = Approval(name, boot, t, *of, fact, ref)
        else:
            ask = Questions(name, boot, t, *of, fact, questions.shown(fact))
        if ask.pending:
            self._by_id[name] = ask
            self._pending.add(ask)
        return ask

    def get(self, name: str) -> Ask | None:
        """By the id that phones see."""
        return self._by_id.get(name)

    def orphan(self, name: str) -> None:
        """Its run is known no longer: it goes on as one that never had a run."""
        ask = self._by_id[name]
        ask.run_id, ask.task_id = None, self._task_id(ask.fact)

    def done(self, boot: str, fact: Done) -> tuple[Ask, Resolved] | None:
        """The pending one that this decides, and the event that tells it."""
        ask = self._by_id.get(self._id(boot, fact))
        if ask is None or not ask.pending:
            return None
        self._over(ask)
        return ask, ask.resolved(fact)  # type: ignore[arg-type]  # ids tell the two kinds apart

    def missing(self, boot: str, listed: list[str] | None, before: float) -> list[Ask]:
        """Pending ones of that boot, asked before then, that are not listed any more."""
        known = set(listed or ())
        gone = [
            ask
            for ask in self._by_id.values()
            if ask.pending
            and ask.boot == boot
            and (listed is None or (ask.t < before and ask.shim_id not in known))
        ]
        for ask in gone:
            self._over(ask)
        return gone

    def surplus(self) -> list[Ask]:
        """Forget those decided longest ago where there are too many; which."""
        gone: list[Ask] = []
        while self._decided.full:
            gone.append(self._decided.oldest())
            self.forget(gone[-1].id)
        return gone

    def forget(self, name: str) -> None:
        """It was decided long ago."""
        ask = self._by_id.pop(name, None)
        if ask is not None:
            self._decided.take(ask)

    def _over(self, ask: Ask) -> None:
        ask.pending = False
        self._pending.take(ask)
        self._decided.add(ask)
