"""Commands in the shim: each id at most once, whatever comes again."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hermes_shim import ledger
from hermes_shim.ledger import Orders

IDS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.tuples(st.sampled_from(["take", "recall", "settle"]), IDS), max_size=30)


def command(command_id: str, deadline: float | None = None, boot: str = "boot") -> dict[str, Any]:
    until = time.time() + 60 if deadline is None else deadline
    return {"m": "command", "id": command_id, "boot": boot, "deadline": until}


def recall(command_id: str) -> dict[str, Any]:
    return {"m": "recall", "id": command_id}


def results(it: Orders) -> list[dict[str, Any]]:
    out = [json.loads(data) for data in it.results]
    it.results.clear()
    return out


@given(STEPS)
def test_at_most_once_and_what_was_denied_never_runs(steps):
    ran: Counter[str] = Counter()
    it = Orders("boot")
    denied = set()
    told: dict[str, Any] = {}
    for verb, command_id in steps:
        if verb == "take":
            ran[command_id] += it.take(command(command_id))
        elif verb == "recall":
            assert not it.take(recall(command_id))
        elif ran[command_id]:
            it.settle({"id": command_id, "value": {"nth": len(told)}})
        for result in results(it):
            assert told.setdefault(result["id"], result) == result
            if result.get("error") == "unknown_command":
                denied.add(result["id"])
    assert all(count <= 1 for count in ran.values())
    assert not denied & {name for name, count in ran.items() if count}


def test_what_is_late_or_for_another_process_does_not_run():
    it = Orders("boot")
    assert not it.take(command("a", deadline=time.time() - 1))
    assert not it.take(command("b", boot="other"))
    assert [r["error"] for r in results(it)] == ["stale", "stale"]
    assert it.take(command("c"))
    assert results(it) == []


def test_the_last_results_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ledger, "RESULTS_KEPT", 100)
    it = Orders("boot")
    for i in range(110):
        assert it.take(command(str(i)))
        it.settle({"id": str(i), "value": {"i": i}})
    results(it)
    assert len(it._known) == 100
    it.take(recall("10"))
    it.take(recall("9"))
    assert [r.get("error") for r in results(it)] == [None, "unknown_command"]
    assert not it.take(command("9"))


def test_what_only_reads_is_not_kept():
    it = Orders("boot")
    for _ in range(2):
        assert it.take(command("a") | {"op": "sessions"})
        it.settle({"id": "a", "value": {"sessions": []}})
    assert [r["value"] for r in results(it)] == [{"sessions": []}] * 2
    assert not it.take(command("b", boot="other") | {"op": "running"})
    assert [r["error"] for r in results(it)] == ["stale"]
    assert not it._known


def test_a_result_that_cannot_be_sent_is_a_failure():
    it = Orders("boot")
    for i, value in enumerate([{"x": object()}, {"x": float("nan")}, {"x": "y" * (5 << 20)}]):
        it.take(command(str(i)))
        it.settle({"id": str(i), "value": value})
        assert results(it)[0]["error"] == "failed"
