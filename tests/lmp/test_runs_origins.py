"""Whence runs and inputs come: the phones' messages that they answer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from loomid import wire
from loomid.lmp.frames import Origin
from tests.support.folding import brief
from tests.support.plain import (
    KEY,
    OLD_UP,
    answered,
    asked,
    driver,
    ended,
    failed,
    injected,
    runs_of,
    started,
)

FILE = {"attachment_id": "att_1", "media_type": "image/png", "bytes": 1, "name": "a.png"}


def test_origin_is_the_injected_message() -> None:
    d = driver()
    d.facts([injected("in1", "other"), injected("in2", "do it")])
    d.facts([wire.ProcessingStarted(KEY, "in2"), started(text="[me] do it"), asked()])
    p: Any = d.events[0].payload
    assert p.origin == Origin(device_id="dev_1", request_id="req_in2")


def test_a_message_waits_for_its_turn_over_a_night_of_sleep() -> None:
    d = driver()
    d.fact(injected("in1", "do it"))
    d.sleep(12 * 3_600)
    d.runs = d.recovered()
    d.facts([started(), asked()])
    p: Any = d.events[0].payload
    assert p.origin == Origin(device_id="dev_1", request_id="req_in1")


def test_a_message_that_was_folded_away_does_not_pass_for_the_origin() -> None:
    d = driver()
    folded = injected("in1", "do", "steer")  # no turn of ours ran yet
    d.facts([folded, injected("in2", "do it"), started(), asked()])
    p: Any = d.events[0].payload
    assert p.origin == Origin(device_id="dev_1", request_id="req_in2")


def test_steer_is_an_input_of_the_running_turn() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("say")[:2]])
    events = d.fact(injected("in2", "more", "steer", busy=True))
    assert brief(events) == [["input", "more"]]
    p: Any = events[0].payload
    assert p.origin == Origin(device_id="dev_1", request_id="req_in2")


def test_redirect_is_an_input_before_the_next_iteration() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("w0 w1 ")[:2]])
    d.fact(injected("in2", "no, that", "interrupt", busy=True))
    d.facts([wire.StreamEnded("s1:s1:t1", 1, "w0 w1 ", True, None), asked()])
    d.facts([*answered("\n\nnew"), ended()])
    assert runs_of(d.events)[1:] == [
        ["delta", "text", 1, "w0 w1"],
        ["input", "no, that"],
        ["delta", "text", 2, "new"],
        ["completed", "completed", "new", None, True],
    ]


@pytest.mark.parametrize("mode", ["steer", "interrupt"])
def test_files_wait_for_a_run_of_their_own(mode: str) -> None:
    """Also behind a message that is folded in (docs/hermes-support.md)."""
    d = driver()
    d.facts([started(), asked(), *answered("w0 w1 ")[:2]])
    d.fact(injected("in2", "look", mode, busy=True, attachments=[FILE]))
    d.fact(injected("in3", "no, that", "interrupt", busy=True))
    d.facts([wire.StreamEnded("s1:s1:t1", 1, "w0 w1 ", True, None), asked()])
    d.facts([*answered("new"), ended()])
    d.fact(wire.ProcessingStarted(KEY, "in2"))
    d.facts([started("s1:s1:t2", text="[a note]\n\nlook"), asked(turn="s1:s1:t2")])
    assert [row for row in brief(d.events) if row[0] == "input"] == [["input", "no, that"]]
    p: Any = next(e.payload for e in d.events[::-1] if e.type == "run.started")
    assert (p.prompt, p.origin.request_id) == ("look", "req_in2")
    assert [one.name for one in p.origin.attachments] == ["a.png"]


@pytest.mark.parametrize(("text", "files"), [("look", [FILE]), ("", [FILE]), ("look", None)])
def test_what_hermes_says_again_is_no_message_that_waits(
    text: str, files: list[dict[str, Any]] | None
) -> None:
    """It makes a turn of what was steered too late."""
    d = driver()
    d.facts([started(), asked(), injected("in1", "no, look", "steer", busy=True)])
    d.facts([injected("in2", text, busy=True, attachments=files), *answered("done"), ended()])
    d.facts([started("s1:s1:t2", text="no, look"), asked(turn="s1:s1:t2")])
    d.fact(ended(turn="s1:s1:t2"))
    d.fact(wire.ProcessingStarted(KEY, "in2"))
    d.facts([started("s1:s1:t3", text=f"[a note]\n\n{text}"), asked(turn="s1:s1:t3")])
    runs: list[Any] = [e.payload for e in d.events if e.type == "run.started"][1:]
    assert runs[0].prompt == "no, look"
    assert runs[1].prompt == (text if files else "[a note]\n\nlook")
    assert runs[0].origin is UNSET
    assert runs[1].origin.request_id == "req_in2"


def test_a_document_with_the_words_of_a_message_that_waits() -> None:
    d = driver()
    d.facts([injected("in1", "go on", "steer"), injected("in2", "look", attachments=[FILE])])
    read = "[a note]\n\nlook\n\n[Content of a.txt]:\n/stop\n\ngo on"
    d.facts([wire.ProcessingStarted(KEY, "in2"), started(text=read), asked()])
    p: Any = next(e.payload for e in d.events if e.type == "run.started")
    assert (p.prompt, p.origin.request_id) == ("look", "req_in2")


def test_interrupt_on_019_is_a_run_of_its_own() -> None:
    d = driver(OLD_UP)
    d.facts([injected("in1", "do it"), wire.ProcessingStarted(KEY, "in1"), started(), asked()])
    d.facts([injected("in2", "new", "interrupt", busy=True), ended(interrupted=True)])
    d.facts([started("s1:s1:t2", text="new"), asked(turn="s1:s1:t2")])
    d.facts([failed(turn="s1:s1:t2"), wire.ProcessingEnded(KEY, "in1", "success")])
    d.wait(1)
    rows = runs_of(d.events)
    assert [row[0] for row in rows] == ["started", "started", "completed", "failed"]
    assert brief(d.events)[-1] == ["task", "idle"]


def test_nested_processing_of_another_message_does_not_end_this_turn() -> None:
    """0.22 gives a queued message a processing of its own."""
    d = driver()
    d.facts([injected("in2", "do it"), wire.ProcessingStarted(KEY, "in2"), started(), asked()])
    d.facts([failed(), wire.ProcessingEnded(KEY, "in1", "success")])
    d.wait(10)
    assert d.runs.live()
    d.fact(wire.ProcessingEnded(KEY, "in2", "success"))
    assert runs_of(d.events)[-1] == ["failed", "Error 500"]
