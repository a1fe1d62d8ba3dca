"""The ledger: whatever happens in whatever order, one answer at most reaches Hermes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from msgspec import UNSET, structs

from loomid import errors, wire
from loomid.lmp import approvals, decisions, frames, questions
from loomid.lmp.asks import AskView
from loomid.lmp.decisions import OWNER, Claim, Entry, IllegalMove, State

PLACE = {"shim_id": "s1", "boot": "b1", "session_key": "k", "run_id": None, "task_id": None}
VIEW = AskView(
    id="a1", kind="approval", choices=("once", "deny", "allow_everything"), pending=True, **PLACE
)
COLOUR = frames.Question(
    id="q0",
    question="Which colour?",
    options=[frames.Option(label="red"), frames.Option(label="blue")],
    multi_select=False,
    custom=True,
)
ASKED = AskView(id="a1", kind="question", questions=(COLOUR,), pending=True, **PLACE)
CLAIM = Claim("a1", "d1", "r1", "once", "c1", 1.0)
OPEN = Entry("a1", "t1", None, "rm -rf /", 1.0, None)
QUESTION = replace(OPEN, kind="question")
IDS = {"request_id": "r1"}
END = frames.ApprovalResolved(
    approval_id="a1", choice="deny", decided_by="timeout", outcome="expired"
)
ENDS = {
    "approval": {"applied", "expired", "cancelled", "lost"},
    "question": {"answered", "timeout", "cancelled", "lost"},
}
LEGAL = {
    "pending": {"shown", "claimed"},
    "shown": {"claimed"},
    "claimed": {"pending", "shown"},
}


def answer(entry: Entry | None, view: AskView | None, said: str) -> Any:
    """What an answer leads to: a choice, or the one to a question (`cancel` cancels it).

    The view tells what is answered, or the entry where there is none.
    """
    kind = view.kind if view is not None else entry.kind if entry is not None else "approval"
    found = decisions.check(entry, view, kind)
    if kind == "approval":
        return approvals.order(found, frames.ApprovalResolve(**IDS, approval_id="a1", choice=said))
    if said == "cancel":
        return questions.order(found, frames.QuestionCancel(**IDS, question_id="a1"))
    one = frames.Answer(id="q0", selected=[said])
    return questions.order(found, frames.QuestionAnswer(**IDS, question_id="a1", answers=[one]))


def _check(entry: Entry | None, view: AskView | None = VIEW, choice: str = "once") -> str:
    try:
        answer(entry, view, choice)
    except errors.PhoneError as error:
        return f"{error.code} {error.params or ''}".strip()
    return "ok"


def test_who_may_answer() -> None:
    assert _check(OPEN) == _check(OPEN.shown("d2", 2.0)) == "ok"
    assert _check(None) == _check(OPEN, None) == "unknown_approval"
    assert _check(OPEN, replace(VIEW, answerable=False)).startswith("not_permitted")
    for view in (VIEW, None, replace(VIEW, answerable=False)):
        claimed, over = OPEN.claimed(CLAIM), OPEN.claimed(CLAIM).ended(END, 9.0)
        told = "already_resolved {'state': 'claimed', 'choice': 'once'}"
        assert _check(claimed, view, "deny") == told
        told = "already_resolved {'state': 'expired', 'choice': 'deny', 'outcome': 'expired', "
        assert _check(over, view, "deny") == told + "'decided_by': 'timeout'}"


@pytest.mark.parametrize(
    "word", ["always", "session", "yes", "", "Once", "once ", "no", "allow_everything"]
)
def test_no_word_passes_that_was_not_offered(word: str) -> None:
    # Hermes takes any word but `deny` for a yes, so even an offered unknown word stays here.
    assert _check(OPEN, choice=word) == "bad_choice {'choices': ['once', 'deny']}"


def test_a_question_is_answered_like_an_approval() -> None:
    assert _check(QUESTION, ASKED, "red") == _check(QUESTION, ASKED, "cancel") == "ok"
    assert _check(None, ASKED) == _check(QUESTION, None) == "unknown_question"
    assert _check(OPEN, ASKED, "red") == "unknown_question"  # that id is an approval's
    assert _check(QUESTION, VIEW) == "unknown_approval"
    said = '[{"id":"q0","selected":["red"]}]'
    claimed = QUESTION.claimed(replace(CLAIM, answer=said, kind="question"))
    answers = "'answers': [{'id': 'q0', 'selected': ['red']}]"
    assert _check(claimed, ASKED, "blue") == (f"already_resolved {{'state': 'claimed', {answers}}}")
    over = claimed.ended(_end("answered", "remote"), 9.0)
    assert _check(over, ASKED, "blue") == (
        f"already_resolved {{'state': 'answered', {answers}, 'outcome': 'answered',"
        " 'decided_by': 'remote'}"
    )
    # What did not count is not shown as if it had.
    late = claimed.ended(_end("timeout", "timeout"), 9.0)
    assert _check(late, ASKED, "blue") == (
        "already_resolved {'state': 'timeout', 'outcome': 'timeout', 'decided_by': 'timeout'}"
    )
    at_hermes = claimed.ended(_end("answered", "local"), 9.0)
    assert _check(at_hermes, ASKED, "blue") == (
        "already_resolved {'state': 'answered', 'outcome': 'answered', 'decided_by': 'local'}"
    )
    owner = QUESTION.claimed(replace(CLAIM, device_id=OWNER, answer=said, kind="question"))
    assert _check(owner.ended(_end("answered", "local"), 9.0), ASKED, "blue") == (
        f"already_resolved {{'state': 'answered', {answers}, 'outcome': 'answered',"
        " 'decided_by': 'local'}"
    )


def _end(outcome: Any, decided_by: Any) -> frames.QuestionResolved:
    return frames.QuestionResolved(question_id="a1", outcome=outcome, decided_by=decided_by)


def _after(entry: Entry, to: str) -> Entry:
    match to:
        case "shown" if entry.state == "claimed":
            return entry.given_back()
        case "pending":
            return entry.given_back()
        case "shown":
            return entry.shown("d2", 2.0)
        case "claimed":
            return entry.claimed(CLAIM)
        case _ if entry.kind == "question":
            return entry.ended(_end(to, "local"), 9.0)
        case _:
            return entry.ended(structs.replace(END, outcome=to), 9.0)


@pytest.mark.parametrize("entry", [OPEN, QUESTION], ids=lambda entry: entry.kind)
@pytest.mark.parametrize("state", get_args(State))
@pytest.mark.parametrize("to", get_args(State))
def test_every_move(state: str, to: str, entry: Entry) -> None:
    """Those of the table are made, all others are refused, and none changes what was."""
    entry = replace(entry, state=state, shown_to="d2" if to == "shown" else None)
    if state in LEGAL and to in LEGAL[state] | ENDS[entry.kind]:
        assert _after(entry, to).state == to
    else:
        with pytest.raises(IllegalMove):
            _after(entry, to)
    assert entry.state == state


def test_what_a_claim_leaves_behind() -> None:
    claimed = OPEN.claimed(CLAIM)
    assert claimed.claim == CLAIM
    assert (claimed.shown_to, claimed.shown_at) == ("d1", 1.0)
    assert OPEN.shown("d2", 2.0).claimed(CLAIM).shown_to == "d2"
    assert claimed.given_back() == OPEN.shown("d1", 1.0)
    assert claimed.ended(END, 9.0).claim == CLAIM
    assert OPEN.ended(structs.replace(END, outcome=UNSET), 9.0).state == "applied"


def test_whom_phones_are_told_of() -> None:
    assert decisions.decider("token:gw:boot") == "remote"
    assert decisions.decider("token:gw:boot:loomictl") == "local"


def test_only_a_command_that_did_not_run_gives_back() -> None:
    gives_back = {code for code in wire.RESULT_ERRORS if decisions.gives_back(code)}
    assert gives_back == set(wire.RESULT_ERRORS) - {"failed", "not_pending"}
    assert not decisions.gives_back("of_a_newer_shim")


@dataclass
class Hermes:
    """One pending approval as it is on the other side of the link."""

    pending: bool = True
    ran: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    """What it reports, once each; loomid sees it later."""


class Everyone(RuleBasedStateMachine):
    """Phones, loomid (with restarts), the link and Hermes, in any interleaving."""

    asked: Any = Bundle("asked")
    commands: Any = Bundle("commands")

    def __init__(self) -> None:
        super().__init__()
        self.ledger: dict[str, Entry] = {}
        self.hermes: dict[str, Hermes] = {}
        self.refused: set[str] = set()
        self.results: dict[str, str | None] = {}
        self.count = 0

    @rule(target=asked, kind=st.sampled_from([OPEN, QUESTION]))
    def ask(self, kind: Entry) -> str:
        self.count += 1
        name = f"a{self.count}"
        self.ledger[name] = replace(kind, id=name)
        self.hermes[name] = Hermes()
        return name

    @rule(
        target=commands,
        name=asked,
        device=st.sampled_from(["d1", "d2", "d3"]),
        choice=st.sampled_from([("once", "red"), ("deny", "cancel"), ("yes", "green")]),
    )
    def answer(self, name: str, device: str, choice: tuple[str, str]) -> Claim | None:
        entry = self.ledger[name]
        view = VIEW if entry.kind == "approval" else ASKED
        try:
            _, _, said = answer(entry, replace(view, id=name), choice[entry.kind == "question"])
        except (errors.BadChoice, errors.BadAnswer):
            assert entry.waits
            assert choice == ("yes", "green")
            return None
        except errors.AlreadyResolved as error:
            assert not entry.waits
            told = error.params
            assert told.get("outcome") == (entry.state if entry.over else None)
            if entry.kind == "approval":
                assert told["choice"] == (entry.choice or entry.answer)
            return None
        assert choice != ("yes", "green")
        self.count += 1
        ids = f"r{self.count}", said, f"c{self.count}"
        claim = Claim(name, device, *ids, float(self.count), entry.kind)
        self.ledger[name] = entry.claimed(claim)
        return claim

    @rule(claim=commands)
    def reach_hermes(self, claim: Claim | None) -> None:
        """The shim runs each command at most once, and never one that it denied."""
        if claim is None or claim.command_id in self.results or claim.command_id in self.refused:
            return
        there = self.hermes[claim.id]
        if there.pending:
            there.ran.append(claim.command_id)
            there.pending = False
            there.outcomes.append(claim.answer)
            self.results[claim.command_id] = None
        else:
            self.results[claim.command_id] = "not_pending"

    @rule(claim=commands)
    def raise_in_hermes(self, claim: Claim | None) -> None:
        """It may have run, and Hermes may go on waiting."""
        if claim is None or claim.command_id in self.results or claim.command_id in self.refused:
            return
        self.hermes[claim.id].ran.append(claim.command_id)
        self.results[claim.command_id] = "failed"

    @rule(claim=consumes(commands), code=st.sampled_from(["stale", "starting", "ambiguous"]))
    def hear(self, claim: Claim | None, code: str) -> None:
        """The result came, or what the shim says when it is asked later."""
        if claim is None:
            return
        if claim.command_id not in self.results:
            self.refused.add(claim.command_id)
            self.results[claim.command_id] = code
        result = self.results[claim.command_id]
        entry = self.ledger[claim.id]
        if result is not None and decisions.gives_back(result) and not entry.over:
            assert entry.claim == claim
            self.ledger[claim.id] = entry.given_back()

    @rule(name=asked, device=st.sampled_from(["d1", "d2"]))
    def show(self, name: str, device: str) -> None:
        if self.ledger[name].state == "pending":
            self.ledger[name] = self.ledger[name].shown(device, 1.0)

    @rule(name=asked)
    def time_out(self, name: str) -> None:
        there = self.hermes[name]
        if there.pending:
            there.pending = False
            there.outcomes.append("timeout")

    @rule(name=asked)
    def report(self, name: str) -> None:
        """loomid hears of the end, which comes once."""
        there, entry = self.hermes[name], self.ledger[name]
        if there.outcomes and not entry.over:
            expired = there.outcomes == ["timeout"]
            if entry.kind == "question":
                cancelled = there.outcomes == ["null"]
                outcome = "timeout" if expired else "cancelled" if cancelled else "answered"
                self.ledger[name] = entry.ended(_end(outcome, "remote"), 2.0)
                return
            how = frames.ApprovalResolved(
                approval_id=name,
                choice="deny" if expired else there.outcomes[0],
                decided_by="timeout" if expired else "remote",
                outcome="expired" if expired else "applied",
            )
            self.ledger[name] = entry.ended(how, 2.0)

    @invariant()
    def one_command_and_one_outcome(self) -> None:
        for name, there in self.hermes.items():
            assert len(there.ran) <= 1
            assert len(there.outcomes) <= 1
            entry = self.ledger[name]
            if there.ran:
                assert entry.command_id == there.ran[0]
            if entry.state == "applied":
                assert [entry.choice] == there.outcomes
            if entry.state == "answered":
                assert [entry.answer] == there.outcomes


TestEveryone = Everyone.TestCase
TestEveryone.settings = settings(max_examples=150, stateful_step_count=40)
