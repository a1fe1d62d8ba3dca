"""Time that passed without loomid, stopped or asleep, is no silence of Hermes."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.catchup import CatchUp
from loomid.lmp.facts import Arrival, Unheard
from loomid.lmp.turns import SILENT_S
from loomid.pump import UNHEARD_S
from tests.support.pumping import (
    Half,
    Host,
    delta,
    ended,
    endings,
    linked,
    pumping,
    stored,
    stream_started,
    text_of,
    turn_started,
    types,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


async def a_failed_turn_of_cron(half: Half, host: Host) -> None:
    """Its model call failed; it has two minutes to go on."""
    host.link.emit("turn.started", turn_started(platform="cron") | {"session_key": None})
    host.link.emit("stream.started", stream_started(surface="cron"))
    failed = {"turn_id": "t1", "session_id": "s1", "call": 1, "status_code": 500, "reason": ""}
    host.link.emit("api.failed", failed | {"retryable": True, "error": "busy"})
    await until(lambda: stored(half, "api.failed"))


async def test_that_loomid_was_away_is_no_silence_of_hermes(tmp_path: Path, host: Host):
    async with pumping(tmp_path) as half:
        await a_failed_turn_of_cron(half, host)
        start = half.start
    host.link.emit("delta", delta("all "))
    host.link.emit("delta", delta("is well"))
    for kind, body in endings("all is well"):
        host.link.emit(kind, body)
    async with pumping(tmp_path, clock=lambda: time.time() + 600.0) as half:
        half.start = start
        await until(lambda: ended(half.shown()))
        assert "run.failed" not in types(half.shown())
        assert text_of(half.shown()) == "all is well"


def long_ago(host: Host, kind: str, body: dict[str, Any]) -> None:
    """A hook that was called while loomid was away."""
    host.link._queue.put((kind, time.time() - 600.0, body))


async def test_an_inventory_that_a_loomid_before_us_asked_for_is_of_its_time(
    tmp_path: Path, host: Host
):
    async with pumping(tmp_path, clock=lambda: time.time() - 600.0) as half:
        await a_failed_turn_of_cron(half, host)
        start = half.start
    long_ago(host, "inventory", {"keys": [], "approvals": []})
    long_ago(host, "delta", delta("all is well"))
    for kind, body in endings("all is well"):
        long_ago(host, kind, body)
    async with pumping(tmp_path) as half:
        half.start = start
        await until(lambda: ended(half.shown()))
        assert "run.failed" not in types(half.shown())


async def test_a_fact_of_our_own_time_ends_the_catching_up(tmp_path: Path, host: Host):
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        host.link.emit("delta", delta("one"))
        await until(lambda: text_of(half.shown()) == "one")
        start = half.start
    host.silent = True  # no inventory comes
    async with pumping(tmp_path) as half:
        half.start = start
        await until(lambda: half.gateways.boot_of("gw1") is not None)
        host.link.emit("delta", delta(" two"))
        host.link.emit("delta", delta(" three"))
        await until(lambda: text_of(half.shown()) == "one two three")


async def a_turn_begun(tmp_path: Path, host: Host) -> int:
    """With a loomid that is gone then; returns where its events began."""
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        await until(lambda: stored(half, "stream.started"))
        return half.start


async def test_what_a_newer_process_tells_meanwhile_has_its_own_time(tmp_path: Path):
    """The older one was killed while loomid was away, and is not yet known to be gone."""
    with linked(tmp_path) as host:
        start = await a_turn_begun(tmp_path, host)
    with linked(tmp_path, boot="boot2") as newer:
        for n in range(3):
            t, turn = time.time() + 0.001 * n, {"turn_id": f"n{n}"}
            body = turn_started() | turn | {"session_key": f"k{n}"}
            newer.link._queue.put(("turn.started", t, body))
            newer.link._queue.put(("stream.started", t, stream_started() | turn))
        async with pumping(tmp_path) as half:
            half.start = start
            await until(lambda: types(half.shown()).count("run.started") == 4)
            told = half.log.read(half.start, 999)
            begun = [one.parts for one in told if one.type == "run.started"]
            times = {re.search(rb'"ts":([0-9.]+)', parts)[1] for parts in begun}
            assert len(times) == 4


async def test_an_inventory_is_not_waited_for_for_ever(tmp_path: Path, host: Host):
    shift = 0.0
    async with pumping(tmp_path) as half:
        await a_failed_turn_of_cron(half, host)
        start = half.start
    host.silent = True
    async with pumping(tmp_path, clock=lambda: time.time() + shift) as half:
        half.start = start
        await until(lambda: half.gateways.boot_of("gw1") is not None)
        for n in range(1, 21):  # never so much at once that nobody seems to have listened
            shift += UNHEARD_S / 2
            host.link.emit("delta", delta("another turn", "t2"))
            await until(lambda n=n: stored(half, "delta", n))
        await until(lambda: ended(half.shown()))
        assert "run.failed" in types(half.shown())


async def test_a_gateway_that_is_gone_is_not_waited_for(tmp_path: Path):
    with linked(tmp_path) as host:
        start = await a_turn_begun(tmp_path, host)
    async with pumping(tmp_path) as half:
        half.start = start
        await until(lambda: ended(half.shown()))
        assert half.shown()[-2].error == "gateway_lost"


async def test_a_night_of_sleep_is_no_silence(tmp_path: Path, host: Host):
    """Both processes were suspended in the middle of a run, and of one that had failed."""
    shift = 0.0
    async with pumping(tmp_path, clock=lambda: time.time() + shift) as half:
        await a_failed_turn_of_cron(half, host)
        host.link.emit("turn.started", turn_started("t2"))
        host.link.emit("stream.started", stream_started("t2"))
        host.link.emit("delta", delta("all", "t2"))
        await until(lambda: text_of(half.shown()) == "all")
        shift = 2 * SILENT_S
        host.link.emit("delta", delta(" is", "t2"))
        await until(lambda: stored(half, "delta", 2))
        start = half.start
    async with pumping(tmp_path, clock=lambda: time.time() + shift) as half:  # and is kept
        half.start = start
        host.link.emit("delta", delta(" well", "t2"))
        for kind, body in endings("all is well", "t2"):
            host.link.emit(kind, body)
        for kind, body in endings("here too"):
            host.link.emit(kind, body)
        await until(lambda: types(half.shown()).count("run.completed") == 2)
        assert "run.failed" not in types(half.shown())
        assert text_of(half.shown()).startswith("all is well")


def test_what_is_told_late_does_not_bring_a_silence_back() -> None:
    catch_up = CatchUp()
    catch_up.stored(Arrival("gw", "b", 1, 10.0, 10.0, wire.LoopStopped("k", "")))
    catch_up.stored(Arrival("gw", "", 0, 9_000.0, 9_000.0, Unheard()))
    catch_up.since = 9_100.0
    late = Arrival("gw", "b", 2, 20.0, 9_101.0, wire.LoopStopped("k", ""))
    assert catch_up.at(late) == 9_000.0
