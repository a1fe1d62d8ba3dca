"""The bounded buffer of unacknowledged facts."""

from __future__ import annotations

import json
from typing import Any

from hermes_shim.backlog import DELTA, LASTING, PREVIEW, Backlog, rank
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_shim import backlog
from tests.support.host import delta

KINDS = {
    DELTA: ("delta", "edited"),
    PREVIEW: ("tool.started", "turn.started", "interim"),
    LASTING: ("approval.asked", "turn.ended", "sent", "processing.ended", "api.failed"),
}


def decoded(batch: list[bytes]) -> list[list[Any]]:
    return [json.loads(data) for data in batch]


def drain(it: Backlog) -> list[list[Any]]:
    out = []
    while batch := it.batch():
        it.sent(batch)
        out += decoded(batch)
    return out


def fill(it: Backlog, *kinds: str) -> None:
    for kind in kinds:
        it.add(kind, 1.0, {"turn_id": kind})


def test_what_ranks_where():
    for level, kinds in KINDS.items():
        assert [rank(kind, {}) for kind in kinds] == [level] * len(kinds)
    assert rank("edited", {"finalize": True}) == LASTING
    assert rank("something.new", {}) == PREVIEW


def test_deltas_go_first_then_previews_oldest_first():
    it = Backlog(max_facts=4)
    fill(it, "approval.asked", "tool.started", "edited", "edited")
    fill(it, "turn.ended")
    assert [f[0] for f in drain(it)] == [1, 2, 4, 5]
    fill(it, "sent", "turn.ended", "approval.done")
    it.rewind()
    assert [f[2] for f in drain(it)] == ["turn.ended", "sent", "turn.ended", "approval.done"]
    reasons = {"overflow_delta": 2, "overflow_preview": 1, "overflow_lasting": 1}
    assert it.dropped == reasons


def test_what_json_cannot_hold_or_is_too_large_is_counted_and_takes_no_number():
    it = Backlog()
    it.add("interim", 1.0, {"text": object()})
    it.add("interim", float("nan"), {"text": "x"})
    it.add("interim", 1.0, {"text": "x" * backlog.MAX_FACT_BYTES})
    it.add("interim", 1.0, {"text": "\ud800\x00"})
    assert it.dropped == {"invalid": 2, "too_large": 1}
    assert drain(it) == [[1, 1.0, "interim", {"text": "��"}]]


def test_waiting_deltas_of_one_run_are_joined_until_they_are_sent():
    it = Backlog()
    for text in ("a", "b", "\ud83d", "\ude00"):
        it.add("delta", 1.0, delta(text))
    it.add("delta", 1.0, delta("other", turn="t2"))
    it.add("delta", 1.0, delta("back"))
    assert [f[3]["text"] for f in drain(it)] == ["ab😀", "other", "back"]
    it.add("delta", 1.0, delta("on"))
    assert drain(it) == [[4, 1.0, "delta", delta("on")]]
    for _ in range(3):
        it.add("delta", 1.0, delta("x" * 900))
    assert [len(f[3]["text"]) for f in drain(it)] == [1800, 900]


def test_the_window_bounds_what_is_on_its_way():
    it = Backlog()
    while it.bytes < 2 * backlog.WINDOW_BYTES:
        it.add("interim", 1.0, {"text": "x" * 1000})
    first = drain(it)
    assert backlog.WINDOW_BYTES <= it._flight < backlog.WINDOW_BYTES + backlog.BATCH_BYTES
    it.ack(100)
    assert drain(it)[0][0] == len(first) + 1
    it.rewind(7)
    assert drain(it)[0][0] == 101


def test_a_batch_is_bounded_in_bytes_but_any_fact_fits_alone():
    it = Backlog()
    for _ in range(3):
        it.add("interim", 1.0, {"text": "x" * (backlog.BATCH_BYTES + 1)})
    assert len(it.batch()) == 1
    assert len(drain(it)) == 3


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=30)), max_size=40), st.integers(1, 40))
def test_joining_loses_no_text(deltas, send_every):
    it, sent = Backlog(), []
    for i, (is_other, text) in enumerate(deltas):
        it.add("delta", float(i), delta(text, turn=f"t{is_other:d}"))
        if i % send_every == 0:
            sent += drain(it)
    sent += drain(it)
    for turn in ("t0", "t1"):
        want = "".join(text for is_other, text in deltas if turn == f"t{is_other:d}")
        got = "".join(f[3]["text"] for f in sent if f[3]["turn_id"] == turn)
        assert got == want.replace("\x00", "�")


class BacklogMachine(RuleBasedStateMachine):
    """Whatever happens: bounded, numbers rise, nothing unaccounted for."""

    def __init__(self) -> None:
        super().__init__()
        self.it = Backlog(max_facts=12, max_bytes=1500)
        self.added = 0
        self.acked = 0
        self.connection: list[int] = []  # numbers sent on this connection
        self.seen: dict[int, Any] = {}

    @rule(level=st.sampled_from([DELTA, PREVIEW, LASTING]), size=st.integers(0, 400))
    def add(self, level: int, size: int) -> None:
        lasting = sum(1 for f in self.it._facts.values() if f[0] == LASTING)
        lesser = len(self.it) - lasting
        before = self.it.dropped["overflow_lasting"]
        self.added += 1
        self.it.add(KINDS[level][0], 1.0, {"text": f"{self.added} {'x' * size}"})
        if self.it.dropped["overflow_lasting"] > before and lesser:
            assert all(f[0] == LASTING for f in self.it._facts.values())

    @rule()
    def send(self) -> None:
        if batch := self.it.batch():
            self.it.sent(batch)
            for n, _, kind, body in decoded(batch):
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
        self.it.rewind(self.acked)

    @invariant()
    def holds(self) -> None:
        it = self.it
        assert len(it) <= 12
        assert it.bytes == sum(len(f[1]) for f in it._facts.values()) <= 1500
        assert self.connection == sorted(set(self.connection))
        assert it.first > self.acked
        flying = [n for n in it._facts if n <= it._sent]
        assert it._flight == sum(len(it._facts[n][1]) for n in flying)
        assert sum(len(numbers) for numbers in it._ranks) == len(it)  # nothing grows for ever
        lost = sum(it.dropped.values())
        assert len(it) + lost <= self.added


TestBacklogMachine = BacklogMachine.TestCase
TestBacklogMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
