"""A damaged database (docs/storage.md): a start refuses, a running loomid tells and goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from loomid import dbtool
from loomid.database import MIGRATIONS
from loomid.log import Batch
from tests.storage.test_faults import on_stage
from tests.support import disk
from tests.support.daemon import Daemon
from tests.support.log import completed, open_log, push
from tests.support.loomictl import loomictl
from tests.support.phone import Closed, Phone
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    daemon.state_dir.mkdir(mode=0o700)
    yield daemon
    daemon.close()


async def filled(path: Path) -> None:
    async with open_log(path) as log:
        await push(log, *(f"text {i}" for i in range(400)))


@pytest.mark.parametrize(
    "spoil",
    [disk.damage_header, *(lambda path, n=n: disk.damage(path, n) for n in ("event", "start"))],
    ids=["header", "event", "start"],
)
async def test_a_start_refuses(daemon: Daemon, spoil: Callable[[Path], None]) -> None:
    path = daemon.state_dir / "loomid.db"
    await filled(path)
    spoil(path)
    daemon.spawn()
    assert await asyncio.to_thread(daemon.wait, 30.0) == 73
    (line,) = daemon.log().splitlines()
    assert line.startswith(f"loomid: {path} is damaged")
    for way_out in ("loomictl db check", "loomictl db restore", "move it away"):
        assert way_out in line


async def test_a_newer_schema(daemon: Daemon) -> None:
    path = daemon.state_dir / "loomid.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    daemon.spawn()
    assert await asyncio.to_thread(daemon.wait, 30.0) == 73
    assert "newer loomid" in daemon.log()


async def test_damage_that_shows_later(daemon: Daemon) -> None:
    """An old page: what is new is stored all the same; who needs that page is refused."""
    path = daemon.state_dir / "loomid.db"
    async with open_log(path) as log:
        await log.commit(Batch(events=[completed(f"run_{i}") for i in range(100)]))
        await push(log, *(f"text {i}" for i in range(1000)))
    disk.damage(path, "event")
    async with on_stage(daemon) as (stage, c):
        new = Phone(daemon.url, ["snapshot"])
        code = (await asyncio.to_thread(daemon.pair))["qr"]["token"]
        async with new.connect(code) as first:
            await first.wait_type("snapshot.done")
        new.last_seq = None
        async with new.open() as again:
            with pytest.raises(Closed):
                await again.hello()
            assert (again.errors, again.closed) == (["storage_failing"], 1011)
        await until(lambda: daemon.status()["log"]["damaged"])
        assert daemon.status()["log"]["failing"] is False
        said = await asyncio.to_thread(loomictl, daemon.runtime_dir, "status")
        assert "THE DATABASE IS DAMAGED" in said.stdout
        stage.say(5)
        await stage.over(c)
        assert [g.type for g in c.got if g.type == "server.status"] == []
    assert daemon.log().count("the database is damaged") == 1


async def test_damage_that_keeps_events_from_being_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They wait, and are not lost to others: the copy that is put back takes new ones."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    await filled(path)
    dbtool.backup(path, copy)
    disk.damage(path, "event_run", last=True)
    async with open_log(path, clean=False) as log, asyncio.TaskGroup() as group:
        storing = group.create_task(push(log, "new"))
        await until(lambda: log.health.failing_since is not None and log.health.damaged)
        control = log.take_position()
        await until(lambda: log.visible >= control)
        assert not storing.done()
        storing.cancel()
    assert [r.levelname for r in caplog.records].count("CRITICAL") == 1
    dbtool.restore(tmp_path, copy)
    async with open_log(path) as log:
        await push(log, "new")
        assert log.visible > control


@pytest.mark.parametrize("where", ["header", "middle", "header of a frame"])
async def test_a_damaged_write_ahead_log(daemon: Daemon, where: str) -> None:
    """SQLite takes what comes before the damage: whoever was shown more is told."""
    path = daemon.state_dir / "loomid.db"
    wal = path.with_name("loomid.db-wal")
    async with on_stage(daemon) as (stage, c):
        for _ in range(10):
            stage.say(1)
            await stage.all_heard()
        await asyncio.to_thread(daemon.kill)
        await c.wait_closed()
        data = bytearray(wal.read_bytes())
        frame = 24 + 4096
        last = max(n for n in range((len(data) - 32) // frame) if is_commit(data, n))
        at = {"header": 4, "middle": 32 + (last - 5) * frame + 100}
        at["header of a frame"] = 32 + (last - 5) * frame
        data[at[where] : at[where] + 20] = b"\x17" * 20
        wal.write_bytes(data)
        await asyncio.to_thread(daemon.start)
        assert "write-ahead log of" in daemon.log()
        async with stage.phone.open() as again:
            seen = stage.phone.last_seq
            try:
                hello = await again.hello()
            except Closed:
                assert where == "header"  # nothing is left, and so no phone is known
                assert again.closed == 4001
            else:
                assert hello.payload["truncated"] is True
                assert hello.seq > seen


def is_commit(data: bytes, number: int) -> bool:
    """Whether a frame ends a commit and is of the log's present generation."""
    at = 32 + number * (24 + 4096)
    return data[at + 4 : at + 8] != bytes(4) and data[at + 8 : at + 16] == data[16:24]


async def test_killed_amid_the_last_frame_is_no_damage(daemon: Daemon) -> None:
    """Its head is written, of its page what was there before: SQLite writes one after the other."""
    wal = daemon.state_dir / "loomid.db-wal"
    async with on_stage(daemon) as (stage, c):
        await asyncio.to_thread(daemon.kill)
        await c.wait_closed()
        data = wal.read_bytes()
        last = max(n for n in range((len(data) - 32) // 4120) if is_commit(data, n))
        after = 32 + (last + 1) * 4120
        head = (2).to_bytes(4, "big") + (50).to_bytes(4, "big") + data[16:24] + b"\x17" * 8
        wal.write_bytes(data[:after] + head + bytes(4096))
        await asyncio.to_thread(daemon.start)
        assert "write-ahead log of" not in daemon.log()
        async with stage.phone.connect() as again:
            assert again.hello_ok is not None
            assert again.hello_ok.payload["truncated"] is False
            stage.say(3)
            await stage.over(again)


async def test_killed_amid_commits_is_no_damage(daemon: Daemon) -> None:
    async with on_stage(daemon) as (stage, _):
        for _ in range(5):
            async with stage.phone.connect() as c:
                assert c.hello_ok is not None
                assert c.hello_ok.payload["truncated"] is False
                before = stage.heard()
                stage.say(300)
                await until(lambda before=before: stage.heard() > before)
                await asyncio.to_thread(daemon.kill)
                await c.wait_closed()
            await asyncio.to_thread(daemon.start)
    assert "write-ahead log" not in daemon.log()
