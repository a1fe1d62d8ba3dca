"""The checker itself: each promise, broken by hand, is found to be broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.asking import Asking
from tests.chaos.by_hand import (
    Bench,
    closed,
    delta,
    ended,
    frame,
    question,
    required,
    resolved,
    started,
)
from tests.chaos.frame import Frame

if TYPE_CHECKING:
    pass


@pytest.fixture
def bench() -> Bench:
    return Bench()


RUN = [started(1), delta(2, "a "), delta(3, "b"), ended(4)]


def test_nothing_is_found_where_nothing_is_wrong(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.ask()
    bench.ask_question()
    bench.both(RUN[0], RUN[1], required(5), question(6))
    bench.answer("c1", 1)
    bench.decide("deny", "c2")
    bench.close("answered", "c1")
    bench.back()
    for again in (required(7, replay=True), question(8, replay=True), frame(9, "ping")):
        bench.phone.take(again)
    ends = resolved(11, "applied", "deny", "remote"), closed(12, "answered", "remote")
    bench.both(delta(10, "b"), *ends, ended(13))
    bench.oracle.conclude()
    assert bench.found == []


def test_a_lost_event(bench: Bench) -> None:
    bench.turn("a ", "b")
    for one in RUN:
        bench.witness.take(one)
        if one is not RUN[1]:
            bench.phone.take(one)
    assert bench.found[0] == "lost"


def test_a_lost_last_event(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.both(*RUN[:3])
    bench.witness.take(RUN[3])
    bench.oracle.conclude()
    assert "lost" in bench.found


def test_a_doubled_event(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.phone.take(started(3))
    bench.witness.take(delta(3, "b"))
    assert "twice" in bench.found


@pytest.mark.parametrize("again", [delta(5, "b"), ended(5), ended(5, ts=2.0)])
def test_an_event_doubled_for_everyone(bench: Bench, again: Frame) -> None:
    bench.turn("a ", "b")
    bench.both(*RUN, again)
    assert "twice" in bench.found


def test_an_event_that_the_witness_never_had(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.phone.take(delta(3, "b"))
    bench.oracle.conclude()
    assert "unknown event" in bench.found


def test_events_in_another_order(bench: Bench) -> None:
    for one in RUN[:3]:
        bench.witness.take(one)
    for one in (RUN[0], delta(2, "b"), delta(3, "a ")):
        bench.phone.take(one)
    assert bench.found[0] == "lost"


def test_numbers_that_do_not_rise(bench: Bench) -> None:
    bench.both(RUN[0], RUN[2])
    bench.phone.take(delta(2, "a "))
    assert bench.found[0] == "reordered"


def test_a_number_used_again(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.back("low")
    bench.phone.take(RUN[0])
    bench.phone.take(delta(2, "other"))
    assert "two contents" in bench.found


def test_a_number_below_what_was_seen(bench: Bench) -> None:
    bench.both(RUN[0], delta(9, "a "))
    bench.phone.hello("right")
    bench.phone.greeted(bench.ok(4), 0, snapshot=True)
    bench.phone.take(delta(5, "b"))
    assert bench.found == ["seq went back", "seq went back"]


@pytest.mark.parametrize("text", ["a b", "a "])
def test_a_snapshot_that_shows_something_else(bench: Bench, text: str) -> None:
    bench.both(*RUN[:3])
    bench.back("none", truncated=True, seq=10)
    bench.phone.take(started(11, replay=True))
    bench.phone.take(delta(12, text, replay=True))
    bench.done(13)
    bench.both(frame(14, "task.updated", task_id="t", status="idle"))
    assert bench.found == ([] if text == "a b" else ["view", "view"])


def test_a_snapshot_without_an_end_that_was_missed(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.both(*RUN[:3])
    bench.witness.take(RUN[3])
    for number in range(500):
        bench.witness.take(frame(5 + number, "task.updated", ts=5.0 + number, task_id="t"))
    bench.back(truncated=True, seq=600)
    bench.done(601)
    bench.both(frame(602, "task.updated", task_id="t", status="idle"))
    assert bench.found == ["snapshot"]


def test_truncated_without_need(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.back(truncated=True, seq=9)
    assert bench.found == ["truncated"]


@pytest.mark.parametrize("how", ["none", "high"])
def test_not_truncated(bench: Bench, how: str) -> None:
    bench.both(*RUN[:2])
    bench.back(how)
    assert bench.found[0] == "not truncated"


def test_not_truncated_after_an_earlier_database(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.oracle.new_era()
    bench.back()
    assert bench.found == ["not truncated"]


def test_a_witness_that_missed_something(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.witness.hello("right")
    bench.witness.greeted(bench.ok(9, truncated=True), 0, snapshot=True)
    assert "witness truncated" in bench.found


@pytest.mark.parametrize(
    ("pieces", "end", "kind"),
    [
        (("a ", "b", "c"), ended(4), "wrong text"),
        (("a ",), ended(4), "wrong text"),
        (("a ", "b"), ended(4, "a"), "wrong text"),
        (("a ", "b"), ended(4, status="cancelled"), "wrong end"),
        (("a ", "b"), frame(4, "run.failed", run_id="r1", error="gateway_lost"), "wrong end"),
    ],
)
def test_a_run_that_is_not_what_the_host_did(
    bench: Bench, pieces: tuple[str, ...], end: Frame, kind: str
) -> None:
    bench.turn(*pieces)
    bench.both(*RUN[:3], end)
    assert kind in bench.found


def test_the_acknowledged_end_of_a_killed_host_is_seen(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.judge.dead.add("b")
    lost = frame(4, "run.failed", run_id="r1", error="gateway_lost")
    bench.truth.take({"boot": "b", "ack": 3})
    bench.both(*RUN[:3], lost)
    assert bench.found == []  # it was lost with the host's memory
    other = Bench()
    other.turn("a ", "b")
    other.judge.dead.add("b")
    other.truth.take({"boot": "b", "ack": 4})
    other.both(*RUN[:3], lost)
    assert other.found == ["lost"]


def test_acknowledged_text_of_a_killed_host_is_seen(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.judge.dead.add("b")
    bench.truth.take({"boot": "b", "ack": 3})
    bench.both(*RUN[:2], frame(4, "run.failed", run_id="r1", error="gateway_lost"))
    assert bench.found == ["wrong text"]


def test_a_run_that_nobody_saw(bench: Bench) -> None:
    bench.turn("a ", "b")
    bench.oracle.conclude()
    assert bench.found == ["lost"]


def test_a_run_without_an_end(bench: Bench) -> None:
    bench.both(*RUN[:2])
    bench.oracle.conclude()
    assert "lost" in bench.found


@pytest.mark.parametrize(
    ("done", "said", "wrong"),
    [
        (("deny", "c1"), ("applied", "deny", "remote"), False),
        (("once", "c1"), ("applied", "once", "remote"), False),
        (("once", None), ("applied", "once", "local"), False),
        (("timeout", None), ("expired", "deny", "timeout"), False),
        (("deny", "c1"), ("applied", "once", "remote"), True),
        (("once", "c1"), ("applied", "once", "local"), True),
        (("timeout", None), ("applied", "deny", "timeout"), True),
        (("once", "c1"), ("lost", "deny", "agent"), True),
        (None, ("applied", "once", "remote"), True),
    ],
)
def test_what_became_of_an_approval(
    bench: Bench, done: tuple[str, str | None] | None, said: tuple[str, str, str], wrong: bool
) -> None:
    bench.ask()
    bench.both(required(1))
    if done is not None:
        bench.decide(*done)
    late = dict(zip(("outcome", "choice", "decided_by"), said, strict=True))
    bench.judge.told("a1", {"state": "claimed", "choice": "once"})  # nothing is said of its end
    bench.judge.told("a1", late)
    bench.both(resolved(2, *said))
    assert bench.found == ["wrong outcome", "wrong outcome"] * wrong


def test_an_approval_that_ends_twice(bench: Bench) -> None:
    bench.ask()
    bench.decide("deny", "c1")
    end = ("applied", "deny", "remote")
    bench.both(required(1), resolved(2, *end), resolved(3, *end, ts=2.0))
    assert "twice" in bench.found


def test_an_approval_without_an_end(bench: Bench) -> None:
    bench.ask()
    bench.both(required(1))
    bench.oracle.conclude()
    assert "lost" in bench.found


def test_a_command_that_ran_twice(bench: Bench) -> None:
    bench.inject("c1")
    bench.inject("c1")
    bench.oracle.conclude()
    assert bench.found == ["ran twice"]


def asking(bench: Bench) -> Asking:
    asking = Asking("p", bench.truth, bench.violated)
    asking.device_id = "p"
    asking.new("session.send", text="hi")
    return asking


def answer(code: str = "", task_id: str = "t") -> Frame:
    if code:
        return frame(1, "error", code=code, request_id="p-0")
    return frame(1, "session.send.result", request_id="p-0", task_id=task_id)


@pytest.mark.parametrize(
    ("runs", "code", "kind"),
    [
        (1, "", None),
        (0, "gateway_offline", None),
        (1, "outcome_unknown", None),
        (0, "outcome_unknown", None),
        (0, "", "untrue answer"),
        (1, "gateway_offline", "untrue answer"),
        (2, "", "ran twice"),
    ],
)
def test_what_became_of_a_request(bench: Bench, runs: int, code: str, kind: str | None) -> None:
    asked = asking(bench)
    for number in range(runs):
        bench.inject(f"c{number}")
    asked.answer(answer(code))
    asked.conclude([])
    assert set(bench.found) == ({kind} if kind else set())


def test_two_answers_to_one_approval(bench: Bench) -> None:
    for command_id in ("c1", "c2"):
        args = {"approval_id": "a_call_1", "choice": "once"}
        bench.truth.take({"boot": "b", "run": command_id, "op": "approve", "args": args})
    bench.oracle.conclude()
    assert bench.found == ["ran twice"]


def test_a_request_with_another_answer_later(bench: Bench) -> None:
    asked = asking(bench)
    bench.inject("c1")
    asked.answer(answer())
    asked.answer(answer())
    assert bench.found == []
    asked.answer(answer(task_id="another"))
    assert bench.found == ["another answer"]


def test_a_request_without_an_answer(bench: Bench) -> None:
    asking(bench).conclude([])
    assert bench.found == ["no answer"]


def test_an_earlier_database_may_run_a_request_again(bench: Bench) -> None:
    asked = asking(bench)
    bench.inject("c1")
    asked.answer(answer())
    bench.truth.take({"boot": "b", "ack": 0})
    restored_at = bench.truth.lines
    asked.restored += 1
    bench.truth.take({"boot": "b", "ack": 0})
    bench.inject("c2")
    asked.answer(answer())
    asked.conclude([restored_at])
    assert bench.found == []


def test_an_answer_from_before_an_earlier_database_may_be_read_late(bench: Bench) -> None:
    asked = asking(bench)
    bench.inject("c1")
    bench.truth.take({"boot": "b", "ack": 0})
    restored_at = bench.truth.lines
    asked.restored += 1
    asked.answer(answer())
    bench.truth.take({"boot": "b", "ack": 0})
    bench.inject("c2")
    asked.answer(answer(task_id="another"))
    asked.conclude([restored_at])
    assert bench.found == []


@pytest.mark.parametrize(
    ("choice", "codes", "wrong"),
    [
        ("once", [""], False),
        ("once", ["outcome_unknown"], False),
        ("once", ["gateway_offline", ""], False),
        ("once", ["gateway_offline"], True),
        ("once", ["already_resolved"], True),
        ("deny", [""], True),
    ],
)
def test_an_approval_that_nobody_answered_so(
    bench: Bench, choice: str, codes: list[str], wrong: bool
) -> None:
    asked = Asking("p", bench.truth, bench.violated)
    asked.new("approval.resolve", approval_id="a1", choice=choice)
    bench.ask()
    bench.both(required(1))
    bench.decide("once", "c1")
    for code in codes:
        kind = "error" if code else "approval.resolve.result"
        asked.answer(frame(1, kind, code=code, request_id="p-0"))
    given: dict[str, set[str]] = {}
    for approval_id, word in asked.choices():
        given.setdefault(approval_id, set()).add(word)
    bench.judge.answers(given, [])
    assert bench.found == ["untrue answer"] * wrong
