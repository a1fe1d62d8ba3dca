"""How long events and facts are kept."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from loomid.lmp import facts
from loomid.lmp.quota import ENDED_KEPT
from loomid.log import Batch
from loomid.store import Store
from loomid.tidy import BOOTS_KEPT
from tests.support.log import (
    WINDOW,
    arrival,
    completed,
    gateway,
    open_log,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_old_events_are_forgotten_but_for_the_window_and_what_is_alive(path: Path):
    now = 1_000_000.0

    def clock() -> float:
        return now

    async with open_log(path, clock=clock, retention_s=100.0) as log:
        base = log.visible
        old = [gateway("gw", ts=10.0), *(completed(f"old_{i}", ts=10.0) for i in range(1200))]
        await log.commit(Batch(events=old))
        upto = log.visible
        await log.upkeep.forget()
        kept = await log.lasting(base, upto, 9999, 0.0)
        assert len(kept) == WINDOW
        recent = [completed(f"new_{i}", ts=now) for i in range(WINDOW)]
        await log.commit(Batch(events=recent))
        await log.upkeep.forget()
        assert len(await log.lasting(base, log.visible, 9999, 0.0)) == WINDOW
    async with open_log(path, clock=clock, window=2000) as log:
        # A larger window does not bring back what is gone.
        assert not log.resumable(base)
        assert log.resumable(upto)
        assert len(log.read(upto, 9999)) == WINDOW
        assert len(log.projection.gateways()) == 1


async def test_facts_are_kept_until_their_tag_is_released(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        first = [(arrival(1), "t1"), (arrival(2), "t2"), (arrival(3), "~k")]
        acks = {("gw", "b"): 3}
        await log.commit(Batch(facts=first, acks=acks))
        await log.commit(Batch(facts=[(arrival(4), "t2")], acks={("gw", "b"): 4}))
        assert await store.facts() == [*first, (arrival(4), "t2")]
        await log.commit(Batch(release=[("gw", "t2"), ("gw", "~k"), ("other", "t1")]))
        assert await store.facts() == first[:1]
        assert await store.acks() == {("gw", "b"): 4}
        assert await store.ended() == {"gw": ["t2"], "other": ["t1"]}


async def test_what_is_needed_of_live_things_has_no_age(path: Path):
    """A run may wait for an answer for longer than texts are kept, a gateway run for months."""
    now = 1_000.0
    up = facts.GatewayUp("g", "1", "1", [], "key", 7, 55.0, local=True)

    def clock() -> float:
        return now

    async with (
        await Store.open(path, clock) as store,
        open_log(path, clock=clock, retention_s=100.0) as log,
    ):
        kept = [
            (facts.Arrival("gw", "b", 0, 1.0, 1.0, up), "~up"),
            (arrival(2), "t1"),
        ]
        acks = {("gw", boot): 2 for boot in ("b", "over")}
        await log.commit(Batch(facts=kept, acks=acks))
        now = 9_000.0
        await log.upkeep.forget()
        assert await store.facts() == kept
        assert await store.gateways() == [kept[0][0]]
        assert await store.acks() == {("gw", "b"): 2}


async def test_of_a_gateway_that_fails_at_each_start_few_boots_are_kept(path: Path):
    ticks = itertools.count(1_000.0)
    async with (
        await Store.open(path, time.time) as store,
        open_log(path, clock=lambda: next(ticks), retention_s=1e6) as log,
    ):
        await log.commit(Batch(facts=[(arrival(1), "t1")], acks={("gw", "b"): 1}))
        for i in range(BOOTS_KEPT + 9):
            await log.commit(Batch(acks={("gw", f"b{i}"): i, ("other", "b"): i}))
        await log.upkeep.forget()
        assert await store.acks() == {
            ("gw", "b"): 1,
            ("other", "b"): BOOTS_KEPT + 8,
            **{("gw", f"b{i}"): i for i in range(9, BOOTS_KEPT + 9)},
        }


async def test_the_last_ended_turns_are_known(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        for gateway in ("gw", "other"):
            most = ENDED_KEPT + 100 * (gateway == "gw")
            await log.commit(Batch(release=[(gateway, f"t{i}") for i in range(most)]))
        await log.commit(Batch(release=[("gw", "t500")]))
        await log.upkeep.forget()
        ended = await store.ended()
    assert ended["gw"] == [*(f"t{i}" for i in range(100, ENDED_KEPT + 100) if i != 500), "t500"]
    assert len(ended["gw"]) == len(ended["other"]) == ENDED_KEPT
