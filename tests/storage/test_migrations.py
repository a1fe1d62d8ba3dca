"""A database of each released schema is taken over with all that is in it."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from loomid.database import MIGRATIONS
from loomid.dbcheck import check
from loomid.fileindex import FileIndex
from loomid.lmp import scopes
from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.recalled import Sent
from loomid.log import Log
from loomid.sentindex import SentIndex
from loomid.store import Store
from loomid.vault import Token, Vault
from tests.support.log import arrival, open_log, text_of

DATA = Path(__file__).parents[1] / "data"
DEVICE = "dev_7f3a91c2e4d05b68"
REF = AttachmentRef(attachment_id="att_0", media_type="text/markdown", bytes=5, name="a.md")


def written(path: Path, schema: int) -> Path:
    """The database that a release with that schema left behind."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / f"schema-{schema}.sql").read_text())
        connection.execute("PRAGMA journal_mode = WAL")
    return path


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]


async def test_schema_1(tmp_path: Path):
    path = written(tmp_path / "loomid.db", 1)
    assert (pragma(path, "user_version"), pragma(path, "auto_vacuum")) == (1, 0)
    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        vault = Vault(store)
        types = [entry.type for entry in log.read(0, 99)]
        assert types == [
            *("gateway.status", "run.started", "run.delta", "run.completed", "run.started"),
            *("run.delta", "approval.required"),
        ]
        assert text_of(log.read(0, 99)[5]) == "Half of "
        assert list(log.projection.live_runs()) == ["run_live"]
        assert [p.event.payload.approval_id for p in log.projection.pending()] == ["apr_1"]
        assert await store.facts() == [(arrival(7), "t1")]
        assert await store.acks() == {("gw", "b"): 7}
        assert await store.ended() == {"gw": ["t0"]}
        (device,) = await vault.devices()
        assert (device.device_id, device.name, device.base) == (DEVICE, "Ann's phone", -500)
        assert device.confirmed is True
        assert device.scopes == scopes.ALL
        assert [token[1:] for token in await vault.tokens()] == [
            (Token(1760000300.0, "Ann's phone", scopes.DEFAULT), True, DEVICE),
            (Token(1760000300.0, None, scopes.DEFAULT), False, None),
        ]
        done = await vault.request(DEVICE, "r-1")
        assert done is not None
        assert done.state == "done"
        assert [one.request_id for one in await vault.open_requests()] == ["r-2"]
        (entry,) = await store.ledger.latest(9)
        assert (entry.id, entry.state, entry.answer) == ("apr_1", "claimed", "once")
        task = await vault.task("task_1")
        assert task is not None
        assert task.title == "Tidy"
        assert len(await vault.secret()) == 32
        await log.close()
    assert pragma(path, "user_version") == len(MIGRATIONS)
    assert pragma(path, "auto_vacuum") == 2
    assert pragma(path, "integrity_check") == "ok"


async def test_of_messages_before_schema_6_nothing_is_remembered(tmp_path: Path):
    path = tmp_path / "loomid.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (one for step in MIGRATIONS[:5] for one in step):
            connection.execute(statement)
        connection.execute("PRAGMA user_version = 5")
        connection.execute(
            "INSERT INTO file_use (sha256, name, message_id, at) VALUES ('0', 'a.md', 'm0', 1.0)"
        )
    async with await Store.open(path, time.time) as store:
        await FileIndex(store).settle("m0", "task_1")
        sent = SentIndex(store)
        await sent.settle("m0", "task_1", ["doc_0123456789ab_a.md"])
        assert await sent.of_task("task_1") == []
        await sent.note("m1", "look", [REF], 2.0)
        assert await sent.of_task("task_1") == []
        await sent.settle("m1", "task_1", ["doc_0123456789ab_a.md"])
        await sent.release("m1")  # too late
        assert await sent.of_task("task_1") == [
            Sent(2.0, "look", (REF,), ("doc_0123456789ab_a.md",))
        ]
    assert check(path).problems == []


async def test_a_large_old_file_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writing it anew would hold up the start; its free pages are used again."""
    path = written(tmp_path / "loomid.db", 1)
    monkeypatch.setattr("loomid.database.REWRITTEN_BYTES", path.stat().st_size - 1)
    monkeypatch.setattr("loomid.room.SPARE_BYTES", 0)
    async with open_log(path) as log:
        await log.upkeep.room.give_back()
    assert pragma(path, "auto_vacuum") == 0


async def test_no_room_for_a_copy_is_no_fault(tmp_path: Path):
    """The start goes on with the file as it is."""
    path = written(tmp_path / "loomid.db", 1)
    shutil.copyfile(path, tmp_path / "before")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM device").fetchall()
        async with open_log(path) as log:
            assert len(log.read(0, 99)) == 7
