"""Approvals as Hermes reports them: asked, decided, lost (docs/hermes.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from loomid.lmp import approvals, facts, ids
from loomid.lmp.frames import ApprovalRequired, ApprovalResolved, Choice, Notification
from loomid.lmp.placeholder import SOURCE
from loomid.lmp.preview import cut, head_and_tail

if TYPE_CHECKING:
    from loomid import wire

KEEP_S = 600.0
"""How long a decided approval is known as such."""
MAX_ASKS = 1_024
"""Pending ones of one gateway; of those decided lately as many are known."""
MAX_BYTES = 8 * 2**20
"""What the facts of either may take in the store; snapshots tell no more of them than that."""
ASKED_RACE_S = 1.0
"""An inventory may miss an approval that was asked while it was made."""

_CHOICES = (
    Choice(label="Allow once", choice="once", style="primary"),
    Choice(label="Allow for this session", choice="session", style="default"),
    Choice(label="Always allow", choice="always", style="default"),
    Choice(label="Deny", choice="deny", style="danger"),
)
_CUT_CHOICES = frozenset({"once", "deny"})
_ALLOWING = {c: c for c in ("once", "session", "always")} | {"smart_approve": "once"}
_CANCELLED = frozenset({"cancelled", "notify_failed"})
_REFUSED = "Too many approvals wait: this one can be answered at Hermes only.\n\n"


@dataclass(frozen=True)
class ApprovalView:
    """An approval as commands see it."""

    approval_id: str
    shim_id: str
    boot: str
    session_key: str
    run_id: str | None
    task_id: str | None
    choices: tuple[str, ...]
    answerable: bool
    pending: bool


@dataclass(slots=True)
class Ask:
    """One approval."""

    approval_id: str
    fact: wire.ApprovalAsked
    boot: str
    t: float
    run_id: str | None
    task_id: str
    session_key_ref: str
    size: int
    """Bytes of its fact in the store."""
    part: str | None = None
    """Of the tool that waits for it."""
    pending: bool = True

    @property
    def owner(self) -> str:
        """Its name for retention and alarms."""
        return f"~{self.approval_id}"

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
            approval_id=self.approval_id,
            run_id=self.run_id,
            task_id=self.task_id,
            command=command.text,
            description=cut(fact.description).text,
            choices=self.choices,
            smart_denied=fact.smart_denied,
            session_key_ref=self.session_key_ref,
            deadline_ts=None if fact.timeout_s is None else self.t + fact.timeout_s,
            truncated=command.truncated or UNSET,
            part=UNSET if self.part is None else self.part,
        )

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
            decided_by = approvals.decider(fact.command_id)
        return ApprovalResolved(
            approval_id=self.approval_id,
            choice=_ALLOWING.get(choice.removeprefix("transport_"), "deny"),
            decided_by=decided_by,
            outcome=outcome,
        )

    def refused(self) -> Notification:
        """The event that tells of one more than can be kept: nobody can answer it here."""
        shown = cut(_REFUSED + self.fact.command)
        return Notification(
            category="diagnostic",
            title="Hermes waits for an approval",
            text=shown.text,
            source=SOURCE,
            requires_attention=True,
            truncated=shown.truncated or UNSET,
        )

    def lost(self) -> ApprovalResolved:
        """The event for one that Hermes no longer knows."""
        return ApprovalResolved(
            approval_id=self.approval_id, choice="deny", decided_by="agent", outcome="lost"
        )

    def view(self) -> ApprovalView:
        """What commands may know."""
        return ApprovalView(
            approval_id=self.approval_id,
            shim_id=self.fact.approval_id,
            boot=self.boot,
            session_key=self.fact.session_key,
            run_id=self.run_id,
            task_id=self.task_id,
            choices=tuple(c.choice for c in self.choices),
            answerable=self.fact.answerable,
            pending=self.pending,
        )


class _Pile:
    """Approvals in the order in which they came here, and what all of them take."""

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether no further one is to be added."""
        return len(self._asks) >= MAX_ASKS or self._size >= MAX_BYTES

    def add(self, ask: Ask) -> None:
        self._asks[ask.approval_id] = ask
        self._size += ask.size

    def take(self, ask: Ask) -> None:
        if self._asks.pop(ask.approval_id, None) is not None:
            self._size -= ask.size

    def oldest(self) -> Ask:
        return next(iter(self._asks.values()))


class Asks:
    """All approvals of one gateway that are pending or were decided lately."""

    def __init__(self, gateway_id: str, key: bytes) -> None:
        self._gateway_id = gateway_id
        self._key = key
        self._pending = _Pile()
        self._decided = _Pile()
        self._by_id: dict[str, Ask] = {}

    def ask(
        self,
        boot: str,
        t: float,
        fact: wire.ApprovalAsked,
        run: tuple[str, str, str | None] | None,
    ) -> Ask | None:
        """A new approval, of a run (its id, task, and the tool's part) if it has one.

        None: it is known already. One that is not pending is not kept: there are too many.
        """
        approval_id = ids.approval_id(self._key, self._gateway_id, boot, fact.approval_id)
        if approval_id in self._by_id:
            return None
        run_id, task_id, part = run or (
            None,
            ids.task_id(self._key, self._gateway_id, fact.session_key),
            None,
        )
        ref = ids.session_key_ref(self._key, self._gateway_id, fact.session_key)
        ask = Ask(approval_id, fact, boot, t, run_id, task_id, ref, len(facts.dump(fact)), part)
        if self._pending.full:
            ask.pending = False
        else:
            self._by_id[approval_id] = ask
            self._pending.add(ask)
        return ask

    def get(self, approval_id: str) -> Ask | None:
        """By the id that phones see."""
        return self._by_id.get(approval_id)

    def done(self, boot: str, shim_id: str) -> Ask | None:
        """The pending approval that this decides."""
        ask = self._by_id.get(ids.approval_id(self._key, self._gateway_id, boot, shim_id))
        if ask is None or not ask.pending:
            return None
        self._over(ask)
        return ask

    def missing(self, boot: str, listed: list[str] | None, before: float) -> list[Ask]:
        """Pending ones of that boot, asked before then, that are not listed any more."""
        known = set(listed or ())
        gone = [
            ask
            for ask in self._by_id.values()
            if ask.pending
            and ask.boot == boot
            and (listed is None or (ask.t < before and ask.fact.approval_id not in known))
        ]
        for ask in gone:
            self._over(ask)
        return gone

    def surplus(self) -> list[Ask]:
        """Forget those decided longest ago where there are too many; which."""
        gone: list[Ask] = []
        while self._decided.full:
            gone.append(self._decided.oldest())
            self.forget(gone[-1].approval_id)
        return gone

    def forget(self, approval_id: str) -> None:
        """It was decided long ago."""
        ask = self._by_id.pop(approval_id, None)
        if ask is not None:
            self._decided.take(ask)

    def _over(self, ask: Ask) -> None:
        ask.pending = False
        self._pending.take(ask)
        self._decided.add(ask)
