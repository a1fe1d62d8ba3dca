"""A gateway that the owner has forgotten: no trace of it is kept, and it may come back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from loomid import farewell, wire
from loomid.errors import StorageFailing
from loomid.farewell import StillOnline, forget
from loomid.lmp import frames
from loomid.log import Batch
from loomid.vault import Vault
from tests.support.pumping import (
    delta,
    linked,
    pumping,
    stream_started,
    text_of,
    turn_started,
    types,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.pumping import Half


def rows_of(path: Path, gateway_id: str) -> dict[str, int]:
    """How many rows speak of it, by table, where any does."""
    with closing(sqlite3.connect(path)) as line:
        tables = [row[0] for row in line.execute("SELECT name FROM sqlite_master")]
        found = {}
        for table in tables:
            names = [row[1] for row in line.execute(f"PRAGMA table_info({table})")]
            if "gateway_id" in names:
                sql = f"SELECT count(*) FROM {table} WHERE gateway_id = ?"
                found[table] = line.execute(sql, (gateway_id,)).fetchone()[0]
        found["live"] = line.execute(
            "SELECT count(*) FROM live WHERE kind = 'gateway' AND id = ?", (gateway_id,)
        ).fetchone()[0]
    return {table: count for table, count in found.items() if count}


async def in_a_run(half: Half, directory: Path, text: str = "half") -> None:
    """A gateway comes, begins a run, and goes."""
    with linked(directory) as host:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        host.link.emit("delta", delta(text))
        await until(lambda: text_of(half.shown()).endswith(text))
    await until(lambda: not half.gateways.states()[0].online)


async def test_nothing_of_it_is_left_and_its_run_is_over(tmp_path: Path) -> None:
    async with pumping(tmp_path) as half:
        await in_a_run(half, tmp_path)
        assert {"fact", "ack", "task", "live"} <= rows_of(half.store.path, "gw1").keys()
        with linked(tmp_path, gateway_id="gw2", boot="other"):
            await until(lambda: "gw2" in half.pump.runs)
            await until(lambda: half.log.projection.gateway("gw2"))
            await forget(half.gateways, half.pump, half.log, "gw1")
            assert types(half.shown())[-3:] == ["run.failed", "task.updated", "gateway.forgotten"]
            assert [one.payload.gateway_id for one in half.log.projection.gateways()] == ["gw2"]  # type: ignore[attr-defined]
            assert [one.gateway_id for one in half.gateways.states()] == ["gw2"]
            assert rows_of(half.store.path, "gw1") == {}
            assert rows_of(half.store.path, "gw2").keys() >= {"fact", "live"}
        assert list(half.pump.runs) == ["gw2"]
    async with pumping(tmp_path) as half:
        assert list(half.pump.runs) == ["gw2"]
        assert [one.gateway_id for one in half.gateways.states()] == ["gw2"]


async def test_it_may_come_back_even_as_the_same_process(tmp_path: Path) -> None:
    async with pumping(tmp_path) as half:
        await in_a_run(half, tmp_path)
        await forget(half.gateways, half.pump, half.log, "gw1")
        start = len(half.shown())
        await in_a_run(half, tmp_path, "again")
        assert types(half.shown())[start:][:2] == ["gateway.status", "run.started"]
        assert rows_of(half.store.path, "gw1").keys() >= {"fact", "ack", "task", "live"}


async def test_it_comes_back_in_one_batch_with_the_farewell(tmp_path: Path) -> None:
    async with pumping(tmp_path) as half:
        await in_a_run(half, tmp_path)
        assert half.gateways.forget("gw1", "Stand-in")
        half.gateways._roster.hello(
            b"peer", wire.Hello(1, "gw1", "boot2", 0, "G", "0.22", "0.1", []), 5.0
        )
        half.gateways._tell()
        await until(lambda: types(half.shown())[-2:] == ["gateway.forgotten", "gateway.status"])
        assert rows_of(half.store.path, "gw1") == {"fact": 1, "live": 1}
        assert half.log.projection.gateway("gw1") is not None
    async with pumping(tmp_path) as half:
        assert [one.boot for one in half.gateways.states()] == ["boot2"]


async def test_one_that_is_online_and_one_that_is_none(tmp_path: Path) -> None:
    async with pumping(tmp_path) as half:
        with pytest.raises(KeyError):
            await forget(half.gateways, half.pump, half.log, "gw1")
        with linked(tmp_path):
            await until(lambda: half.log.projection.gateway("gw1"))
            with pytest.raises(StillOnline):
                await forget(half.gateways, half.pump, half.log, "gw1")
            assert half.gateways.states()[0].online


async def test_one_that_only_phones_know_of(tmp_path: Path) -> None:
    async with pumping(tmp_path) as half:
        told = frames.GatewayStatus(
            gateway_id="old", name="Old", online=False, hermes_version="", shim_version="", since=1
        )
        await half.log.commit(Batch(events=[frames.Event(told, 1.0)]))
        await forget(half.gateways, half.pump, half.log, "old")
        assert half.log.projection.gateways() == []
        assert rows_of(half.store.path, "old") == {}
        (row,) = await Vault(half.store).audit.latest(None, 0.0)
        assert (row["who"], row["action"]) == ("loomictl", "gateway.forgotten")
        assert (row["about"], row["detail"]) == ("old", {"name": "Old"})


async def test_while_the_disk_fails_it_is_said_and_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farewell, "STORED_WITHIN_S", 0.1)
    async with pumping(tmp_path) as half:
        await in_a_run(half, tmp_path)
        with closing(sqlite3.connect(half.store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageFailing):
                await forget(half.gateways, half.pump, half.log, "gw1")
            other.execute("ROLLBACK")
        await until(lambda: half.log.projection.gateway("gw1") is None)
        assert rows_of(half.store.path, "gw1") == {}
