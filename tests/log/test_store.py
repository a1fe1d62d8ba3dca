"""The database file: its mode, its schema, and what loomid says when it is unusable."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from loomid.database import MIGRATIONS
from loomid.errors import BusyError, StateError
from loomid.lmp.folding import FileTold
from loomid.lmp.history_frames import Part
from loomid.rows import Rows
from loomid.sentindex import SentIndex
from loomid.store import Store
from tests.support.log import open_log, push


async def test_only_the_owner_can_read_it(path: Path):
    old = os.umask(0)
    try:
        async with open_log(path) as log:
            await push(log, "a")
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"loomid.db": 0o600, "loomid.db-wal": 0o600, "loomid.db-shm": 0o600}


async def test_a_newer_schema_is_refused(path: Path):
    async with await Store.open(path, time.time):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StateError, match="newer loomid"):
        await Store.open(path, time.time)
    assert StateError.exit_code == 73


async def test_a_migration_that_stopped_half_way_is_done_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with await Store.open(path, time.time):
        pass
    broken = (*MIGRATIONS, ("CREATE TABLE extra (a)", "SELECT nonsense"))
    monkeypatch.setattr("loomid.database.MIGRATIONS", broken)
    with pytest.raises(StateError, match="nonsense"):
        await Store.open(path, time.time)
    monkeypatch.setattr("loomid.database.MIGRATIONS", (*MIGRATIONS, broken[-1][:1]))
    async with await Store.open(path, time.time):
        pass


async def test_what_was_sent_is_noted_once(path: Path):
    """Another attempt at the same batch changes nothing."""
    told = [
        FileTold("task_1", 1.0, 2.0, Part(part=f"attachment:{n}", kind="attachment"))
        for n in range(2)
    ]
    async with await Store.open(path, time.time) as store:
        for _ in range(2):
            await store.append(Rows(told=told))
        assert await SentIndex(store).handed("task_1") == told
        assert await SentIndex(store).handed("task_2") == []


def overwrite(path: Path, whole: bytes, first: int, last: int) -> None:
    path.write_bytes(whole[:first] + b"\x17" * (last - first) + whole[last:])


async def test_damage_is_named_with_the_way_out(path: Path):
    async with open_log(path) as log:
        await push(log, *("text" for _ in range(5000)))
    whole = path.read_bytes()  # noqa: ASYNC240 - nothing else runs
    size = len(whole)
    for first, last in ((0, 100), (100, size), (size // 2, size)):
        overwrite(path, whole, first, last)
        with pytest.raises(StateError, match=r"is damaged.*backup.*move it away"):
            async with open_log(path):
                pass
    overwrite(path, whole, 0, 0)
    async with open_log(path) as log:
        assert log.window == 512


def test_a_directory_in_its_place(path: Path):
    path.mkdir()
    with pytest.raises(StateError, match="cannot write"):
        asyncio.run(Store.open(path, time.time))


def test_a_directory_that_is_not_writable():
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        try:
            with pytest.raises(StateError, match=r"cannot write .*LOOMI_STATE_DIR"):
                asyncio.run(Store.open(place / "loomid.db", time.time))
        finally:
            if root:
                os.seteuid(0)
            place.chmod(0o700)


async def test_a_database_that_another_process_holds(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("loomid.store.START_BUSY_S", 0.1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusyError, match="another process holds"):
            await Store.open(path, time.time)


def test_a_failed_start_leaves_no_thread(path: Path):
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    before = threading.active_count()
    with pytest.raises(StateError):
        asyncio.run(Store.open(path, time.time))
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before  # one of an earlier test may have ended
