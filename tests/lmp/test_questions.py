"""Questions: clean labels, and every way in which an answer can be wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from loomid import wire
from loomid.errors import BadAnswer
from loomid.lmp import questions
from loomid.lmp.asks import Asks
from loomid.lmp.frames import Answer, Question

KEY = b"k" * 32


def fact(*cards: wire.Card, source: str = "clarify", **more: Any) -> wire.QuestionAsked:
    fields: dict[str, Any] = {"session_id": "s", "turn_id": "t", "call_id": "c1", "title": ""}
    fields |= {"session_key": "k", "timeout_s": 60.0} | more
    return wire.QuestionAsked("q1", source, questions=list(cards), **fields)


def shown(*choices: str, **more: Any) -> Question:
    (question,) = questions.shown(fact(wire.Card("Which?", list(choices), **more)))
    return question


def labels(*choices: str) -> list[str]:
    return [option.label for option in shown(*choices).options]


BATCH = questions.shown(
    fact(
        wire.Card("One of?", ["red (Recommended)", "blue"]),
        wire.Card("Some of?", ["S", "M", "L"], multi_select=True),
        wire.Card("What for?", None),
    )
)
(CONFIRM,) = questions.shown(
    fact(wire.Card("Sure?", ["once", "always", "cancel"]), source="confirm", title="/new")
)
RIGHT = [
    Answer(id="q0", selected=["blue"]),
    Answer(id="q1", selected=["L", "S"], custom=" XL "),
    Answer(id="q2", selected=[], custom="fun"),
]


def test_all_that_is_asked_is_shown() -> None:
    assert [question.id for question in BATCH] == ["q0", "q1", "q2"]
    assert [question.multi_select for question in BATCH] == [False, True, False]
    assert all(question.custom for question in BATCH)
    assert [option.label for option in BATCH[0].options] == ["red", "blue"]
    assert BATCH[2].options == []


def test_a_confirmation_says_what_its_choices_mean() -> None:
    assert [option.label for option in CONFIRM.options] == [
        "Yes, this time",
        "Yes, and never ask again",
        "No",
    ]
    assert (CONFIRM.header, CONFIRM.custom, CONFIRM.multi_select) == ("/new", False, False)
    place = questions.places([CONFIRM], [Answer(id="q0", selected=["Yes, and never ask again"])])
    assert place == [{"selected": [1]}]


@pytest.mark.parametrize(
    ("choices", "clean"),
    [
        (["red (Recommended)", "blue"], ["red", "blue"]),
        (["red (recommended) ", " blue"], ["red", "blue"]),
        (["red", "blue (Recommended)"], ["red", "blue (Recommended)"]),
        (["red (Recommended)"], ["red (Recommended)"]),  # Hermes marks no lone choice
        (["blue (Recommended)", "blue"], ["blue", "blue (2)"]),
        (["a", "a", "a (2)"], ["a", "a (2)", "a (2) (2)"]),
        (["(Recommended)", ""], ["1", "2"]),
    ],
)
def test_labels_are_clean_and_no_two_alike(choices: list[str], clean: list[str]) -> None:
    assert labels(*choices) == clean


@given(st.lists(st.text(max_size=8) | st.sampled_from(["a", "a (2)", "a (Recommended)"])))
def test_any_labels_can_be_told_apart(choices: list[str]) -> None:
    found = labels(*choices)
    assert len(set(found)) == len(found) == len(choices)
    assert all(found)
    for place, label in enumerate(found):
        answer = [Answer(id="q0", selected=[label])]
        assert questions.places([shown(*choices)], answer) == [{"selected": [place]}]


def test_what_is_too_long_is_cut_and_says_so() -> None:
    label = "x" * (questions.LABEL_CHARS + 1)
    question = shown(label, label + "y")
    assert question.truncated is True
    assert len({option.label for option in question.options}) == 2
    assert max(len(option.label) for option in question.options) <= questions.LABEL_CHARS + 4
    assert shown("x").truncated is UNSET
    (long,) = questions.shown(fact(wire.Card("?" * 70_000, None)))
    assert long.truncated is True
    assert len(long.question) < 66_000


def test_an_answer_goes_back_by_its_places() -> None:
    assert questions.places(BATCH, RIGHT) == [
        {"selected": [1]},
        {"selected": [2, 0], "custom": "XL"},
        {"selected": [], "custom": "fun"},
    ]
    none = [RIGHT[0], Answer(id="q1", selected=[]), RIGHT[2]]
    assert questions.places(BATCH, none)[1] == {"selected": []}


def wrong(place: int, **answer: Any) -> list[Answer]:
    """The right answers but one."""
    said = {"id": f"q{place}", "selected": []} | answer
    return [*RIGHT[:place], Answer(**said), *RIGHT[place + 1 :]]


@pytest.mark.parametrize(
    ("answers", "reason", "id_"),
    [
        ([], "count", None),
        (RIGHT[:2], "count", None),
        ([*RIGHT, RIGHT[2]], "count", None),
        ([RIGHT[1], RIGHT[0], RIGHT[2]], "order", None),
        (wrong(2, id="q9", custom="fun"), "ids", None),
        (wrong(1, id="q0"), "ids", None),
        (wrong(0, selected=["green"]), "unknown_label", "q0"),
        (wrong(0, selected=["Blue"]), "unknown_label", "q0"),
        (wrong(0, selected=["red (Recommended)"]), "unknown_label", "q0"),
        (wrong(2, selected=["fun"]), "unknown_label", "q2"),
        (wrong(1, selected=["S", "S"]), "duplicate", "q1"),
        (wrong(0, selected=["red", "blue"]), "one_choice", "q0"),
        (wrong(0, selected=["red"], custom="also"), "custom_and_selected", "q0"),
        (wrong(0, custom=""), "empty_custom", "q0"),
        (wrong(1, selected=["S"], custom=" \t\n"), "empty_custom", "q1"),
        (wrong(0), "nothing", "q0"),
        (wrong(2), "nothing", "q2"),
    ],
)
def test_a_wrong_answer_is_refused_with_its_reason(
    answers: list[Answer], reason: str, id_: str | None
) -> None:
    with pytest.raises(BadAnswer) as refused:
        questions.places(BATCH, answers)
    assert refused.value.params == {"reason": reason} | ({"id": id_} if id_ else {})


def test_an_answer_may_leave_out_what_it_does_not_say() -> None:
    said = msgspec.json.decode(b'[{"id": "q0"}]', type=list[Answer])
    with pytest.raises(BadAnswer) as refused:
        questions.places(BATCH[:1], said)
    assert refused.value.params == {"reason": "nothing", "id": "q0"}
    assert msgspec.to_builtins(said) == [{"id": "q0", "selected": []}]


@pytest.mark.parametrize(
    ("place", "text", "selected", "custom"),
    [
        (0, "blue", ["blue"], None),
        (0, "2", ["blue"], None),
        (0, "red, blue", [], "red, blue"),
        (0, "something else", [], "something else"),
        (0, "2nd", [], "2nd"),
        (1, "S, 3", ["S", "L"], None),
        (1, "M", ["M"], None),
        (1, "S and L", [], "S and L"),
        (2, "7", [], "7"),
    ],
)
def test_what_a_person_types(
    place: int, text: str, selected: list[str], custom: str | None
) -> None:
    answer = Answer(id=f"q{place}", selected=selected, custom=custom)
    assert questions.typed(BATCH[place], text) == answer


@pytest.mark.parametrize(("place", "text"), [(0, "7"), (0, "0"), (1, "1,4")])
def test_the_number_of_no_option(place: int, text: str) -> None:
    with pytest.raises(ValueError, match="there is no option"):
        questions.typed(BATCH[place], text)


def test_an_option_that_is_a_number() -> None:
    years = shown("2024", "2025")
    assert questions.typed(years, "2025").selected == ["2025"]
    assert questions.typed(years, "1").selected == ["2024"]


def test_a_confirmation_takes_no_words() -> None:
    with pytest.raises(BadAnswer) as refused:
        questions.places([CONFIRM], [Answer(id="q0", selected=[], custom="maybe")])
    assert refused.value.params["reason"] == "custom_not_allowed"


@pytest.mark.parametrize(
    ("timeout_s", "deadline"), [(60.0, 160.0), (0.0, UNSET), (-1.0, UNSET), (None, UNSET)]
)
def test_hermes_waits_for_ever_where_it_has_no_time_limit(
    timeout_s: float | None, deadline: Any
) -> None:
    ask = Asks("gw", KEY).ask("b", 100.0, fact(wire.Card("?", None), timeout_s=timeout_s), None)
    assert ask is not None
    assert ask.required().deadline_ts == deadline


@pytest.mark.parametrize(
    ("done", "outcome", "decided_by"),
    [
        (("answered", "t:gw:b"), "answered", "remote"),
        (("answered", "t:gw:b:loomictl"), "answered", "local"),
        (("answered", None), "answered", "local"),
        (("cancelled", "t:gw:b"), "cancelled", "remote"),
        (("cancelled", None), "cancelled", "local"),
        (("timeout", None), "timeout", "timeout"),
        (("of_a_newer_shim", None), "cancelled", "local"),
    ],
)
def test_whom_phones_are_told_of(
    done: tuple[str, str | None], outcome: str, decided_by: str
) -> None:
    asks = Asks("gw", KEY)
    asks.ask("b", 100.0, fact(wire.Card("?", None)), None)
    ended = asks.done("b", wire.QuestionDone("q1", *done))
    assert ended is not None
    told = ended[1]
    assert (told.outcome, told.decided_by) == (outcome, decided_by)
    assert asks.done("b", wire.QuestionDone("q1", *done)) is None
