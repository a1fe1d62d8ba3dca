"""Which hook an event is put down to, for the owner who asks what was slow."""

from __future__ import annotations

from loomid import wire
from loomid.lmp.facts import Arrival, GatewayDown
from tests.support.plain import KEY, answered, asked, driver, ended, started


def causes(events):
    return {(event.type, event.cause) for event in events}


def test_an_event_is_of_the_fact_that_it_came_of():
    d = driver()
    d.fact(started(), dt=1.0)
    events = d.fact(asked(), dt=0.125)
    here = (1001.125, 1001.125)
    assert causes(events) == {("run.started", here), ("task.updated", here)}


def test_what_the_clock_lets_go_is_of_its_turns_newest_fact():
    d = driver()
    d.facts([started(), asked(), *answered()[:2]], dt=0.125)
    assert d.fact(ended(), dt=0.125) == []  # the end of the stream may still come
    events = d.wait(60.0)
    assert ("run.completed", (1000.625, 1000.625)) in causes(events)
    assert all(event.ts > 1000.625 for event in events)


def test_what_another_fact_lets_go_is_not_of_that():
    d = driver()
    d.fact(started(), dt=1.0)
    due = d.runs.deadline
    asks = wire.ApprovalAsked(
        *("a1", KEY, "s1", None, None, "ls", "", ["once", "deny"], False, 60.0, True)
    )
    events = d.take(Arrival("gw", d.boot, 9, due - 0.5, due, asks))
    assert {
        ("run.started", (1001.0, 1001.0)),
        ("approval.required", (due - 0.5, due)),
    } <= causes(events)


def test_loomids_own_facts_are_no_hooks():
    d = driver()
    assert causes(d.fact(GatewayDown(), dt=1.0)) == {("gateway.status", None)}
