"""Runs of realistic turns whose facts come in any order that Hermes' races allow."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings, strategies as st

from loomid import wire
from loomid.lmp.coalesce import GAP_S, SLACK_S
from loomid.lmp.frames import RUN_ENDS, Event
from tests.support.folding import Driver, brief, views
from tests.support.turns import EDITS_UP, STREAM_UP, Script, edited_turns, numbered, orders, turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loomid.lmp.facts import Arrival, GatewayUp

MODEST = settings(max_examples=150)


def run(arrivals: Iterable[Arrival], up: GatewayUp = STREAM_UP) -> Driver:
    driver = Driver(t0=900.0)
    driver.fact(up)
    for arrival in arrivals:
        driver.take(arrival)
        driver.now = arrival.at
    driver.wait(10.0)
    driver.events = [e for e in driver.events if e.type != "gateway.status"]
    return driver


def of_run(events: Iterable[Event]) -> list[Event]:
    return [e for e in events if e.type.startswith("run.")]


def check_frame(events: list[Event]) -> None:
    """One start first, one end last, iterations and tools in order."""
    told = of_run(events)
    types = [e.type for e in told]
    assert types[0] == "run.started"
    assert types[-1] in RUN_ENDS
    assert types.count("run.started") == 1
    assert sum(t in RUN_ENDS for t in types) == 1
    moving = [e for e in told if e.type in ("run.delta", "run.tool_started", "run.tool_finished")]
    iterations = [e.payload.iteration for e in moving]
    assert iterations == sorted(iterations)
    open_tools: dict[tuple[int, int], str] = {}
    next_index: dict[int, int] = {}
    for event in told:
        p: Any = event.payload
        if event.type == "run.tool_started":
            assert p.index == next_index.get(p.iteration, 0)
            next_index[p.iteration] = p.index + 1
            open_tools[p.iteration, p.index] = p.call_id
        elif event.type == "run.tool_finished":
            assert open_tools.pop((p.iteration, p.index)) == p.call_id
    assert not open_tools


def check_rate(events: list[Event]) -> None:
    """Two frames of one kind within the gap: only if something else had to come next."""
    told = of_run(events)
    least = GAP_S - SLACK_S - 1e-6
    for before, event, behind in zip(told, told[1:], told[2:], strict=False):
        if _stream(before) == _stream(event) is not None and event.ts - before.ts < least:
            assert _stream(behind) != _stream(event)


def _stream(event: Event) -> tuple[str, int] | None:
    p: Any = event.payload
    return (p.kind, p.iteration) if event.type == "run.delta" else None


def check_texts(script: Script, events: list[Event]) -> None:
    (shown,) = (texts for run_id, texts in views(events).items() if run_id)
    told = [shown.get(number, "") for number in range(1, len(script.texts) + 1)]
    assert told == script.texts
    assert len(shown) <= len(script.texts)
    end: Any = of_run(events)[-1].payload
    if script.status == "failed":
        assert end.error == "Error 400"
    else:
        assert end.status == script.status
        assert end.text == (script.texts[-1] or "")


@MODEST
@given(st.data())
def test_races_change_nothing(data: st.DataObject) -> None:
    """Stream facts up to 100 ms late: the phone is told everything, once, in order."""
    script = data.draw(turns())
    driver = run(numbered(data.draw(orders(script))))
    check_frame(driver.events)
    check_texts(script, driver.events)
    check_rate(driver.events)
    if not script.retracts:
        assert "run.text" not in {e.type for e in driver.events}
    tools = [e for e in driver.events if e.type == "run.tool_started"]
    assert len(tools) == script.tools
    assert driver.runs.live() == []


@MODEST
@given(st.data())
def test_order_of_arrival_is_invisible(data: st.DataObject) -> None:
    """Whatever the races, the phone is told the same as with no race at all."""
    script = data.draw(turns())
    if script.retracts:
        return  # how much of a failed attempt is shown before the retry depends on time
    calm = [(1_000.0 + 0.03 * i, fact) for i, (_, fact) in enumerate(script.facts) if fact]
    raced = numbered(data.draw(orders(script)))
    assert brief(_no_reasoning(run(raced).events)) == brief(
        _no_reasoning(run(numbered(calm)).events)
    )


def _no_reasoning(events: list[Event]) -> list[Event]:
    """Late reasoning of an attempt without text may be lost: nothing tells its length."""
    return [e for e in events if getattr(e.payload, "kind", "") != "reasoning"]


@MODEST
@given(st.data())
def test_edits_instead_of_stream_hooks(data: st.DataObject) -> None:
    """0.19: previews up to 100 ms late; the phone is told the same texts, none twice."""
    script = data.draw(edited_turns())
    driver = run(numbered(data.draw(orders(script))), EDITS_UP)
    check_frame(driver.events)
    check_texts(script, driver.events)
    check_rate(driver.events)
    assert {e.type for e in driver.events}.isdisjoint({"run.text", "notification"})
    assert len([e for e in driver.events if e.type == "run.tool_started"]) == script.tools


@MODEST
@given(st.data())
def test_losses_late_facts_and_duplicates(data: st.DataObject) -> None:
    """Deltas lost, facts seconds late or twice: still one frame, and the true texts."""
    script = data.draw(turns())
    timed = data.draw(orders(script, late=data.draw(st.sampled_from([0.1, 0.5, 3.0]))))
    kept = [row for row in timed if not isinstance(row[1], wire.Delta) or not data.draw(_one_in(5))]
    doubled = [row for row in kept for _ in range(2 if data.draw(_one_in(8)) else 1)]
    twice_synchronous = any(
        a[1] is b[1] and not isinstance(a[1], wire.Delta) for a, b in itertools.pairwise(doubled)
    )
    driver = run(numbered(doubled))
    told = of_run(driver.events)
    assert told[0].type == "run.started"
    assert sum(e.type in RUN_ENDS for e in told) == 1
    assert told[-1].type in RUN_ENDS
    check_rate(driver.events)
    if script.status == "completed" and script.texts[-1] and not twice_synchronous:
        assert told[-1].payload.text == script.texts[-1]


def _one_in(n: int) -> st.SearchStrategy[bool]:
    return st.integers(1, n).map(lambda i: i == 1)
