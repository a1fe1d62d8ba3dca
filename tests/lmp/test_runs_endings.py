"""How runs end, each way once; whence they came; what goes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loomid import wire
from loomid.lmp import roll
from loomid.lmp.facts import GatewayDown, GatewayLost, GatewayUp, Tick
from loomid.lmp.frames import UNSET
from loomid.lmp.ids import task_id
from loomid.lmp.turns import OWN_SILENT_S, SILENT_S
from tests.support.folding import KEY as ID_KEY, Driver, brief
from tests.support.plain import (
    FOREIGN,
    KEY,
    UP,
    answered,
    asked,
    driver,
    ended,
    failed,
    injected,
    runs_of,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_started_tells_what_is_known() -> None:
    d = driver()
    prompt = "\n  First line\nsecond " + "x" * 3_000
    d.facts([started(text=prompt), asked()])
    p: Any = d.events[0].payload
    assert (p.title, p.surface, p.model, p.provider) == ("First line", "loomi", "m", "p")
    assert p.can == ["cancel", "pause", "resume", "send"]
    assert len(p.prompt) == 2_000
    assert p.truncated is True
    assert p.origin is UNSET
    assert d.events[0].task_id == task_id(ID_KEY, "gw", KEY) == p.task_id
    assert d.outcomes[-1].tasks[0].prompt == prompt
    assert d.runs.run(p.run_id) == d.runs.live()[0]


def test_starts_without_the_provider_after_the_drain() -> None:
    d = driver()
    d.fact(started())
    assert d.events == []
    d.wait(0.3)
    assert d.events[0].type == "run.started"
    assert d.events[0].ts == pytest.approx(d.now - 0.1, abs=0.01)


def test_what_hermes_does_aside_is_no_run() -> None:
    """It has the session of a turn that runs, calls a model and tools, and no turn.started."""
    aside = "s1:s1:t9"
    tool = "c9", "memory"
    d = driver()
    d.facts([started(), asked(), *answered()[:2]])
    d.facts([asked(turn=aside), *answered("reviewed", turn=aside)], dt=0.3)
    d.facts([wire.ToolStarted(aside, "s1", 1, *tool, "add"), wire.ToolEnded(aside, *tool, "ok", 1)])
    d.facts([failed(2, aside), wire.TurnAnswered(aside, "kept"), ended(aside)])
    d.facts([*answered()[2:], ended(), wire.Delta(aside, 2, "late", "text")])
    d.wait(0.5)
    told = list(d.events)
    assert runs_of(told)[1:] == [
        ["delta", "text", 1, "done"],
        ["completed", "completed", "done", None, True],
    ]
    assert {event.run_id for event in told if event.run_id} == {told[0].run_id}
    assert (d.runs.live(), d.runs.wants_running) == ([], None)
    d.wait(121)
    assert d.events == told
    assert len(d.stored) == 1
    assert d.ended == ["s1:s1:t1", aside]
    d.fact(wire.Delta(aside, 2, "late", "text"))
    assert d.runs.dropped["late"] == 1


def test_turn_started_may_come_last() -> None:
    d = driver()
    d.facts([asked(), *answered(), ended(), started()])
    assert runs_of(d.events) == [
        ["started", "do it", "loomi", "p", "cancel,pause,resume,send"],
        ["delta", "text", 1, "done"],
        ["completed", "completed", "done", None, True],
    ]


@pytest.mark.parametrize(
    ("end", "row"),
    [
        (ended(), ["completed", "completed", "done", None, True]),
        (ended(interrupted=True), ["completed", "cancelled", "done", None, False]),
        (ended(failed=True, reason="bad"), ["failed", "bad"]),
        (
            ended(completed=False, reason="max_iterations"),
            ["completed", "completed", "done", "max_iterations", False],
        ),
    ],
)
def test_turn_ended(end: wire.TurnEnded, row: list[Any]) -> None:
    d = driver()
    d.facts([started(), asked(), *answered(), end])
    assert runs_of(d.events)[-1] == row
    assert brief(d.events)[-1] == ["task", "idle"]


def test_truncated_answer_is_not_finished() -> None:
    d = driver()
    facts = answered()
    facts[-1] = wire.ApiEnded("s1:s1:t1", 1, "length", "done")
    d.facts([started(), asked(), *facts, ended()])
    assert runs_of(d.events)[-1] == ["completed", "completed", "done", None, False]


def test_failed_turn_of_ours_ends_with_its_processing() -> None:
    d = driver()
    d.facts([started(), asked(), failed(error="e" * 900)])
    d.wait(60)
    assert runs_of(d.events) == [["started", "do it", "loomi", "p", "cancel,pause,resume,send"]]
    d.fact(wire.ProcessingEnded(KEY, "in1", "success"))
    assert runs_of(d.events)[-1] == ["failed", "e" * 500]
    assert brief(d.events)[-1] == ["task", "idle"]


def test_failure_that_is_retried_is_no_end() -> None:
    d = driver()
    d.facts([started(), asked(), failed()])
    d.wait(17)
    d.facts([asked(), *answered()])
    d.facts([ended(), wire.ProcessingEnded(KEY, "in1", "success")])
    assert runs_of(d.events)[1:] == [
        ["delta", "text", 1, "done"],
        ["completed", "completed", "done", None, True],
    ]


def test_foreign_failed_turn_ends_when_it_no_longer_runs() -> None:
    d = driver()
    d.facts([started(key=FOREIGN, platform="telegram"), asked(platform="telegram")])
    assert d.runs.live()[0].can == ()
    assert d.runs.wants_running == d.now + 2
    d.fact(failed(), dt=5)
    assert d.runs.wants_running == d.now
    d.fact(wire.Running([FOREIGN]), dt=0.1)
    assert d.runs.live()
    d.fact(wire.Running([]), dt=2)
    d.wait(1)
    assert runs_of(d.events)[-1] == ["failed", "Error 500"]
    assert d.runs.wants_running is None


def test_list_made_while_a_turn_began_does_not_end_it() -> None:
    d = driver()
    d.facts([started(key=FOREIGN, platform="telegram"), asked(platform="telegram")])
    d.fact(wire.Running([]), dt=0.1)
    d.wait(0.5)
    assert d.runs.live()


def test_foreign_turn_may_be_cancelled_where_the_host_can() -> None:
    d = driver(GatewayUp("rig", "0.22.2", "0.1.0", ["stream", "cancel_foreign"], None))
    d.facts([started(key=FOREIGN, platform="telegram"), asked(platform="telegram")])
    assert d.runs.live()[0].can == ("cancel",)


def test_own_turn_is_asked_for_only_when_it_was_silent_for_long() -> None:
    d = driver()
    d.facts([injected("in1", "do it"), started(), asked(), *answered()])
    assert d.runs.wants_running == d.now + OWN_SILENT_S
    d.fact(wire.Running([]), dt=OWN_SILENT_S - 1)
    d.fact(wire.Running([KEY]), dt=1)
    d.wait(7 * 3_600)  # a tool takes its time
    assert d.runs.live()
    d.fact(wire.Running([]), dt=2)
    assert runs_of(d.events)[-1] == ["completed", "completed", "done", None, True]
    assert (d.runs.live(), d.runs.wants_running) == ([], None)


def test_turn_of_no_session_key_is_over_when_it_was_silent_for_very_long() -> None:
    d = driver()
    d.facts([started(key=None), asked()])
    assert d.runs.wants_running is None
    d.wait(SILENT_S - 1)
    assert d.runs.live()
    d.wait(2)
    assert d.runs.live() == []


def test_cron_turn_fails_after_two_silent_minutes() -> None:
    d = driver()
    cron = wire.TurnStarted("s7:s7:t1", "s7", KEY, "cron", "m", "report")
    d.facts([cron, asked(turn="s7:s7:t1", platform="cron"), failed(turn="s7:s7:t1")])
    view = d.runs.live()[0]
    assert (view.session_key, view.can) == (None, ())
    assert view.task_id == task_id(ID_KEY, "gw", "s7")
    d.wait(119)
    assert d.runs.live()
    d.wait(2)
    assert runs_of(d.events)[-1] == ["failed", "Error 500"]


def test_loop_stopped_and_cancelled_processing_cancel() -> None:
    for fact in (wire.LoopStopped(KEY, "stop"), wire.ProcessingEnded(KEY, "in1", "cancelled")):
        d = driver()
        d.facts([started(), asked(), *answered("half")[:2], fact])
        d.fact(ended(interrupted=True), dt=0.01)
        d.wait(1)
        assert runs_of(d.events)[-1] == ["completed", "cancelled", "half", None, False]


def test_gateway_lost_fails_the_runs_of_that_boot_only() -> None:
    d = driver()
    d.facts([started(), asked(), *answered()[:2]])
    d.boot = "boot2"
    d.facts([UP, started("s2:s2:t1", FOREIGN, platform="telegram"), asked(turn="s2:s2:t1")])
    d.boot = "boot"
    events = d.fact(GatewayLost(), dt=1)
    assert brief(events) == [["failed", "gateway_lost"], ["task", "idle"]]
    assert [view.turn_id for view in d.runs.live()] == ["s2:s2:t1"]
    d.fact(started("s3:s3:t1"))
    assert d.runs.dropped["late"] == 1


def test_nothing_follows_the_end() -> None:
    d = driver()
    d.facts([started(), asked(), *answered(), ended()])
    before = len(d.events)
    d.facts([*answered(), ended(), failed(), wire.ProcessingEnded(KEY, "in1", "success")])
    d.fact(GatewayLost())
    assert [e.type for e in d.events[before:]] == ["gateway.status"]
    assert d.runs.dropped["late"] == 6


def test_lost_end_of_a_handled_message_is_made_up() -> None:
    d = driver()
    d.facts([wire.Injected(KEY, "in1", "do it", "queue", False), started(), asked(), *answered()])
    d.fact(wire.ProcessingEnded(KEY, "in1", "success"))
    d.wait(6)
    assert runs_of(d.events)[-1] == ["completed", "completed", "done", None, True]


def test_ended_turns_are_released_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roll, "ENDED_KEPT", 1_000)
    d = driver()
    for number in range(1_100):
        turn = f"s1:s1:t{number}"
        d.facts([started(turn), asked(turn=turn), *answered(turn=turn), ended(turn)], dt=0.0)
        d.wait(31)
    assert len(d.stored) == 1
    assert len(d.runs._turns._ended) == 1_000
    assert len(d.runs._turns._by_run) == 1_000
    first, last = d.events[0].run_id, d.events[-2].run_id
    assert d.runs.run(str(first)) is None
    view = d.runs.run(str(last))
    assert view is not None
    assert not view.active
    assert d.runs.deadline is None
    d.runs = d.recovered()
    assert d.fact(started("s1:s1:t1099")) == []
    assert d.runs.run(str(last)) is None  # only the log knows its task


# ── retries ──


def test_retry_that_repeats_is_withheld() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("w0 w1 w2 ")[:2]])
    d.facts([wire.StreamEnded("s1:s1:t1", 1, "", False, "peer closed"), failed()])
    d.wait(17)
    before = len(d.events)
    d.facts([asked(), wire.StreamStarted("s1:s1:t1", 1, "s1", "m", "p", "loomi")])
    for piece in ("w0 ", "w1 ", "w2 "):
        d.fact(wire.Delta("s1:s1:t1", 1, piece, "text"), dt=0.1)
    assert len(d.events) == before
    d.facts([wire.Delta("s1:s1:t1", 1, "w3", "text")], dt=0.1)
    d.facts([wire.StreamEnded("s1:s1:t1", 1, "w0 w1 w2 w3", True, None), ended()])
    assert runs_of(d.events[before:]) == [
        ["delta", "text", 1, " w3"],
        ["completed", "completed", "w0 w1 w2 w3", None, True],
    ]


def test_retry_that_says_something_else_replaces_the_text() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("w0 w1 ")[:2]])
    d.facts([wire.StreamEnded("s1:s1:t1", 1, "", False, "peer closed"), failed()])
    d.wait(17)
    before = len(d.events)
    d.facts([asked(), *answered("w0 other words"), ended()])
    assert runs_of(d.events[before:]) == [
        ["text", 1, "w0 other words"],
        ["completed", "completed", "w0 other words", None, True],
    ]


def test_dropped_stream_that_goes_on_is_not_waited_for() -> None:
    """A delta of the next call shows that the failed one has all of its own."""
    d = driver()
    d.facts([started(), asked(), *answered("w0 ")[:2]])
    d.fact(wire.StreamEnded("s1:s1:t1", 1, "", False, "peer closed"))
    d.facts([asked(2), *answered("and on", 2)])
    d.facts([wire.TurnAnswered("s1:s1:t1", "w0 and on"), ended()])
    assert runs_of(d.events)[1:] == [
        ["delta", "text", 1, "w0 and on"],
        ["completed", "completed", "w0 and on", None, True],
    ]


def test_lost_deltas_are_made_good() -> None:
    d = driver()
    facts = answered("w0 ")
    facts[2:] = [wire.StreamEnded("s1:s1:t1", 1, "w0 w1 w2", True, None)]
    d.facts([started(), asked(), *facts, ended()])
    d.wait(1)
    assert runs_of(d.events)[1:] == [
        ["delta", "text", 1, "w0 w1 w2"],
        ["completed", "completed", "w0 w1 w2", None, True],
    ]
    facts[1] = wire.Delta("s1:s1:t1", 1, "w1 ", "text")
    d = driver()
    d.facts([started(), asked(), *facts, ended()])
    d.wait(1)
    assert runs_of(d.events)[2:] == [
        ["text", 1, "w0 w1 w2"],
        ["completed", "completed", "w0 w1 w2", None, True],
    ]


def test_tools_wait_for_the_text_before_them_at_most_the_drain() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("w0 ")[:2]])
    tool = wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "ls")
    assert d.fact(tool) == []
    events = d.wait(0.3)
    assert runs_of(events) == [["interim", "w0", True], ["tool", 1, 0, "terminal", "ls"]]
    assert events[0].ts == pytest.approx(d.now - 0.1, abs=0.01)


def test_tool_end_without_a_start_is_dropped_and_ids_may_repeat() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("")])
    end = wire.ToolEnded("s1:s1:t1", "c0", "terminal", "error", None)
    d.fact(end)
    assert d.runs.dropped["unpaired_tool_end"] == 1
    for number in range(2):
        d.fact(wire.ToolStarted("s1:s1:t1", "s1", 0, "c0", "terminal", "ls"))
        p: Any = d.fact(end, dt=1.5)[0].payload
        assert (p.index, p.ok, p.duration) == (number, False, pytest.approx(1.5))


# ── the gateway ──


def test_gateway_status_once_for_each_change() -> None:
    d = Driver()
    for fact in (UP, UP, GatewayDown(), GatewayDown(), UP, GatewayLost(), GatewayLost()):
        d.fact(fact, dt=1)
    assert [(e.payload.online, e.payload.since - 1_000) for e in d.events] == [
        (True, 1),
        (False, 3),
        (True, 5),
        (False, 6),
    ]
    d.boot = "boot2"
    d.fact(UP)
    d.boot = "boot"
    d.fact(GatewayLost())
    assert [e.payload.online for e in d.events][4:] == [True]


def test_flapping_gateway_keeps_few_facts() -> None:
    d = Driver()
    for _ in range(100):
        d.facts([UP, GatewayDown()], dt=1)
    assert len(d.stored) <= 4


@pytest.mark.parametrize("restart", [lambda d: None, lambda d: d.recovered()])
def test_reset_keeps_the_task(restart: Callable[[Driver], Any]) -> None:
    d = driver()
    d.fact(wire.SessionReset("s1", "s2", "new_session", KEY))
    seen = d.outcomes[-1].tasks[0]
    assert (seen.task_id, seen.session_id) == (task_id(ID_KEY, "gw", KEY), "s2")
    d.runs = restart(d) or d.runs
    d.facts([wire.TurnStarted("s2:s2:t1", "s2", KEY, "loomi", "m", "hi"), Tick()], dt=1)
    assert d.events[0].task_id == seen.task_id
