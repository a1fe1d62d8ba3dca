"""What is sent to our chats: a run's own text is never told twice, the rest is news."""

from __future__ import annotations

from typing import Any

import pytest

from loomid import wire
from loomid.lmp.ids import task_id
from tests.support.folding import KEY as ID_KEY, Driver, brief
from tests.support.plain import (
    KEY,
    OLD_UP,
    answered,
    asked,
    driver,
    ended,
    failed,
    injected,
    started,
)


def sent(text: str = "hello", **more: Any) -> wire.Sent:
    row: dict[str, Any] = {
        "chat_id": "chat",
        "session_key": KEY,
        "message_id": "out1",
        "reply_to": None,
        "notify": False,
        "expect_edits": False,
        "interim": False,
        "job_id": None,
    }
    return wire.Sent(text=text, **(row | more))


def running() -> Driver:
    d = driver()
    d.facts([injected("in1", "do it"), started(), asked(), *answered("the answer")])
    d.events.clear()
    return d


def over(how: wire.TurnEnded | None = None) -> Driver:
    d = running()
    d.fact(how or ended())
    d.wait(0.5)
    d.events.clear()
    return d


OWN = [
    sent("the answer", notify=True, reply_to="in1"),
    sent("the ans ▉", expect_edits=True, reply_to="in1"),
    sent("the answer", interim=True),
    sent("the answer"),
    sent("\n\nthe answer", notify=True),
    sent("changed by a plugin", notify=True, reply_to="in1"),
]


@pytest.mark.parametrize("fact", OWN)
@pytest.mark.parametrize("make", [running, over])
def test_what_the_run_told_is_not_told_again(fact: wire.Sent, make: Any) -> None:
    d = make()
    assert d.fact(fact) == []


def test_what_hermes_says_afterwards_is_news() -> None:
    """0.22 marks what a review came to as it marks what is sent amid a run."""
    for interim in (False, True):
        (event,) = over().fact(sent("Memory updated", interim=interim))
        assert brief([event]) == [["notification", "diagnostic", "gateway", "Memory updated"]]


def test_edits_of_it_are_not_told_either() -> None:
    for d in (running(), over()):
        for finalize in (False, True):
            assert d.fact(wire.Edited("chat", "out1", "the answer", finalize)) == []


def test_cron_result_even_amid_a_run() -> None:
    d = running()
    (event,) = d.fact(sent("Report\nall " + "x" * 3_000, job_id="job1", notify=True))
    p: Any = event.payload
    assert (p.category, p.source, p.title) == ("result", "cron", "Report")
    assert (len(p.text), p.truncated, p.requires_attention) == (2_000, True, False)
    assert event.task_id == task_id(ID_KEY, "gw", KEY)


def test_command_reply() -> None:
    for d in (driver(), running(), over()):
        d.fact(injected("in7", "/status", "command"))
        d.events.clear()
        events = d.fact(sent("All well", notify=True, reply_to="in7"))
        assert brief(events) == [["notification", "result", "command", "All well"]]


def test_other_sends_are_diagnostics() -> None:
    for d in (driver(), running(), over()):
        assert brief(d.fact(sent("Gateway restarts"))) == [
            ["notification", "diagnostic", "gateway", "Gateway restarts"]
        ]


def test_without_a_session_key_the_chat_tells() -> None:
    d = running()
    assert d.fact(sent("the answer", session_key=None)) == []
    assert d.fact(sent("other", session_key=None, chat_id="chat9")) != []


def test_tool_chatter_is_dropped() -> None:
    d = running()
    d.fact(wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "echo one"))
    d.events.clear()
    assert d.fact(sent("still working")) == []
    d.fact(wire.ToolEnded("s1:s1:t1", "c0", "terminal", "ok", 1.0))
    d.events.clear()
    assert d.fact(sent("💻\n```\necho one\n```")) == []
    assert d.fact(sent("Context is nearly full")) != []


def test_error_texts_of_a_failed_run_are_dropped() -> None:
    d = running()
    d.facts([asked(2), failed(2)])
    d.events.clear()
    assert d.fact(sent("The provider failed")) == []
    assert d.fact(sent("The provider failed. Use /retry", notify=True, reply_to="in1")) == []
    d.fact(wire.ProcessingEnded(KEY, "in1", "success"))
    d.wait(0.5)
    d.events.clear()
    assert d.fact(sent("The provider failed")) == []
    d.wait(3)
    assert d.fact(sent("Something else")) != []


def test_reply_to_a_stop_is_dropped() -> None:
    d = over(ended(interrupted=True))
    assert d.fact(sent("Stopped.", notify=True, reply_to="stop1")) == []


def test_reply_to_the_stop_of_a_cancel_is_dropped() -> None:
    """The plugin hands /stop in as a command, but no phone wrote it."""
    for d in (running(), over(ended(interrupted=True))):
        d.fact(wire.Injected(KEY, "stop-1", "/stop", "command", True))
        d.events.clear()
        assert d.fact(sent("Stopped.", notify=True, reply_to="stop-1")) == []


def test_runs_are_forgotten_after_a_while() -> None:
    d = over()
    d.wait(31)
    assert d.fact(sent("the answer", notify=True, reply_to="in1")) != []


def test_last_edit_of_a_notification_is_told() -> None:
    d = driver()
    d.fact(sent("Working"))
    d.events.clear()
    assert d.fact(wire.Edited("chat", "out1", "Working 2", False)) == []
    events = d.fact(wire.Edited("chat", "out1", "Done", True))
    assert brief(events) == [["notification", "diagnostic", "gateway", "Done"]]


def test_nothing_is_said_of_an_empty_text() -> None:
    assert driver().fact(sent(" \n")) == []


# ── 0.19: the sends are the stream ──


def old(text: str | None = None, tools: int = 0) -> Driver:
    d = driver(OLD_UP)
    d.facts([injected("in1", "do it"), started(), asked()])
    if text is not None:
        d.fact(wire.ApiEnded("s1:s1:t1", 1, "tool_calls" if tools else "stop", text))
    d.events.clear()
    return d


def preview(text: str, message: str = "out1", **more: Any) -> wire.Sent:
    return sent(text, message_id=message, expect_edits=True, reply_to="in1", **more)


def test_previews_are_diffed() -> None:
    d = old()
    d.fact(preview("w0 w1  ▉"))
    d.fact(wire.Edited("chat", "out1", "w0 w1 w2  ▉", False), dt=0.7)
    d.fact(wire.Edited("chat", "out1", "w0 w1 ▉", False), dt=0.7)
    d.fact(wire.Edited("chat", "out1", "w0 w1 w2 w3 ", True), dt=0.7)
    assert [row[3] for row in brief(d.events[:1]) + brief(d.events[1:2])] == ["w0 w1", " w2"]
    assert brief(d.events) == [["delta", "text", 1, "w0 w1 w2 w3"]]


def test_retracted_preview_is_restated() -> None:
    d = old()
    d.fact(preview("w0 w1 w2 ▉"))
    d.fact(wire.Edited("chat", "out1", "other", True), dt=0.7)
    assert brief(d.events) == [["delta", "text", 1, "w0 w1 w2"], ["text", 1, "other"]]


def test_text_that_hooks_gave_is_not_previewed_again() -> None:
    d = old("preamble", tools=1)
    d.fact(wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "ls"))
    d.fact(preview("preamble", notify=True))
    d.facts([wire.ToolEnded("s1:s1:t1", "c0", "terminal", "ok", 1.0), asked(2)])
    d.fact(preview("\n\nthe an ▉", "out2"))
    d.fact(wire.Edited("chat", "out1", "preamble", True))
    d.fact(wire.Edited("chat", "out2", "\n\nthe answer ▉", False), dt=1)
    d.fact(wire.ApiEnded("s1:s1:t1", 2, "stop", "the answer!"))
    d.facts([wire.TurnAnswered("s1:s1:t1", "the answer!"), ended()])
    d.fact(wire.Edited("chat", "out2", "\n\nthe answer!", True))
    assert [row for row in brief(d.events) if row[0] != "task"] == [
        ["interim", "preamble", True],
        ["tool", 1, 0, "terminal", "ls"],
        ["tool end", 1, 0, "terminal", True],
        ["delta", "text", 2, "the answer!"],
        ["completed", "completed", "the answer!", None, True],
    ]


def test_late_preview_of_an_earlier_iteration_restates_it() -> None:
    d = old()
    d.facts([wire.ApiEnded("s1:s1:t1", 1, "tool_calls", None)])
    d.fact(wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "ls"))
    d.fact(preview("pre ▉"))
    d.wait(0.3)
    d.facts([wire.ToolEnded("s1:s1:t1", "c0", "terminal", "ok", 1.0), asked(2)])
    d.fact(preview("new ▉", "out2"))
    d.fact(wire.Edited("chat", "out1", "preamble", True))
    rows = [row for row in brief(d.events) if row[0] in ("delta", "text")]
    assert rows == [
        ["delta", "text", 1, "pre"],
        ["delta", "text", 2, "new"],
        ["text", 1, "preamble"],
    ]


def test_an_answer_is_not_taken_for_the_text_of_a_call_that_only_used_tools() -> None:
    """The tool may be done and the answer sent before anything has been waited for."""
    d = old()
    d.facts([
        wire.ApiEnded("s1:s1:t1", 1, "tool_calls", ""),
        wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "ls"),
        wire.ToolEnded("s1:s1:t1", "c0", "terminal", "ok", 1.0),
        asked(2),
        preview("the an ▉"),
        wire.ApiEnded("s1:s1:t1", 2, "stop", "the answer"),
        wire.Edited("chat", "out1", "the answer", True),
        wire.TurnAnswered("s1:s1:t1", "the answer"),
        ended(),
    ])  # fmt: skip
    assert [row for row in brief(d.events) if row[0] != "task"] == [
        ["tool", 1, 0, "terminal", "ls"],
        ["tool end", 1, 0, "terminal", True],
        ["delta", "text", 2, "the answer"],
        ["completed", "completed", "the answer", None, True],
    ]


def test_a_blank_message_shows_no_text() -> None:
    """It comes when later texts are known, and theirs still come after it."""
    d = old("", tools=1)
    d.facts([asked(2), wire.ApiEnded("s1:s1:t1", 2, "tool_calls", "ah ah ah"), asked(3)])
    d.facts([preview("\n ▉"), wire.Edited("chat", "out1", "\n", True)])
    d.facts([preview("\n\nah ▉", "out2"), wire.Edited("chat", "out2", "\n\nah ah ah ", True)])
    d.facts([preview("\n\nah ▉", "out3"), wire.Edited("chat", "out3", "\n\nah ah ▉", False)])
    d.fact(wire.ApiEnded("s1:s1:t1", 3, "stop", "ah ah"))
    d.facts([wire.Edited("chat", "out3", "\n\nah ah ", True), ended()])
    assert [row for row in brief(d.events) if row[0] != "task"] == [
        ["delta", "text", 2, "ah ah ah"],
        ["delta", "text", 3, "ah ah"],
        ["completed", "completed", "ah ah", None, True],
    ]


def test_messages_come_in_the_order_of_the_texts() -> None:
    """A text that had no message of its own is not what a later message shows."""
    d = old("ah ah")
    d.facts([asked(2), preview("beta ▉", "out2")])
    d.facts([wire.ApiEnded("s1:s1:t1", 2, "tool_calls", "beta"), asked(3)])
    d.facts([preview("ah ▉", "out3"), wire.Edited("chat", "out3", "ah ah ga ▉", False)])
    d.wait(0.1)
    assert [row for row in brief(d.events) if row[0] != "task"] == [
        ["delta", "text", 2, "beta"],
        ["delta", "text", 3, "ah ah ga"],
    ]


def test_without_edits_the_whole_message_is_the_text() -> None:
    d = old()
    assert brief(d.fact(sent("the answer", notify=True, reply_to="in1"))) == [
        ["delta", "text", 1, "the answer"]
    ]


def test_error_text_is_no_answer() -> None:
    d = old()
    d.fact(failed())
    assert d.fact(sent("The provider failed", notify=True, reply_to="in1")) == []
