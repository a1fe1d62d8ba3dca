"""`loomictl db backup` and `restore`, killed at any of their steps."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from loomid import dbcheck, dbtool
from loomid.errors import BusyError
from tests.support.daemon import ROOT
from tests.support.log import open_log, push

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NEVER = 10**6
FILES = ("loomid.db", "loomid.db-wal", "loomid.db-shm")
NONSENSE = b"\x17" * 10_000


def command(what: str, where: Path, file: Path, step: int, links: str) -> list[str]:
    module = "tests.support.copying"
    return [sys.executable, "-m", module, what, str(where), str(file), str(step), links]


def killed(what: str, where: Path, file: Path, step: int, links: str) -> bool:
    """Whether it was killed before that step; False: it has fewer, and has done its work."""
    run = command(what, where, file, step, links)
    code = subprocess.run(run, cwd=ROOT, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def count(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (found,) = connection.execute("SELECT count(*) FROM event").fetchone()
        return int(found)


async def written(path: Path, events: int) -> Path:
    """A database with a write-ahead log, as one that was killed leaves it."""
    path.parent.mkdir(mode=0o700)
    used = path.parent.with_name(f"{path.parent.name}.db")
    async with open_log(used) as log:
        await push(log, *map(str, range(events)))
        for end in ("", "-wal"):
            shutil.copy(f"{used}{end}", f"{path}{end}")
    return path


def hidden(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if one.name.startswith(".")]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("links", ["links", "no-links"])
async def test_a_backup_killed_at_any_step(tmp_path: Path, links: str) -> None:
    """Under its name is a copy, or nothing; another is made as if there had been none."""
    path = await written(tmp_path / "state" / "loomid.db", 3)
    folder = tmp_path / "copies"
    folder.mkdir()
    for step in itertools.count(1):
        target = folder / f"copy{step}"
        if not killed("backup", path, target, step, links):
            break
        if target.exists():
            assert dbcheck.check(target).problems == []
            kept = target.rename(target.with_name("kept"))
            assert dbtool.backup(path, target).events == 3
            assert dbcheck.check(kept).problems == []
        else:
            assert dbtool.backup(path, target).events == 3
        assert hidden(folder) == []
    assert step > 8
    assert count(target) == 3


@pytest.fixture
async def large(tmp_path: Path) -> Path:
    """A database whose copying takes a while."""
    path = tmp_path / "large.db"
    async with open_log(path) as log:
        for _ in range(40):
            await push(log, *("x" * 10_000 for _ in range(50)))
    return path


@contextmanager
def copying(path: Path, target: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A backup in the midst of its work."""
    target.parent.mkdir()
    with subprocess.Popen(command("backup", path, target, NEVER, "links"), cwd=ROOT) as process:
        while not any(one.stat().st_size for one in target.parent.glob(".loomid-*.db")):
            assert process.poll() is None
            time.sleep(0.001)
        yield process


def test_a_backup_killed_in_the_midst_of_the_copy(tmp_path: Path, large: Path) -> None:
    target = tmp_path / "copies" / "copy"
    with copying(large, target) as process:
        with pytest.raises(BusyError, match="another backup"):
            dbtool.backup(large, target)
        process.kill()
    assert not target.exists()
    other = target.with_name("other")
    assert dbtool.backup(large, other).events == 2_000
    assert [*target.parent.iterdir()] == [other]


def test_a_file_that_came_meanwhile_stays(tmp_path: Path, large: Path) -> None:
    target = tmp_path / "copies" / "copy"
    with copying(large, target) as process, target.open("x") as file:
        file.write("dear")
    assert process.returncode == 1
    assert target.read_text() == "dear"
    assert [*target.parent.iterdir()] == [target]


async def test_what_cannot_be_kept_whole_is_not_replaced(tmp_path: Path) -> None:
    """Its log cannot be moved into it, for want of room."""
    copy, state = tmp_path / "copy", tmp_path / "state"
    dbtool.backup(await written(tmp_path / "before" / "loomid.db", 2), copy)
    path = await written(state / "loomid.db", 5_000)
    limited = ["prlimit", f"--fsize={copy.stat().st_size}"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*limited, *command("restore", state, copy, NEVER, "links")],
        cwd=ROOT,
        check=False,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "StateError" in done.stderr.splitlines()[-1]
    assert "cannot be kept" in done.stderr
    assert count(path) == 5_000
    assert {one.name for one in state.iterdir()} <= {*FILES, "state.lock"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("damaged", "links"), [(False, "links"), (False, "no-links"), (True, "links")]
)
async def test_a_restore_killed_at_any_step(tmp_path: Path, damaged: bool, links: str) -> None:
    """One of both is in place, whole; another restore goes through, and nothing is lost."""
    copy = tmp_path / "copy"
    dbtool.backup(await written(tmp_path / "before" / "loomid.db", 2), copy)
    former = await written(tmp_path / "former" / "loomid.db", 5)
    if damaged:
        for end in ("", "-wal"):
            former.with_name(f"loomid.db{end}").write_bytes(NONSENSE)
    for step in itertools.count(1):
        state = tmp_path / f"state{step}"
        shutil.copytree(former.parent, state)
        path = state / "loomid.db"
        if not killed("restore", state, copy, step, links):
            break
        old = path.read_bytes() == NONSENSE if damaged else count(path) == 5
        assert old or count(path) == 2
        assert dbtool.restore(state, copy).findings.events == 2
        assert hidden(state) == []
        kept = [one for one in state.glob("loomid.db.*Z*") if not one.name.endswith("-wal")]
        assert (NONSENSE if damaged else 5) in [
            one.read_bytes() if damaged else count(one) for one in kept
        ]
        # Without links a copy was made, and that one stays.
        assert len(kept) == 1 + (not old) or links == "no-links"
        assert count(path) == 2
        shutil.rmtree(state)
    assert step > 8
    async with open_log(path) as log:
        assert [one.position for one in log.read(0, 9)]
