"""Parts of a run: told live and read from history they are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET

from loomid import wire
from loomid.lmp import ids
from loomid.lmp.facts import Arrival, FileTaken, Tick
from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.frames import Event
from loomid.lmp.payload import Payload
from loomid.lmp.projection import Projection
from loomid.lmp.recalled import RecallSent
from tests.support.folding import KEY as SECRET, Driver
from tests.support.stored import common, history, stored, told
from tests.support.traces import RELEASES, replay
from tests.support.turns import (
    EDITS_UP,
    KEY,
    STREAM_UP,
    Script,
    edited_turns,
    numbered,
    orders,
    turns,
)

TURN = "s1:s1:t1"
REF = AttachmentRef(attachment_id="att_1", media_type="image/png", bytes=9, name="a.png", width=3)


def live(script: Script, data: st.DataObject, up: Any) -> list[Event]:
    driver = Driver()
    driver.fact(up)
    order = data.draw(orders(script))
    for arrival in numbered(order):
        driver.take(arrival)
    driver.now = max(driver.now, order[-1][0])
    driver.wait(10.0)
    return [event for event in driver.events if event.run_id is not None]


@settings(max_examples=150, deadline=None)
@given(turns(), st.data())
def test_live_and_history_are_the_same(script: Script, data: st.DataObject) -> None:
    run, turn = told(live(script, data, STREAM_UP)), history(stored(script))
    assert run.status == script.status
    check_same(run.parts(), turn, whole=script.status == "completed")


@settings(max_examples=80, deadline=None)
@given(edited_turns(), st.data())
def test_without_stream_hooks_too(script: Script, data: st.DataObject) -> None:
    run, turn = told(live(script, data, EDITS_UP)), history(stored(script))
    check_same(run.parts(), turn, whole=script.status == "completed")


@settings(max_examples=100, deadline=None)
@given(turns(), turns("s1:s1:t2"), st.data())
def test_what_was_sent_is_the_same(first: Script, second: Script, data: st.DataObject) -> None:
    """Whenever it was sent and taken in, it is of its own run, live and in history."""
    driver = Driver()
    driver.fact(STREAM_UP)
    stored_rows = []
    for number, script in enumerate((first, second)):
        order = data.draw(orders(script, t0=driver.now))
        began = next(at for at, fact in order if type(fact) is wire.TurnStarted)
        stored_rows.append([replace(row, ts=began) for row in stored(script)])
        send(driver, data, order, number)
    recall = RecallSent([one for outcome in driver.outcomes for one in outcome.told])
    kept = [history(rows, sent=recall(rows)) for rows in reversed(stored_rows)][::-1]
    for script, turn, rows in zip((first, second), kept, stored_rows, strict=True):
        run_id = ids.run_id(SECRET, "gw", script.turn_id)
        run = told(event for event in driver.events if event.run_id == run_id)
        sent = [part for part in run.parts() if part.kind == "attachment"]
        known = any(row.role != "user" for row in rows)
        assert turn.parts[len(turn.parts) - len(sent) :] == sent if known else not turn.parts


def send(driver: Driver, data: st.DataObject, order: list[Any], number: int) -> None:
    """A turn in this order; files are sent in its midst and after its end."""
    points = data.draw(st.lists(st.integers(1, len(order)), max_size=3))
    taken = data.draw(st.permutations(range(len(points))))
    for at, arrival in enumerate(numbered(order, first=1_000 * number + 1), 1):
        driver.take(arrival)
        driver.now = max(driver.now, arrival.at)
        for file in (n for n, point in enumerate(points) if point == at):
            where = ("/f", "") if file else ("", "https://example.org/a")
            name = f"out-{number}-{file}"
            fact = wire.FileSent("chat", KEY, name, *where, name, "", None, None, ours=True)
            driver.fact(fact, n=1_000 * number + 500 + file)
    for file in taken:
        driver.fact(FileTaken(f"out-{number}-{file}", REF, None), dt=data.draw(st.floats(0.0, 4.0)))
    driver.wait(40.0)


def check_same(parts: list[Any], turn: Any, *, whole: bool) -> None:
    """Ids, order and content; of a run that did not complete, history may know less."""
    mine, kept = common(parts, "text", "tool"), common(turn.parts, "text", "tool")
    assert (turn.status, turn.partial is True) == (
        ("completed", False) if whole else (turn.status, True)
    )
    if whole:
        assert mine == kept
        return
    for part in mine + kept:
        part.pop("status")  # when they ended is not known
    assert [p for p in mine if p in kept] == kept


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_runs_have_the_parts_of_their_frames(release: str) -> None:
    """Every part of a frame is one of the run, with the text and the tools of its iterations."""
    runs: dict[str, list[Event]] = {}
    for events in replay(release).values():
        for event in events:
            if event.run_id is not None:
                runs.setdefault(event.run_id, []).append(event)
    for events in runs.values():
        payloads: list[Any] = [event.payload for event in events]
        parts = {part.part: part for part in told(events).parts()}
        named = {p.part for p in payloads if getattr(p, "part", None)}
        assert set(parts) == named
        started = {p.part: p for p in payloads if type(p).__name__ == "RunToolStarted"}
        assert {n for n, p in parts.items() if p.kind == "tool"} == set(started)
        assert all(parts[name].preview == p.preview for name, p in started.items())
        end = payloads[-1] if hasattr(payloads[-1], "status") else None
        texts = [p.text for p in parts.values() if p.kind == "text"]
        if end is not None and end.status == "completed" and end.text:
            assert texts[-1] == end.text
        assert not [p for p in parts.values() if p.status in ("running", "waiting")]


def begun(driver: Driver) -> None:
    driver.fact(STREAM_UP)
    driver.fact(wire.TurnStarted(TURN, "s1", KEY, "loomi", "m", "do it"))
    driver.fact(wire.ApiStarted(TURN, "s1", 1, "m", "p", "loomi"))


def calls(driver: Driver, call: int, *ids: str) -> None:
    driver.fact(wire.ApiEnded(TURN, call, "tool_calls", ""), dt=0.3)
    for call_id in ids:
        driver.fact(wire.ToolStarted(TURN, "s1", call, call_id, "terminal", "ls"))
        driver.fact(wire.ToolEnded(TURN, call_id, "terminal", "ok", 5.0))


def test_a_call_id_that_comes_again_is_another_part() -> None:
    driver = Driver()
    begun(driver)
    calls(driver, 1, "call_0", "call_1")
    driver.fact(wire.ApiStarted(TURN, "s1", 2, "m", "p", "loomi"))
    calls(driver, 2, "call_0")
    driver.wait(1.0)
    names = [part.part for part in told(of_run(driver)).parts()]
    assert names == ["tool:call_0", "tool:call_1", "tool:call_0#2"]


def of_run(driver: Driver) -> list[Event]:
    return [event for event in driver.events if event.run_id is not None]


def test_calls_that_could_not_be_made_end_a_round_too() -> None:
    """Hermes stores them, and calls no hook where their arguments were no JSON."""
    driver = Driver()
    begun(driver)
    calls(driver, 1)
    driver.fact(wire.ApiStarted(TURN, "s1", 2, "m", "p", "loomi"))
    driver.fact(wire.Delta(TURN, 2, "sorry", "text"))
    driver.wait(1.0)
    (part,) = told(of_run(driver)).parts()
    assert part.part == "text:1"


def asked(ask: str, call_id: str | None) -> wire.ApprovalAsked:
    return wire.ApprovalAsked(
        ask, KEY, "s1", TURN, call_id, "rm", "delete", ["once", "deny"], False, 60.0, True
    )


def test_an_approval_hangs_on_its_tool() -> None:
    driver = Driver()
    begun(driver)
    driver.fact(wire.ApiEnded(TURN, 1, "tool_calls", ""), dt=0.3)
    driver.fact(wire.ToolStarted(TURN, "s1", 1, "call_0", "terminal", "rm"))
    driver.fact(asked("a1", "call_0"))
    driver.wait(1.0)
    (tool,) = told(of_run(driver)).parts()
    (ask,) = tool.asks
    assert (tool.status, ask.status, ask.part[:9]) == ("running", "waiting", "approval:")
    driver.fact(wire.ApprovalDone("a1", "once", None))
    (tool,) = told(of_run(driver)).parts()
    assert [ask.status for ask in tool.asks] == ["resolved"]


def test_an_approval_of_an_unknown_tool_is_a_part_of_its_own() -> None:
    driver = Driver()
    begun(driver)
    driver.fact(asked("a1", None))
    driver.wait(1.0)
    (part,) = told(of_run(driver)).parts()
    assert (part.kind, part.status) == ("approval", "waiting")


class Asked(Payload, frozen=True, kw_only=True):
    """A question, as far as parts look at it."""

    question_id: str
    call_id: str | None = None
    outcome: str = "answered"


def test_a_question_hangs_on_the_newest_call_of_its_tool() -> None:
    driver = Driver()
    begun(driver)
    calls(driver, 1, "call_0")
    driver.fact(wire.ApiStarted(TURN, "s1", 2, "m", "p", "loomi"))
    calls(driver, 2, "call_0")
    driver.wait(1.0)
    run = told(of_run(driver))
    run.take("question.required", Asked(question_id="q1", call_id="call_0"))
    run.take("question.required", Asked(question_id="q2", call_id="call_9"))
    run.take("question.required", Asked(question_id="q3"))
    first, second, *alone = run.parts()
    assert (first.asks, [ask.part for ask in second.asks]) == (UNSET, ["question:q1"])
    assert [part.part for part in alone] == ["question:q2", "question:q3"]
    run.take("question.resolved", Asked(question_id="q1"))
    run.take("question.resolved", Asked(question_id="q2", outcome="timeout"))
    _, second, late, waiting = run.parts()
    assert [ask.status for ask in second.asks] == ["resolved"]
    assert (late.status, waiting.status) == ("cancelled", "waiting")


def test_what_runs_and_waits_when_a_run_is_cancelled_ends_as_cancelled() -> None:
    driver = Driver()
    begun(driver)
    driver.fact(wire.ApiEnded(TURN, 1, "tool_calls", ""), dt=0.3)
    driver.fact(wire.ToolStarted(TURN, "s1", 1, "call_0", "terminal", "rm"))
    driver.fact(asked("a1", "call_0"))
    driver.fact(wire.TurnEnded(TURN, "s1", True, True, False, "interrupted"))
    driver.wait(1.0)
    run = told(of_run(driver))
    (tool,) = run.parts()
    assert (run.status, tool.status) == ("cancelled", "cancelled")
    assert [ask.status for ask in tool.asks] == ["cancelled"]
    driver.fact(wire.ApprovalDone("a1", "deny", None))  # it comes after the run's end
    (tool,) = told(of_run(driver)).parts()
    assert [ask.status for ask in tool.asks] == ["cancelled"]


def test_a_snapshot_and_what_follows_it_give_the_same_ids() -> None:
    driver = Driver()
    begun(driver)
    calls(driver, 1, "call_0")
    driver.fact(wire.ApiStarted(TURN, "s1", 2, "m", "p", "loomi"))
    driver.fact(wire.Delta(TURN, 2, "first ", "text"))
    driver.wait(0.5)
    alive = Projection()
    for position, event in enumerate(of_run(driver)):
        alive.apply(event, position)
    seen = alive.snapshot()
    known = len(of_run(driver))
    driver.fact(wire.Delta(TURN, 2, "second", "text"))
    driver.wait(0.5)
    (late,) = told(seen + of_run(driver)[known:]).parts()
    (_, whole) = told(of_run(driver)).parts()
    assert (late.part, late.text) == (whole.part, whole.text) == ("text:1", "first second")


def test_arrivals_are_folded_again_to_the_same_parts() -> None:
    driver = Driver()
    begun(driver)
    calls(driver, 1, "call_0", "call_0")
    runs = driver.recovered()
    now = driver.now + 1.0
    facts = [
        wire.ApiStarted(TURN, "s1", 2, "m", "p", "loomi"),
        wire.ToolStarted(TURN, "s1", 2, "call_0", "terminal", "ls"),
    ]
    events = []
    for n, fact in enumerate(facts, start=90):
        events += runs.fold(Arrival("gw", "boot", n, now, now, fact)).events
    events += runs.fold(Arrival("gw", "", 0, now + 1, now + 1, Tick())).events
    assert [e.payload.part for e in events if e.type == "run.tool_started"] == ["tool:call_0#3"]


def test_until_when_a_run_is_known_to_have_gone_on() -> None:
    """By its hooks; by what it sends, until it is over."""
    driver = Driver()
    begun(driver)
    began = driver.now
    driver.fact(wire.ApiEnded(TURN, 1, "stop", "so"), dt=1.0)
    driver.fact(link("out-1"), dt=1.0)
    driver.fact(wire.TurnEnded(TURN, "s1", True, False, False, "text_response"), dt=1.0)
    driver.fact(link("out-2"), dt=1.0)
    driver.wait(5.0)
    spans = [(one.began, one.until) for outcome in driver.outcomes for one in outcome.told]
    assert spans == [(began, began + 2.0), (began, began + 3.0)]


def link(name: str) -> wire.FileSent:
    where = "", "https://example.org/a"
    return wire.FileSent("chat", KEY, name, *where, "", "", None, None, ours=False)
