"""Recorded sessions of three Hermes releases, replayed: 17 scenarios each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loomid.lmp.frames import RUN_ENDS
from tests.support.folding import brief
from tests.support.traces import GOLDEN, RELEASES, SCENARIOS, replay


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_replay_gives_the_golden_events(release: str) -> None:
    golden = json.loads((GOLDEN / f"runs-{release}.json").read_text(encoding="utf-8"))
    events = replay(release)
    assert tuple(events) == SCENARIOS
    for name in SCENARIOS:
        assert brief(events[name]) == golden[name], name


def test_every_run_has_one_start_and_one_end(release: str) -> None:
    events = [event for rows in replay(release).values() for event in rows]
    runs: dict[str, list[str]] = {}
    for event in events:
        if event.run_id is not None and event.type.startswith("run."):
            runs.setdefault(event.run_id, []).append(event.type)
    # 0.19 makes a turn of its own of a message that interrupts another.
    assert len(runs) == 18 if release == "19" else 17
    for types in runs.values():
        assert types[0] == "run.started"
        assert types[-1] in RUN_ENDS
        assert sum(t in RUN_ENDS for t in types) == 1


def test_releases_tell_the_same_story() -> None:
    """What differs between the releases is what Hermes does, not how loomid tells it."""
    told: dict[str, dict[str, Any]] = {
        release: {name: _story(events) for name, events in replay(release).items()}
        for release in RELEASES
    }
    # The clarify tool and the words after a dropped stream differ; 0.19 interrupts where
    # the others redirect, and streams no reasoning.
    same = [name for name in SCENARIOS if name not in ("clarify", "drop")]
    assert {n: told["20"][n] for n in same} == {n: told["22"][n] for n in same}
    same = [name for name in same if name not in ("busy", "think")]
    assert {n: told["19"][n] for n in same} == {n: told["22"][n] for n in same}


def _story(events: list[Any]) -> list[list[Any]]:
    return brief(e for e in events if e.type not in ("notification", "gateway.status"))
