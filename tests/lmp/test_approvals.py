"""Claims: whatever happens in whatever order, one answer at most reaches Hermes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from loomid import errors, wire
from loomid.lmp import approvals
from loomid.lmp.approvals import Claim, Claims
from loomid.lmp.runs import ApprovalView

VIEW = ApprovalView(
    approval_id="a1",
    shim_id="s1",
    boot="b1",
    session_key="k",
    run_id=None,
    task_id=None,
    choices=("once", "deny", "allow_everything"),
    answerable=True,
    pending=True,
)
CLAIM = Claim("a1", "d1", "r1", "once", "c1", 1.0)


def _check(claims: Claims, view: ApprovalView | None, choice: str = "once") -> str:
    try:
        claims.check(view, "a1", choice)
    except errors.PhoneError as error:
        return f"{error.code} {error.params or ''}".strip()
    return "ok"


def test_who_may_answer() -> None:
    nobody, claimed = Claims(), Claims([CLAIM])
    assert _check(nobody, VIEW) == "ok"
    assert _check(nobody, None) == "unknown_approval"
    assert _check(nobody, replace(VIEW, pending=False)) == "already_resolved"
    assert _check(nobody, replace(VIEW, answerable=False)).startswith("not_permitted")
    for view in (VIEW, None, replace(VIEW, pending=False), replace(VIEW, answerable=False)):
        assert _check(claimed, view, "deny") == "already_resolved {'choice': 'once'}"


@pytest.mark.parametrize(
    "word", ["always", "session", "yes", "", "Once", "once ", "no", "allow_everything"]
)
def test_no_word_passes_that_was_not_offered(word: str) -> None:
    # Hermes takes any word but `deny` for a yes, so even an offered unknown word stays here.
    assert _check(Claims(), VIEW, word) == "bad_choice {'choices': ['once', 'deny']}"


def test_claims_are_found_and_outdated() -> None:
    claims = Claims([CLAIM])
    assert claims.of_request("d1", "r1") == CLAIM
    assert claims.of_request("d2", "r1") is None
    assert claims.outdated(2.0, lambda _: True) == []
    assert claims.outdated(1.0, lambda _: False) == []
    assert claims.outdated(2.0, lambda _: False) == [CLAIM]
    claims.drop(replace(CLAIM, command_id="c2"))
    assert claims.all() == [CLAIM]
    claims.drop(CLAIM)
    assert claims.all() == []


def test_only_a_command_that_did_not_run_gives_back() -> None:
    gives_back = {code for code in wire.RESULT_ERRORS if approvals.gives_back(code)}
    assert gives_back == set(wire.RESULT_ERRORS) - {"failed", "not_pending"}
    assert not approvals.gives_back("of_a_newer_shim")


@dataclass
class Hermes:
    """One pending approval as it is on the other side of the link."""

    pending: bool = True
    ran: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    """What it reports, once each; loomid sees it later."""


class Everyone(RuleBasedStateMachine):
    """Phones, loomid (with restarts), the link and Hermes, in any interleaving."""

    approvals_: Any = Bundle("approvals")
    commands: Any = Bundle("commands")

    def __init__(self) -> None:
        super().__init__()
        self.claims = Claims()
        self.disk: dict[str, Claim] = {}
        self.views: dict[str, ApprovalView] = {}
        self.hermes: dict[str, Hermes] = {}
        self.refused: set[str] = set()
        self.results: dict[str, str | None] = {}
        self.count = 0

    @rule(target=approvals_)
    def ask(self) -> str:
        self.count += 1
        name = f"a{self.count}"
        self.views[name] = replace(VIEW, approval_id=name)
        self.hermes[name] = Hermes()
        return name

    @rule(
        target=commands,
        name=approvals_,
        device=st.sampled_from(["d1", "d2", "d3"]),
        choice=st.sampled_from(["once", "deny", "yes"]),
    )
    def answer(self, name: str, device: str, choice: str) -> Claim | None:
        self.count += 1
        claim = Claim(name, device, f"r{self.count}", choice, f"c{self.count}", float(self.count))
        may = name not in self.disk and self.views[name].pending
        try:
            self.claims.check(self.views[name], name, choice)
        except errors.BadChoice:
            assert may
            assert choice == "yes"
            return None
        except errors.AlreadyResolved as error:
            assert not may
            told = error.params.get("choice")
        else:
            told = None
        if not may:
            standing = self.disk.get(name)
            assert told == (standing.choice if standing else None)
            return None
        assert choice != "yes"
        self.claims.add(claim)
        self.disk[name] = claim
        return claim

    @rule(claim=commands)
    def reach_hermes(self, claim: Claim | None) -> None:
        """The shim runs each command at most once, and never one that it denied."""
        if claim is None or claim.command_id in self.results or claim.command_id in self.refused:
            return
        there = self.hermes[claim.approval_id]
        if there.pending:
            there.ran.append(claim.command_id)
            there.pending = False
            there.outcomes.append(claim.choice)
            self.results[claim.command_id] = None
        else:
            self.results[claim.command_id] = "not_pending"

    @rule(claim=commands)
    def raise_in_hermes(self, claim: Claim | None) -> None:
        """It may have run, and Hermes may go on waiting."""
        if claim is None or claim.command_id in self.results or claim.command_id in self.refused:
            return
        self.hermes[claim.approval_id].ran.append(claim.command_id)
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
        if result is not None and approvals.gives_back(result):
            assert self.disk.pop(claim.approval_id) == claim
            self.claims.drop(claim)

    @rule(name=approvals_)
    def time_out(self, name: str) -> None:
        there = self.hermes[name]
        if there.pending:
            there.pending = False
            there.outcomes.append("timeout")

    @rule(name=approvals_)
    def report(self, name: str) -> None:
        if self.hermes[name].outcomes:
            self.views[name] = replace(self.views[name], pending=False)

    @rule()
    def restart(self) -> None:
        self.claims = Claims(self.disk.values())

    @invariant()
    def one_command_and_one_outcome(self) -> None:
        for name, there in self.hermes.items():
            assert len(there.ran) <= 1
            assert len(there.outcomes) <= 1
            if there.ran:
                assert self.disk[name].command_id == there.ran[0]
        assert {claim.approval_id: claim for claim in self.claims.all()} == self.disk


TestEveryone = Everyone.TestCase
TestEveryone.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
