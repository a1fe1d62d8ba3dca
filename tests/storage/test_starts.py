"""Starts on a disk that cannot be used: the documented exit status and one line."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from loomid import database, dbcheck
from tests.support import disk
from tests.support.daemon import Daemon

if TYPE_CHECKING:
    from pathlib import Path


def refused(daemon: Daemon) -> tuple[int, str]:
    """Start it; its exit status and its one line."""
    before = len(daemon.log().splitlines())
    daemon.spawn()
    code = daemon.wait(30.0)
    (line,) = daemon.log().splitlines()[before:]
    return code, line


def test_a_full_disk(daemon: Daemon) -> None:
    """Without a byte for the lock, or without one for the database."""
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        with disk.filled(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "No space left" in line, "LOOMI_STATE_DIR" in line) == (73, True, True)
        (daemon.state_dir / "state.lock").write_text("0" * 10)
        with disk.filled(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "full" in line) == (73, True)
        daemon.start()
        daemon.close()


def test_a_read_only_disk(daemon: Daemon) -> None:
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        daemon.start()
        assert daemon.stop() == 0
        with disk.read_only(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "Read-only" in line, "LOOMI_STATE_DIR" in line) == (73, True, True)
        daemon.start()
        daemon.close()


def test_a_database_that_stays_locked(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.stop() == 0
    with disk.locked(daemon.state_dir / "loomid.db"):
        code, line = refused(daemon)
        assert (code, "another process holds" in line) == (75, True)


# ── a first start that came to an end before it was one ─────────────────────


def left_by(path: Path, steps: int) -> None:
    """The files of a first start that was killed after so many steps of making its database."""
    work = path.with_name("work.db")
    database.prepare(work)
    with closing(sqlite3.connect(work, isolation_level=None)) as line:
        if steps == 0:  # amid its first page: what it wrote is undone from the journal
            line.execute("PRAGMA cache_size = 1")
            line.execute("BEGIN IMMEDIATE")
            line.execute("CREATE TABLE meta (name TEXT)")
            line.executemany("INSERT INTO meta VALUES (?)", [("x" * 3000,)] * 20)
            assert work.stat().st_size >= 4096
            assert work.with_name("work.db-journal").read_bytes()[:8].strip(b"\0")
        else:
            database._configure("FULL", line)
        for number in range(steps - 1):
            database._transaction(partial(database._step, number), line)
        for file in path.parent.glob("work.db*"):
            shutil.copy(file, path.with_name(file.name.replace("work", "loomid")))
    for file in path.parent.glob("work.db*"):
        file.unlink()


@pytest.mark.parametrize("steps", range(len(database.MIGRATIONS) + 2))
def test_files_of_a_start_that_was_interrupted(daemon: Daemon, steps: int) -> None:
    daemon.state_dir.mkdir(mode=0o700)
    left_by(daemon.state_dir / "loomid.db", steps)
    assert ((daemon.state_dir / "loomid.db-journal").exists()) == (steps == 0)
    daemon.start()
    assert daemon.pair()["qr"]["token"]
    assert daemon.stop() == 0
    assert dbcheck.check(daemon.state_dir / "loomid.db").problems == []


def test_sigterm_before_it_listens(daemon: Daemon) -> None:
    """As soon as its database is there, however far it has come with it."""
    path = daemon.state_dir / "loomid.db"
    daemon.spawn()
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end
    assert daemon.stop() in (0, -signal.SIGTERM)
    daemon.start()
    assert daemon.pair()["qr"]["token"]
    assert daemon.stop() == 0
