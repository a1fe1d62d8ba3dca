"""`loomictl db`: what is sound, copies made while loomid runs and put back while it does not."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import tempfile
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loomid import cli_db, dbtool
from loomid.errors import BusyError, StateError
from loomid.store import Store
from loomid.vault import Vault
from tests.storage.test_faults import linked, on_stage, paired
from tests.support import disk
from tests.support.daemon import Daemon
from tests.support.log import open_log, push
from tests.support.loomictl import loomictl
from tests.support.phone import Closed


def db(daemon: Daemon, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of loomictl db."""
    where = ("--state-dir", str(daemon.state_dir))
    done = loomictl(daemon.runtime_dir, *where, "db", *map(str, arguments))
    return done.returncode, done.stdout, done.stderr


async def a_db(daemon: Daemon, *arguments: str | Path) -> tuple[int, str, str]:
    return await asyncio.to_thread(db, daemon, *arguments)


def beside(path: Path, prefix: str) -> list[str]:
    return [one.name for one in path.parent.iterdir() if one.name.startswith(prefix)]


async def test_a_copy_put_back(daemon: Daemon, tmp_path: Path) -> None:
    """Nothing is numbered or run a second time, and phones are told that they missed something."""
    copy = tmp_path / "copy"
    async with on_stage(daemon) as (stage, c):
        revoked = stage.away
        code, said, _ = await a_db(daemon, "backup", copy)
        assert (code, said.startswith(f"Written and checked: {copy}"), "2 devices" in said) == (
            *(0, True, True),
        )
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        code, said, _ = await a_db(daemon, "check")
        assert (code, said.splitlines()[-1]) == (0, "no fault was found")
        stage.say(5)
        await stage.all_heard()
        answer = await c.request("session.send", text="hi", request_id="r1")
        later = await paired(daemon)
        await asyncio.to_thread(daemon.call, "DELETE", f"/devices/{revoked.device_id}")
        code, _, said = await a_db(daemon, "restore", copy)
        assert (code, "stop loomid first" in said, f"pid {daemon.pid}" in said) == (75, True, True)
        assert c.closed is None
        await asyncio.to_thread(daemon.kill)
        assert await c.wait_closed()
        seen = stage.phone.last_seq
        code, said, _ = await a_db(daemon, "restore", copy)
        assert code == 0
        assert f"still so (else: restore --bring-back):\n  Pixel: {revoked.device_id}\n" in said
        (former,) = daemon.state_dir.glob("loomid.db.*Z")
        assert f"the former database is now {former}" in said
        await asyncio.to_thread(daemon.start)
        await linked(daemon)
        stage.phone.capabilities.append("snapshot")
        async with stage.phone.connect() as again:
            assert again.hello_ok is not None
            assert again.hello_ok.payload["truncated"] is True
            assert again.hello_ok.seq > seen
            await again.wait_type("snapshot.done")
            repeated = await again.request("session.send", text="hi", request_id="r1")
            assert repeated.payload == answer.payload
            assert len(stage.host.ops("inject")) == 1
            stage.host.end_turn("t1")
            await again.wait_type("run.completed")
        for stranger in (revoked, later):
            async with stranger.open() as gone:
                with pytest.raises(Closed):
                    await gone.hello()
                assert gone.closed == 4001
    assert [one.name for one in daemon.state_dir.glob(".loomid-*")] == []


def test_a_copy_takes_the_place_of_no_file(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    (tmp_path / "mine").write_text("dear")
    code, _, said = db(daemon, "backup", tmp_path / "mine")
    assert (code, "File exists; choose a new name" in said) == (73, True)
    assert (tmp_path / "mine").read_text() == "dear"
    assert db(daemon, "backup", tmp_path / "no" / "where")[0] == 73


async def test_commits_go_on_while_a_copy_is_made(tmp_path: Path) -> None:
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path) as log:
        for _ in range(40):
            await push(log, *("x" * 10_000 for _ in range(50)))
        before = log.visible
        count = 0
        async with asyncio.TaskGroup() as group:
            making = group.create_task(asyncio.to_thread(dbtool.backup, path, copy))
            while not making.done():
                await push(log, str(count))
                count += 1
        assert count > 10
        assert log.health.failing_since is None
    with closing(sqlite3.connect(copy)) as connection:
        (last,) = connection.execute("SELECT max(position) FROM event").fetchone()
        assert before <= last < before + count
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


async def test_it_waits_for_who_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one killed in the midst would leave behind what is in the write-ahead log alone."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path) as log:
        await push(log, "a")
        dbtool.backup(path, copy)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM event").fetchone() == (1,)
        async with open_log(path, clean=False) as log:
            await push(log, "b")
        connect = partial(sqlite3.connect, timeout=0.1)
        monkeypatch.setattr(dbtool.sqlite3, "connect", connect)
        with pytest.raises(BusyError):
            dbtool.restore(tmp_path, copy)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (2,)
    assert not beside(path, "loomid.db.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
@pytest.mark.parametrize("closed", ["the directory", "the file"])
def test_another_account_is_told_whose_to_use(closed: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "loomid.db")
        path.touch(0o600)
        Path(name).chmod(0o700 if closed == "the directory" else 0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(StateError, match="Permission denied; run this as loomid's account"):
                dbtool.check(path)
        finally:
            os.seteuid(0)


async def test_what_a_killed_one_has_left_is_removed(tmp_path: Path) -> None:
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path) as log:
        await push(log, "a")
    dbtool.backup(path, copy)
    for name in (".loomid-restore-x.db", ".loomid-restore-x.db-journal"):
        (tmp_path / name).write_text("half a copy")
    dbtool.restore(tmp_path, copy)
    assert not beside(path, ".loomid-")


async def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path, copy = tmp_path / "loomid.db", tmp_path / os.fsdecode(b"caf\xe9")
    async with open_log(path) as log:
        await push(log, "a")
    dbtool.backup(path, copy)
    assert dbtool.restore(tmp_path, copy).findings.events == 1
    copy.rename(tmp_path / "copy")
    copy.mkdir()
    with pytest.raises(StateError, match="UTF-8"):
        dbtool.backup(path, copy / "copy")
    assert not list(copy.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may work on another account's files")
async def test_another_accounts_directory_is_left_alone(tmp_path: Path) -> None:
    async with open_log(tmp_path / "loomid.db") as log:
        await push(log, "a")
    dbtool.backup(tmp_path / "loomid.db", tmp_path / "copy")
    os.chown(tmp_path, 1, 1)
    with pytest.raises(StateError, match="another account"):
        dbtool.restore(tmp_path, tmp_path / "copy")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE start SET reserved = 9223372036854775807",
        "UPDATE event SET payload = 5",
        "UPDATE meta SET value = 'x'",
        "INSERT INTO ack VALUES ('g', 'b', 'n', 'x')",
    ],
)
async def test_a_start_would_fail_with_these(tmp_path: Path, damage: str) -> None:
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path) as log, await Store.open(path, time.time) as store:
        await push(log, "a")
        await Vault(store).secret()
    dbtool.backup(path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(damage)
        connection.commit()
    with pytest.raises(dbtool.Unsound):
        dbtool.restore(tmp_path, copy)


@pytest.mark.parametrize("fault", ["header", "event", "event_run", "wal"])
def test_a_copy_is_put_in_the_place_of_a_damaged_one(
    daemon: Daemon, tmp_path: Path, fault: str
) -> None:
    daemon.start()
    for _ in range(40):
        daemon.pair()
    assert db(daemon, "backup", tmp_path / "copy")[0] == 0
    daemon.kill()
    path = daemon.state_dir / "loomid.db"
    if fault == "wal":
        wal = path.with_name("loomid.db-wal")
        wal.write_bytes(b"\x17" * wal.stat().st_size)
    elif fault == "header":
        disk.damage_header(path)
    else:
        disk.damage(path, fault)
    if fault != "wal":  # what of that can be read is a sound database
        assert db(daemon, "check")[0] == 65
    code, _, error = db(daemon, "restore", tmp_path / "copy")
    assert (code, error) == (0, "")
    assert db(daemon, "check")[0] == 0
    daemon.start()
    assert daemon.status()["log"]["damaged"] is False


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 999")


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (x)")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (newer, "newer loomid"),
        (foreign, "no database of loomid"),
        (lambda path: path.write_text("dear diary " * 1000), "not a database"),
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: disk.damage(path, "start"), "damaged"),
    ],
)
def test_what_is_no_sound_copy_is_not_put_back(
    daemon: Daemon, tmp_path: Path, spoil: Any, said: str
) -> None:
    daemon.start()
    copy = tmp_path / "copy"
    assert db(daemon, "backup", copy)[0] == 0
    assert daemon.stop() == 0
    spoil(copy)
    before = {one: one.read_bytes() for one in daemon.state_dir.iterdir() if one.is_file()}
    code, out, error = db(daemon, "restore", copy)
    assert (code, out) == (65, "")
    assert said in error
    assert before == {one: one.read_bytes() for one in daemon.state_dir.iterdir() if one.is_file()}
    assert db(daemon, "restore", tmp_path / "nothing")[0] == 73


def test_no_database(daemon: Daemon, tmp_path: Path) -> None:
    for command in ("check", "backup", "restore"):
        file = {"backup": tmp_path / "copy", "restore": "/nowhere/f"}.get(command)
        code, _, error = db(daemon, command, *([file] if file else []))
        assert (code, error.count("\n")) == (73, 1), command
        assert ("--state-dir" in error) == (command != "restore")  # that lacks its FILE


def test_a_copy_starts_a_new_machine(daemon: Daemon, tmp_path: Path) -> None:
    """Without a former database, in a directory that is not there yet."""
    daemon.start()
    assert db(daemon, "backup", tmp_path / "copy")[0] == 0
    assert daemon.stop() == 0
    daemon.state_dir = tmp_path / "new"
    code, said, _ = db(daemon, "restore", tmp_path / "copy")
    assert (code, "former" in said) == (0, False)
    assert {one.name for one in daemon.state_dir.iterdir()} == {"loomid.db", "state.lock"}
    daemon.start()
    assert daemon.stop(signal.SIGINT) == 0


def test_a_full_disk_is_said_to_have_nothing_free(daemon: Daemon) -> None:
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        daemon.start()
        daemon.kill()
        with disk.filled(daemon.state_dir):
            _, said, _ = db(daemon, "check")
        assert "; 0.0 MiB free on the disk" in said


@pytest.mark.parametrize("fault", ["header", "event"])
def test_no_figures_of_what_cannot_be_read(daemon: Daemon, fault: str) -> None:
    daemon.start()
    for _ in range(40):
        daemon.pair()
    assert daemon.stop() == 0
    path = daemon.state_dir / "loomid.db"
    if fault == "header":
        disk.damage_header(path)
    else:
        disk.damage(path, fault)
    code, said, error = db(daemon, "check")
    assert code == 65
    assert all(line.startswith(f"loomictl: {path}: it is damaged") for line in error.splitlines())
    assert "schema" not in said
    assert "event" not in said.removeprefix(str(path))
    assert "device" not in said
    assert "0.0 MiB" not in said


def test_sizes_in_words() -> None:
    assert cli_db.size(3 * 2**29) == "1.5 GiB"
    assert cli_db.size(3 * 2**19) == "1.5 MiB"


async def test_what_check_finds(tmp_path: Path, daemon: Daemon) -> None:
    daemon.state_dir = tmp_path
    path = tmp_path / "loomid.db"
    async with open_log(path) as log:
        await push(log, *(f"text {i}" for i in range(5000)))
        end = log.visible
    assert db(daemon, "check")[0] == 0
    sound = path.read_bytes()
    for change, said in (
        (f"UPDATE event SET payload = x'00ff' WHERE position = {end}", "1 events cannot be read"),
        ("UPDATE event SET position = 1 << 60 WHERE position = (SELECT max(position) FROM event)",
         "no start has reserved"),
        ("INSERT INTO live VALUES ('run', 'r', 3)", "1 live things have no event"),
        ("DROP INDEX event_run", "index event_run is missing"),
        ("CREATE TABLE mine (x)", "table mine is not of loomid"),
        ("ALTER TABLE task ADD COLUMN more", "table task is not as loomid makes it"),
        ("INSERT INTO start SELECT id + 1, first, reserved, '', '', 0, 0 FROM start",
         "1 starts have reserved positions of earlier ones"),
    ):  # fmt: skip
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(change)
            connection.commit()
        code, _, error = db(daemon, "check")
        assert (code, said in error) == (65, True), error
        path.write_bytes(sound)
