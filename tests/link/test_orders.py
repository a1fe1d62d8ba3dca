"""Commands in the shim: each id at most once, whatever comes again."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

from hermes_shim.orders import Orders
from hypothesis import given
from hypothesis import strategies as st

from hermes_shim import orders, wire

IDS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["take", "recall", "settle"]), IDS), max_size=30)


def command(command_id: str, deadline: float | None = None) -> wire.Command:
    return wire.Command(command_id, "boot", deadline or time.time() + 60, "running", {})


def results(it: Orders) -> list[dict[str, Any]]:
    out = [json.loads(data) for data in it.results]
    it.results.clear()
    return out


@given(STEPS)
def test_at_most_once_and_what_was_denied_never_runs(steps):
    ran: Counter[str] = Counter()
    it = Orders("boot", lambda c: ran.update([c.id]))
    denied = set()
    told: dict[str, Any] = {}
    for verb, command_id in steps:
        if verb == "take":
            it.take(command(command_id))
        elif verb == "recall":
            it.recall(command_id)
        elif ran[command_id]:
            it.settle(wire.Result(command_id, value={"nth": len(told)}))
        for result in results(it):
            assert told.setdefault(result["id"], result) == result
            if result["error"] == "unknown_command":
                denied.add(result["id"])
    assert all(count <= 1 for count in ran.values())
    assert not denied & set(ran)


def test_results_are_forgotten_only_after_their_deadline(monkeypatch):
    now = time.time()
    monkeypatch.setattr(orders.time, "time", lambda: now)
    ran = []
    it = Orders("boot", ran.append)
    for i in range(orders.RESULTS_KEPT + 10):
        it.take(command(str(i), now + 60))
    it.take(command("0", now + 60))
    assert len(ran) == orders.RESULTS_KEPT + 10
    now += 61
    for i in range(orders.RESULTS_KEPT):
        it.take(command(f"new{i}", now + 60))
    assert len(it._known) == orders.RESULTS_KEPT
    it.take(command("0", now - 1))
    assert results(it)[-1]["error"] == "stale"


def test_a_result_that_cannot_be_sent_is_a_failure():
    it = Orders("boot", lambda _: None)
    for i, value in enumerate([{"x": object()}, {"x": float("nan")}, {"x": "y" * (5 << 20)}]):
        it.take(command(str(i)))
        it.settle(wire.Result(str(i), value=value))
        assert results(it)[0]["error"] == "failed"
