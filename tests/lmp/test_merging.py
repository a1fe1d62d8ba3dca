"""Merged deltas leave a turn as they left it one by one; what is stored stays small."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loomid import wire
from loomid.lmp import merging
from loomid.lmp.facts import Deltas, Tick
from tests.lmp.test_runs_recovery import check_cut, with_ticks
from tests.support.anyfacts import arrivals
from tests.support.folding import views
from tests.support.plain import asked, driver, ended, started
from tests.support.turns import STREAM_UP, numbered, orders, turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomid.lmp.facts import Arrival

TURN = "s1:s1:t1"
FREQUENT = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(autouse=True)
def merge_at() -> Iterator[int]:
    """So few that the short turns of tests have some."""
    before = merging.MERGE_AT
    merging.MERGE_AT = 2
    yield before
    merging.MERGE_AT = before


def unmerged(stored: list[tuple[str, Arrival]]) -> list[Any]:
    """What is stored, whatever of it is merged: after a restart other deltas are."""
    rows: list[Any] = []
    for tag, arrival in sorted(stored, key=lambda one: one[0]):
        fact = arrival.fact
        if isinstance(fact, wire.Delta | Deltas):
            said = [tag, fact.iteration, fact.channel]
            if rows and rows[-1][:3] == said:
                rows[-1][3] += fact.text
            else:
                rows.append([*said, fact.text])
        elif not isinstance(fact, Tick):
            rows.append((tag, arrival))
    return rows


def streaming(count: int, gaps: list[float], channel: str = "text") -> list[Arrival]:
    """A turn that is in the middle of a long answer."""
    facts: list[Any] = [
        started(turn=TURN),
        asked(turn=TURN),
        wire.StreamStarted(TURN, 1, "s1", "m", "p", "loomi"),
        *(wire.Delta(TURN, 1, f"{i} ", channel) for i in range(count)),
    ]
    at, timed = 1_000.0, []
    for i, fact in enumerate(facts):
        at += gaps[i % len(gaps)]
        timed.append((at, fact))
    return numbered(timed)


@FREQUENT
@given(st.data())
def test_a_restart_amid_any_turn(data: st.DataObject) -> None:
    rows = numbered(data.draw(orders(data.draw(turns()))))
    rows = with_ticks([_up(rows[0]), *rows])
    check_cut(rows, data.draw(st.integers(0, len(rows))), unmerged)


@FREQUENT
@given(arrivals(most=60), st.data())
def test_a_restart_amid_anything(rows: list[Arrival], data: st.DataObject) -> None:
    rows = with_ticks(rows)
    check_cut(rows, data.draw(st.integers(0, len(rows))), unmerged)


@FREQUENT
@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.02, 0.033, 0.04, 0.05, 0.3]), min_size=3, max_size=7),
    st.sampled_from(["text", "reasoning"]),
    st.integers(0, 80),
)
def test_a_restart_amid_a_stream(gaps: list[float], channel: str, cut: int) -> None:
    check_cut(with_ticks(streaming(60, gaps, channel)), cut, unmerged)


def _up(first: Arrival) -> Arrival:
    return replace(first, n=0, fact=STREAM_UP)


@pytest.mark.parametrize("gap", [0.001, 0.02, 0.033, 0.05])
def test_few_facts_are_stored_of_a_long_stream(gap: float) -> None:
    merging.MERGE_AT = 16
    it = driver()
    for arrival in streaming(1_000, [gap, gap * 1.3, gap * 0.7]):
        it.take(arrival)
    kinds = [type(arrival.fact) for _, arrival in it.stored]
    assert kinds.count(Deltas) > 20
    assert kinds.count(wire.Delta) < 100
    assert kinds.count(Tick) < 100
    it.now = arrival.at
    it.fact(wire.StreamEnded(TURN, 1, "".join(f"{i} " for i in range(1_000)), True, None))
    it.facts([wire.TurnAnswered(TURN, "".join(f"{i} " for i in range(1_000))), ended(TURN)])
    it.wait(60)
    assert [type(a.fact) for _, a in it.stored if type(a.fact) in (Deltas, wire.Delta)] == []
    (texts,) = (shown for run, shown in views(it.events).items() if run)
    assert texts == {1: "".join(f"{i} " for i in range(1_000)).strip()}
