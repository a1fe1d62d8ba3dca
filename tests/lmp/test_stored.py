"""What Hermes stores of turns that went otherwise, as each release does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loomid.lmp.stored import Row, beginning_of, begins, calls_of, content_of, json_of, turn_of
from loomid.lmp.text import TEXT_CHARS

ASIDE = "[System: The previous response was cut off by a network error mid-stream. Continue.]"


def row(role: Any, text: str = "", *, calls: tuple[str, ...] = (), **more: Any) -> Row:
    told = [{"id": one, "function": {"name": "terminal", "arguments": "{}"}} for one in calls]
    fields = {"id": 1, "session_id": "s1", "ts": 1.0, "content": content_of(text, TEXT_CHARS)}
    return Row(role=role, **{**fields, "calls": calls_of(told), **more})


def turns(*rows: Row) -> list[Any]:
    found: list[list[Row]] = []
    for older, one in zip([None, *rows], rows, strict=False):
        if begins(one, older):
            found.append([])
        found[-1].append(one)
    return [turn_of(each, "turn") for each in found]


def texts(turn: Any) -> list[tuple[str, Any]]:
    return [(part.part, part.text) for part in turn.parts if part.kind == "text"]


def test_a_turn_that_failed_without_a_trace() -> None:
    """0.19 and 0.20 keep the message alone."""
    failed, next_ = turns(
        row("user", "a"), row("user", "b"), row("assistant", "c", finish_reason="stop")
    )
    assert (failed.partial, failed.parts, failed.prompt) == (True, [], "a")
    assert (next_.status, texts(next_)) == ("completed", [("text:0", "c")])


def test_a_turn_that_failed_as_0_22_says_it() -> None:
    """Its words for the model are no words of the model."""
    (failed,) = turns(row("user", "a"), row("assistant", "Not processed.", display="failed_turn"))
    assert (failed.partial, failed.parts) == (True, [])


def test_a_text_that_was_cut_off_is_kept_as_far_as_hermes_kept_it() -> None:
    (turn,) = turns(row("user", "a"), row("assistant", "half of"))
    assert (turn.partial, texts(turn)) == (True, [("text:0", "half of")])


def test_a_turn_that_was_stopped_in_a_tool() -> None:
    rows = [
        row("user", "a"),
        row("assistant", calls=("c1", "c2"), finish_reason="tool_calls"),
        row("tool", "BLOCKED", call_id="c1", ok=False),
    ]
    for end in (row("assistant", "Operation interrupted."), row("assistant", display="hidden")):
        (turn,) = turns(*rows, end)
        known, cut_off = turn.parts
        assert (turn.partial, texts(turn)) == (True, [])
        assert (known.status or None, known.result) == (None, "BLOCKED")
        assert cut_off.status == "cancelled"


def test_an_answer_that_was_cut_short_and_went_on() -> None:
    (turn,) = turns(
        row("user", "a"),
        row("assistant", "one ", finish_reason="length"),
        row("user", ASIDE),
        row("assistant", "two", finish_reason="stop"),
    )
    assert (texts(turn), turn.inputs or []) == ([("text:0", "onetwo")], [])
    assert (turn.status, turn.finished) == ("completed", True)


def test_an_answer_that_the_length_limit_ended() -> None:
    (turn,) = turns(row("user", "a"), row("assistant", "one", finish_reason="length"))
    assert (turn.status, turn.finished) == ("completed", False)


def test_an_aside_after_an_answer_is_a_message() -> None:
    """Users may write so, too."""
    _, turn = turns(
        row("user", "a"), row("assistant", "b", finish_reason="stop"), row("user", ASIDE)
    )
    assert turn.prompt == ASIDE


def test_a_message_that_was_folded_in() -> None:
    (turn,) = turns(
        row("user", "a"),
        row("assistant", display="hidden", ts=2.0),
        row("user", "b", ts=2.0001),
        row("assistant", calls=("c1",), finish_reason="tool_calls"),
        row("user", "c", display="steer", ts=9.0),
        row("assistant", "d", finish_reason="stop"),
    )
    assert (turn.prompt, turn.inputs) == ("a", ["b", "c"])
    assert texts(turn) == [("text:1", "d")]


def test_a_message_after_a_turn_that_was_stopped_is_no_part_of_it() -> None:
    first, second = turns(
        row("user", "a"), row("assistant", display="hidden", ts=2.0), row("user", "b", ts=5.0)
    )
    assert (first.partial, second.prompt) == (True, "b")


def test_a_turn_that_no_user_began() -> None:
    (turn,) = turns(
        row("user", "a job has ended", display="async_delegation_complete"),
        row("assistant", "ok", finish_reason="stop"),
    )
    assert (turn.prompt or None, turn.status) == (None, "completed")


def test_a_result_without_a_call_is_left_out() -> None:
    (turn,) = turns(row("tool", "x", call_id="c1"), row("assistant", "b", finish_reason="stop"))
    assert [part.part for part in turn.parts] == ["text:0"]


def test_a_result_belongs_to_the_newest_call_of_that_id() -> None:
    (turn,) = turns(
        row("user", "a"),
        row("assistant", calls=("c",), finish_reason="tool_calls"),
        row("tool", "one", call_id="c", ok=True),
        row("assistant", calls=("c",), finish_reason="tool_calls"),
        row("tool", "two", call_id="c", ok=False),
        row("assistant", "b", finish_reason="stop"),
    )
    tools = [(part.part, part.result, part.status) for part in turn.parts if part.kind == "tool"]
    assert tools == [("tool:c", "one", "completed"), ("tool:c#2", "two", "failed")]


@pytest.mark.parametrize("read", [json_of, beginning_of])
def test_what_is_nested_too_deep_is_left_out(read: Callable[[str], object]) -> None:
    """A model that ran away must not make a task's history unreadable."""
    assert not read("[" * 100_000)


def test_arguments_that_are_nested_too_deep_leave_the_call() -> None:
    function = {"name": "terminal", "arguments": '{"a":' + "[" * 100_000}
    (call,) = calls_of([{"id": "c1", "function": function}])
    assert (call.call_id, call.tool) == ("c1", "terminal")
