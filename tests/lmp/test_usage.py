"""What the calls of a run took, summed."""

from __future__ import annotations

from typing import Any

import pytest

from loomid import hermes_words, wire
from loomid.lmp.usage import Tally, figures
from tests.support.folding import Driver
from tests.support.turns import KEY, STREAM_UP

TURN = "s1:s1:t1"
CALL = {
    "prompt_tokens": 105,
    "input_tokens": 70,
    "cache_read_tokens": 30,
    "cache_write_tokens": 5,
    "output_tokens": 9,
}


def end(*usages: dict[str, int] | None, window: int | None = None) -> dict[str, Any]:
    driver = Driver()
    driver.fact(STREAM_UP)
    driver.fact(wire.TurnStarted(TURN, "s1", KEY, "loomi", "m", "do it"))
    for call, usage in enumerate(usages, 1):
        driver.fact(wire.ApiStarted(TURN, "s1", call, "m", "p", "loomi"))
        driver.fact(wire.ApiEnded(TURN, call, "stop", "hi", usage, window), dt=0.3)
        driver.fact(
            wire.ApiEnded(TURN, call, "stop", "hi", usage, window)
        )  # told twice, counted once
    driver.fact(wire.TurnEnded(TURN, "s1", True, False, False, ""))
    driver.wait(1.0)
    (event,) = [event for event in driver.events if event.type == "run.completed"]
    payload: Any = event.payload
    return {n: getattr(payload.usage, n) for n in payload.usage.__struct_fields__}


def test_calls_are_summed() -> None:
    told = end({**CALL, "reasoning_tokens": 4}, CALL)
    assert (told["calls"], told["input_tokens"], told["output_tokens"]) == (2, 210, 18)
    assert (told["cached_tokens"], told["reasoning_tokens"]) == (60, 4)
    assert (told["context_tokens"], bool(told["context_window"])) == (105, False)


def test_the_context_is_that_of_the_last_call_that_told() -> None:
    told = end({"prompt_tokens": 7}, {"prompt_tokens": 9}, None, window=200)
    assert (told["context_tokens"], told["context_window"]) == (9, 200)


def test_what_hermes_does_not_tell_is_absent() -> None:
    told = end(None, {"total_tokens": 3})
    assert told.pop("calls") == 2
    assert not any(told.values())
    assert not Tally().usage()
    assert figures({"input_tokens": None, "output_tokens": 0}) == {"output_tokens": 0}


@pytest.mark.parametrize(
    ("said", "taken"),
    [
        ({"input_tokens": 3, "model": "x", "cost": 1.6}, {"input_tokens": 3, "cost": 2}),
        ({"input_tokens": -1, "output_tokens": float("nan")}, {}),
        ({"input_tokens": 10**300, "flag": True}, {"input_tokens": 2**53, "flag": 1}),
        (None, None),
        ("many", None),
    ],
)
def test_only_numbers_are_taken(said: object, taken: object) -> None:
    body = {"turn_id": "t", "api_call_count": 1, "finish_reason": "stop", "usage": said}
    body["assistant_message"] = "hi"
    assert hermes_words.body_of("api.ended", body)["usage"] == taken
