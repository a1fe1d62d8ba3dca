"""A restart of loomid at any moment is invisible: stored facts give the same state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings, strategies as st

from loomid import wire
from loomid.lmp import facts
from loomid.lmp.facts import Arrival, GatewayDown, GatewayLost, Tick
from loomid.lmp.frames import RUN_ENDS, Event
from loomid.lmp.host import BOOTS
from loomid.lmp.runs import Runs
from tests.support.anyfacts import arrivals
from tests.support.folding import KEY, Driver
from tests.support.plain import OLD_UP, answered, asked, driver, ended, handed, injected, started
from tests.support.turns import EDITS_UP, STREAM_UP, edited_turns, numbered, orders, turns

if TYPE_CHECKING:
    from collections.abc import Callable

MODEST = settings(max_examples=150)


def with_ticks(given_arrivals: list[Arrival]) -> list[Arrival]:
    """The arrivals with the ticks that a pump would put between them."""
    runs, rows = Runs("gw", KEY), []
    for arrival in given_arrivals:
        for _ in range(50):
            due = runs.deadline
            if due is None or due >= arrival.at:
                break
            rows.append(Arrival("gw", "", 0, due, due, Tick()))
            runs.fold(rows[-1])
        rows.append(arrival)
        runs.fold(arrival)
    return rows


class Disk(Driver):
    """Folds exactly what it is given; facts pass through their stored form."""

    def replay(self, rows: list[Arrival]) -> list[tuple[Event, ...]]:
        before = len(self.outcomes)
        for arrival in rows:
            self._fold(arrival)
        self.stored = [(tag, _stored(kept)) for tag, kept in self.stored]
        return [outcome.events for outcome in self.outcomes[before:]]


def _stored(arrival: Arrival) -> Arrival:
    fact = facts.load(arrival.kind, facts.dump(arrival.fact))
    assert fact == arrival.fact
    return replace(arrival, fact=fact)


def check_cut(
    rows: list[Arrival], cut: int, form: Callable[[list[tuple[str, Arrival]]], Any] = list
) -> None:
    original, restarted = Disk(), Disk()
    original.replay(rows[:cut])
    restarted.runs = original.recovered()
    restarted.stored, restarted.ended = list(original.stored), list(original.ended)
    assert restarted.replay(rows[cut:]) == original.replay(rows[cut:])
    assert [o.retain for o in restarted.outcomes] == [o.retain for o in original.outcomes[cut:]]
    assert form(restarted.stored) == form(original.stored)
    assert restarted.ended == original.ended
    assert restarted.runs.live() == original.runs.live()


@MODEST
@given(arrivals(), st.data())
def test_restart_amid_any_facts(given_arrivals: list[Arrival], data: st.DataObject) -> None:
    rows = with_ticks(given_arrivals)
    check_cut(rows, data.draw(st.integers(0, len(rows))))


def test_restart_after_the_gateway_came_back() -> None:
    """Its first coming is kept for what it can do, so its going is, too."""
    given_facts = (STREAM_UP, GatewayDown(), STREAM_UP, GatewayDown(), STREAM_UP, GatewayLost())
    rows = [Arrival("gw", "boot", 0, 1.0 + i, 1.0 + i, f) for i, f in enumerate(given_facts)]
    for cut in range(len(rows)):
        check_cut(rows, cut)


def test_restart_after_one_of_two_processes_came_back() -> None:
    """What it had said before is kept for its turn, or as long as it is not lost."""
    up, lost = ("x", OLD_UP), ("x", GatewayLost())
    turn = [("x", started()), ("x", asked()), ("x", ended())]
    for told in (
        [up, ("y", OLD_UP), ("y", GatewayLost()), up, lost],
        [up, *turn, ("y", OLD_UP), lost, up, ("x", Tick())],
        [up, up, *turn, lost, up, up, ("x", Tick())],
    ):
        rows = with_ticks(
            [Arrival("gw", b, 0, 9.0 * i, 9.0 * i, f) for i, (b, f) in enumerate(told)]
        )
        for cut in range(len(rows)):
            check_cut(rows, cut)


def test_restart_among_more_processes_than_are_known() -> None:
    """The one is forgotten that said longest ago what it can, also where it had come first."""
    boots = [*map(str, range(BOOTS)), "0", "another"]
    told = [Arrival("gw", boot, 0, 1.0 + i, 1.0 + i, EDITS_UP) for i, boot in enumerate(boots)]
    turn = [(20.0, started()), (20.1, asked()), (20.2, answered()), (20.3, ended())]
    rows = with_ticks([*told, *numbered(turn, boot="0")])
    for cut in range(len(rows)):
        check_cut(rows, cut)


@MODEST
@given(st.data(), st.booleans())
def test_restart_amid_realistic_turns(data: st.DataObject, edits: bool) -> None:
    timed = [(999.0, EDITS_UP if edits else STREAM_UP)]
    for turn in range(data.draw(st.integers(1, 3))):
        script = data.draw((edited_turns if edits else turns)(f"s1:s1:t{turn}"))
        timed += data.draw(orders(script, t0=1_000.0 + data.draw(st.sampled_from([0.0, 5.0]))))
    rows = with_ticks(numbered(sorted(timed, key=lambda row: row[0])))
    check_cut(rows, data.draw(st.integers(0, len(rows))))


def check_approvals(events: list[Event]) -> None:
    """Each was asked before it was decided."""
    asked: set[str] = set()
    for event in events:
        if event.type == "approval.required":
            asked.add(event.payload.approval_id)
        elif event.type == "approval.resolved":
            assert event.payload.approval_id in asked


@MODEST
@given(arrivals(most=80))
def test_any_facts(given_arrivals: list[Arrival]) -> None:
    """Whatever comes: nothing is raised, and each run has one frame and one end."""
    driver = Driver()
    for arrival in given_arrivals:
        driver.take(arrival)
    state: dict[str, str] = {}
    for event in driver.events:
        if event.run_id is None or not event.type.startswith("run."):
            continue
        seen = state.get(event.run_id)
        assert (event.type == "run.started") == (seen is None)
        assert seen != "over"
        state[event.run_id] = "over" if event.type in RUN_ENDS else "live"
    live = {view.run_id for view in driver.runs.live()}
    assert live == {run_id for run_id, now in state.items() if now == "live"}
    check_approvals(driver.events)
    online = [e.payload.online for e in driver.events if e.type == "gateway.status"]
    assert online[:1] in ([], [True])


def test_ended_run_of_a_lost_host_stays_ended() -> None:
    """How it was told depended on what that host could do, which must be known again."""
    d = driver(OLD_UP)
    d.facts([started(), asked(), wire.ApiEnded("s1:s1:t1", 1, "stop", "done"), ended()])
    d.fact(facts.GatewayLost(), dt=20)
    d.boot = "boot2"
    d.fact(OLD_UP)
    d.runs = d.recovered()
    assert d.runs.live() == []
    d.wait(11)
    assert d.ended == ["s1:s1:t1"]


def test_tags_that_are_no_turn_ids_can_be_told() -> None:
    d = driver()
    d.facts([injected("in1", "do it"), started(), asked(), *answered()])
    d.wait(0.1)
    assert {tag for tag, _ in d.stored if not tag.startswith("~")} == {"s1:s1:t1"}


def test_a_file_of_a_run_that_was_forgotten_meanwhile() -> None:
    """It takes a while to be taken in; the restart comes when its run is long over."""
    rows = numbered([(0.0, started()), (1.0, answered()), (1.0, ended()), (2.0, handed())])
    late = Arrival("gw", "boot", 0, 9_000.0, 9_000.0, facts.FileTaken("out1", None, "gone"))
    rows = with_ticks([Arrival("gw", "boot", 0, 0.0, 0.0, OLD_UP), *rows, late])
    for cut in range(len(rows) + 1):
        check_cut(rows, cut)
