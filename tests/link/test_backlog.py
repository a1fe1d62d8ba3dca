"""The bounded buffer of unacknowledged facts."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_shim import wire
from hermes_shim.ledger import DELTA, LASTING, OVERHEAD, PREVIEW, RANKS, REASONS, Backlog

KINDS = {
    DELTA: ("delta", "edited"),
    PREVIEW: ("tool.started", "turn.started", "interim", "something.new"),
    LASTING: ("approval.asked", "turn.ended", "sent", "processing.ended", "api.failed"),
}


def drain(it: Backlog) -> list[list[Any]]:
    """What is to be sent, as if it left."""
    out = []
    while it.unsent:
        message = json.loads(it.facts[it.unsent.popleft()][1])
        assert (message["m"], message["boot"]) == ("facts", "boot")
        out += message["facts"]
    return out


def fill(it: Backlog, *kinds: str) -> None:
    for kind in kinds:
        it.add(kind, 1.0, {"turn_id": kind})


def test_what_ranks_where():
    for level, kinds in KINDS.items():
        assert [RANKS.get(kind, PREVIEW) for kind in kinds] == [level] * len(kinds)


def test_deltas_go_first_then_previews_oldest_first():
    it = Backlog("boot", most_bytes=4 * OVERHEAD + 1_000)
    fill(it, "approval.asked", "tool.started", "edited", "delta")
    fill(it, "turn.ended")
    assert [f[0] for f in drain(it)] == [1, 2, 4, 5]
    fill(it, "sent", "turn.ended", "approval.done")
    it.rewind()
    assert [f[2] for f in drain(it)] == ["turn.ended", "sent", "turn.ended", "approval.done"]
    reasons = {"overflow_delta": 2, "overflow_preview": 1, "overflow_lasting": 1}
    assert it.dropped == reasons


def test_what_json_cannot_hold_or_is_too_large_is_counted_and_takes_no_number():
    it = Backlog("boot")
    it.add("interim", 1.0, {"text": object()})
    it.add("interim", float("nan"), {"text": "x"})
    it.add("interim", 1.0, {"text": "x" * wire.MESSAGE_MAX})
    it.add("interim", 1.0, {"text": "\ud800\x00"})
    assert it.dropped == {"unsendable": 3}
    assert drain(it) == [[1, 1.0, "interim", {"text": "\ud800\x00"}]]  # loomid's door is next


class BacklogMachine(RuleBasedStateMachine):
    """Whatever happens: bounded, numbers rise, nothing unaccounted for."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Backlog("boot", most_bytes=12 * OVERHEAD)
        self.added = 0
        self.acked = 0
        self.connection: list[int] = []  # numbers sent on this connection
        self.seen: dict[int, Any] = {}

    @rule(level=st.sampled_from([DELTA, PREVIEW, LASTING]), size=st.integers(0, 400))
    def add(self, level: int, size: int) -> None:
        before = self.it.dropped.copy()
        self.added += 1
        self.it.add(KINDS[level][0], 1.0, {"text": f"{self.added} {'x' * size}"})
        lost = [i for i, reason in enumerate(REASONS) if self.it.dropped[reason] > before[reason]]
        left = {rank for rank, _ in self.it.facts.values()}
        assert not lost or all(rank >= max(lost) for rank in left)

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        for _ in range(min(count, len(self.it.unsent))):
            n = self.it.unsent.popleft()
            ((number, _, kind, body),) = json.loads(self.it.facts[n][1])["facts"]
            assert number == n
            assert self.seen.setdefault(n, (kind, body)) == (kind, body)
            self.connection.append(n)

    @precondition(lambda self: self.connection)
    @rule(back=st.integers(0, 3))
    def ack(self, back: int) -> None:
        self.acked = max(self.acked, self.connection[max(0, len(self.connection) - 1 - back)])
        self.it.ack(self.acked)

    @rule()
    def reconnect(self) -> None:
        self.connection = []
        self.it.ack(self.acked)
        self.it.rewind()

    @invariant()
    def holds(self) -> None:
        it = self.it
        sizes = [OVERHEAD + len(data) for _, data in it.facts.values()]
        assert it.bytes == sum(sizes) <= 12 * OVERHEAD
        assert self.connection == sorted(set(self.connection))
        assert all(n > self.acked for n in it.facts)
        assert list(it.unsent) == [n for n in it.facts if n in set(it.unsent)]
        flying = set(self.connection) & set(it.facts)
        assert not flying & set(it.unsent)
        lost = sum(it.dropped.values())
        assert len(it.facts) + lost <= self.added


TestBacklogMachine = BacklogMachine.TestCase
TestBacklogMachine.settings = settings(max_examples=60, stateful_step_count=40)
