"""The checker itself, where questions are concerned: each promise, broken by hand, is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.asking import Asking
from tests.chaos.by_hand import Bench, closed, frame, question, required

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.frame import Frame

BLUE = [{"id": "q0", "selected": ["blue"]}]
RED = [{"id": "q0", "selected": ["red"]}]


@pytest.fixture
def bench() -> Bench:
    """The host asks, and no phone has been told."""
    made = Bench()
    made.ask_question()
    return made


@pytest.mark.parametrize("asked", [required, question])
def test_what_waits_and_is_not_asked_again(bench: Bench, asked: Callable[..., Frame]) -> None:
    bench.both(asked(1))
    bench.back()
    bench.phone.take(frame(2, "ping"))
    assert bench.found == ["not asked again"]


@pytest.mark.parametrize(
    ("done", "said", "wrong"),
    [
        (("answered", "c1"), ("answered", "remote"), False),
        (("cancelled", "c1"), ("cancelled", "remote"), False),
        (("answered", None), ("answered", "local"), False),
        (("timeout", None), ("timeout", "timeout"), False),
        (("cancelled", "c1"), ("answered", "remote"), True),
        (("answered", None), ("answered", "remote"), True),
        (("timeout", None), ("cancelled", "timeout"), True),
        (("answered", "c1"), ("lost", "agent"), True),
        (None, ("answered", "remote"), True),
    ],
)
def test_what_became_of_a_question(
    bench: Bench, done: tuple[str, str | None] | None, said: tuple[str, str], wrong: bool
) -> None:
    bench.both(question(1))
    bench.answer("c1", 1)
    if done is not None:
        bench.close(*done)
    bench.both(closed(2, *said))
    assert bench.found == ["wrong outcome"] * wrong


def test_a_question_of_a_killed_host_is_lost(bench: Bench) -> None:
    bench.judge.dead.add("b")
    bench.both(question(1), closed(2, "lost", "agent"))
    assert bench.found == []


@pytest.mark.parametrize(
    ("command_id", "answers", "wrong"),
    [
        ("c1", BLUE, False),
        ("c1", RED, True),
        ("c1", None, True),
        (None, None, False),
        (None, BLUE, True),
    ],
)
def test_which_answer_a_late_one_hears_of(
    bench: Bench, command_id: str | None, answers: Any, wrong: bool
) -> None:
    bench.both(question(1))
    bench.answer("c1", 1)
    bench.close("answered", command_id)
    by = "local" if command_id is None else "remote"
    late = {"state": "answered", "outcome": "answered", "decided_by": by}
    bench.judge.told("q1", late if answers is None else late | {"answers": answers})
    assert bench.found == ["wrong outcome"] * wrong


def test_a_question_that_ends_twice(bench: Bench) -> None:
    bench.close("timeout")
    end = ("timeout", "timeout")
    bench.both(question(1), closed(2, *end), closed(3, *end, ts=2.0))
    assert "twice" in bench.found


def test_a_question_without_an_end(bench: Bench) -> None:
    bench.both(question(1))
    bench.oracle.conclude()
    assert "lost" in bench.found


def test_two_answers_to_one_question(bench: Bench) -> None:
    bench.answer("c1", 0)
    bench.answer("c2", None)
    bench.oracle.conclude()
    assert bench.found == ["ran twice"]


def answered(bench: Bench, code: str, answers: Any, *, wrong: bool = False) -> None:
    """The host carries out that it is blue; a phone said `answers`, and hears `code`."""
    asked = Asking("p", bench.truth, bench.violated)
    asked.new("question.answer", wrong=wrong, question_id="q1", answers=answers)
    bench.both(question(1))
    bench.answer("c1", 1)
    bench.close("answered", "c1")
    kind = "error" if code else "question.answer.result"
    asked.answer(frame(1, kind, code=code, request_id="p-0"))
    bench.judge.answers({name: {said} for name, said in asked.choices()}, [])


@pytest.mark.parametrize(
    ("answers", "code", "found"),
    [
        (BLUE, "", []),
        (BLUE, "outcome_unknown", []),
        (RED, "", ["untrue answer"]),
        (BLUE, "already_resolved", ["untrue answer"]),
        (BLUE, "bad_answer", ["wrong answer", "untrue answer"]),
    ],
)
def test_a_question_that_nobody_answered_so(
    bench: Bench, answers: Any, code: str, found: list[str]
) -> None:
    answered(bench, code, answers)
    assert bench.found == found


@pytest.mark.parametrize(("code", "kind"), [("", "wrong answer"), ("bad_answer", "untrue answer")])
def test_what_is_no_answer_and_ends_a_question(bench: Bench, code: str, kind: str) -> None:
    answered(bench, code, BLUE, wrong=True)
    assert bench.found == [kind]


def test_what_is_no_answer_and_is_refused(bench: Bench) -> None:
    asked = Asking("p", bench.truth, bench.violated)
    asked.new("question.answer", wrong=True, question_id="q1", answers=[])
    asked.answer(frame(1, "error", code="bad_answer", request_id="p-0"))
    asked.conclude([])
    assert bench.found == []
