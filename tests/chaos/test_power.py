"""What a simulated power loss takes from a database is what a real one may."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.chaos import power
from tests.support.daemon import clean_environ

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import os, signal, sqlite3, sys
path = sys.argv[1]
normal, full = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
for line, level in (normal, "NORMAL"), (full, "FULL"):
    line.execute("PRAGMA journal_mode = WAL")
    line.execute(f"PRAGMA synchronous = {level}")
    line.execute("PRAGMA wal_autocheckpoint = 0")
full.execute("CREATE TABLE t (i)")
def add(line, count):
    for _ in range(count):
        line.execute("INSERT INTO t SELECT count(*) FROM t")
for step in sys.argv[2:]:
    if step == "checkpoint":
        normal.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    else:
        kind, count = step.split(":")
        add({"normal": normal, "full": full}[kind], int(count))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    made = power.library(tmp_path)
    if made is None:
        pytest.skip("no C compiler")
    return made


def written(tmp_path: Path, library: Path, *steps: str) -> Path:
    """A database whose writer was killed, with notes of what it synced."""
    path = tmp_path / "db"
    environ = clean_environ(tmp_path, LD_PRELOAD=str(library), SYNC_NOTES=str(tmp_path / "notes"))
    subprocess.run([sys.executable, "-c", WRITER, str(path), *steps], env=environ, check=False)
    return path


def rows(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        found: int = connection.execute("SELECT count(*) FROM t").fetchone()[0]
    connection.close()
    return found


@pytest.mark.parametrize(
    ("steps", "least", "most"),
    [
        (("normal:5", "full:1", "normal:7"), 6, 13),
        (("normal:5",), 0, 5),
        (("full:3",), 3, 3),
        (("normal:5", "checkpoint", "normal:4"), 5, 9),
        (("normal:5", "checkpoint", "normal:4", "full:1", "normal:2"), 10, 12),
        (("normal:90", "checkpoint", "normal:3"), 90, 93),
    ],
)
def test_only_what_was_not_synced_is_lost(
    tmp_path: Path, library: Path, steps: tuple[str, ...], least: int, most: int
) -> None:
    path = written(tmp_path, library, *steps)
    files = {name: (tmp_path / name).read_bytes() for name in ("db", "db-wal")}
    kept = []
    for end in power.ends(path, tmp_path / "notes"):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        power.cut(path, end)
        kept.append(rows(path))
    assert kept == list(range(least, most + 1))


def test_of_a_log_that_was_never_synced_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (i)")
    assert power.ends(path, tmp_path / "notes") == []
    connection.close()
