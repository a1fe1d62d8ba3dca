"""The database stays within its size and gives room back, whatever is written."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from loomid.lmp.facts import Arrival
from loomid.log import Batch
from loomid.wire import Delta
from tests.storage.volume import MIB, Figures, flood
from tests.support import disk
from tests.support.log import WINDOW, completed, delta, open_log, push, started, text_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 64 * MIB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loomid.db"


def size(path: Path) -> int:
    figures = Figures()
    figures.look(path)
    return figures.largest


@pytest.mark.timeout(180)
async def test_a_flood_stays_within_the_size(path: Path):
    async with open_log(path, max_db_bytes=LIMIT) as log, asyncio.TaskGroup() as group:
        tending = group.create_task(log.tend())
        alive = [started("run_alive"), delta("said long ago", "run_alive")]
        await log.commit(Batch(events=alive))
        beginning = log.visible
        figures = await flood(log, path, 300 * MIB, 8192)
        end = log.visible
        tending.cancel()
    assert figures.largest <= LIMIT
    async with open_log(path, max_db_bytes=LIMIT) as log:
        assert not log.resumable(beginning)
        shown = log.read(end - WINDOW, 9999)
        assert len(shown) == WINDOW
        assert log.resumable(end - WINDOW)
        said = [e.payload for e in log.projection.snapshot() if e.run_id == "run_alive"]
        assert [getattr(payload, "text", "") for payload in said] == ["", "said long ago"]


@pytest.mark.timeout(180)
async def test_facts_count_as_well(path: Path):
    """They are stored beside their events, and overwritten when their turn is over."""
    text = "x" * 8192
    async with open_log(path, max_db_bytes=LIMIT) as log, asyncio.TaskGroup() as group:
        tending = group.create_task(log.tend())
        figures = await flood(log, path, 60 * MIB, 8192)
        for i in range(200):
            said = [
                Arrival("gw", "b", i * 100 + n, 1.0, 1.0, Delta(f"t{i}", 1, text, "text"))
                for n in range(1, 100)
            ]
            batch = Batch(
                events=[delta(text, run_id="run_x") for _ in said[:9]],
                facts=[(one, f"t{i}") for one in said],
                release=[("gw", f"t{i - 2}")],
            )
            await log.commit(batch)
            figures.look(path)
        tending.cancel()
    assert figures.largest <= LIMIT


async def test_room_is_given_back_between_commits(path: Path):
    now = 1_000.0

    def clock() -> float:
        return now

    async with open_log(path, clock=clock, retention_s=100.0) as log:
        for _ in range(40):
            old = [replace(delta("x" * 10_000), ts=now) for _ in range(100)]
            await log.commit(Batch(events=old))
        await push(log, *("new" for _ in range(WINDOW)))
        assert size(path) > 40 * MIB
        now += 1_000.0
        await log.upkeep.forget()
        count = 0
        async with asyncio.TaskGroup() as group:
            giving = group.create_task(log.upkeep.room.give_back())
            while not giving.done():
                await push(log, str(count))
                count += 1
        assert count > 10
        end = log.visible
    assert size(path) < 8 * MIB
    async with open_log(path, clock=clock, window=100_000) as log:
        texts = [text_of(one) for one in log.read(end - count, count + 1)]
        assert texts == [str(i) for i in range(count)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [r.levelno for r in caplog.records if "LOOMI_MAX_DB_SIZE" in r.getMessage()]


async def test_what_is_alive_is_more_than_the_size(path: Path, caplog: pytest.LogCaptureFixture):
    """It is kept and said once; what happens next is stored all the same."""
    async with open_log(path, max_db_bytes=LIMIT) as log, asyncio.TaskGroup() as group:
        tending = group.create_task(log.tend())
        await log.commit(Batch(events=[started("run_x")]))
        await flood(log, path, 80 * MIB, 16384)
        await push(log, "after all")
        await until(lambda: warnings(caplog), 60)
        tending.cancel()
    assert warnings(caplog) == [logging.WARNING]
    async with open_log(path, max_db_bytes=LIMIT) as log:
        text = "".join(getattr(e.payload, "text", "") for e in log.projection.snapshot())
        assert len(text) == 80 * MIB


async def test_what_cannot_be_removed_keeps_nothing_out(
    path: Path, caplog: pytest.LogCaptureFixture
):
    """The oldest page is damaged: the file grows, and what is new is stored."""
    async with open_log(path) as log:
        await push(log, *(f"old {i}" for i in range(1000)))
    disk.damage(path, "event")
    async with open_log(path, max_db_bytes=LIMIT) as log, asyncio.TaskGroup() as group:
        tending = group.create_task(log.tend())
        await flood(log, path, 80 * MIB, 8192)
        await push(log, "new")
        assert log.health.damaged
        tending.cancel()
        assert text_of(log.read(log.visible - 1, 9)[0]) == "new"
    assert "cannot store" not in caplog.text


async def test_nothing_is_removed_while_there_is_room(path: Path):
    """Many small commits are not taken for much."""
    async with open_log(path, max_db_bytes=LIMIT) as log:
        beginning = log.visible
        for i in range(4000):
            await log.commit(Batch(events=[completed(f"run_{i}")]))
        assert size(path) < LIMIT // 2
        assert len(await log.lasting(beginning, log.visible, 9999, 0.0)) == 4000
