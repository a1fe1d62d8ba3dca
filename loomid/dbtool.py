"""Copies of the database: made while loomid runs, put back while it does not.

A database that was put back never gives a position a second time: what the present one
has reserved is carried over, as far as it can be read; else the clock sees to it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import locks
from loomid.database import FILE, MIGRATIONS, migrate
from loomid.dbcheck import MOST_POSITION, Findings, check, look, require
from loomid.errors import BusyError, LoomiError, StateError
from loomid.lmp.decisions import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNFINISHED = ".loomid-restore-"
_REQUESTS = """device_id, request_id, fingerprint, type, state, answer, command_id, gateway_id,
    boot, at"""
_DECISIONS = ", ".join(field.name for field in fields(Entry))
_PLACES = ", ".join("?" for _ in fields(Entry))


class Unsound(LoomiError):
    """A database that cannot be used; `problems` says why, a line each."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"{path}: {problems[0]}")
        self.problems = [f"{path}: {one}" for one in problems]


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of it: the copy's contents, where the former database is now, and the
    ids and names of phones that it did not know (any more)."""

    findings: Findings
    former: Path | None
    back: list[tuple[str, str]]


def backup(path: Path, target: Path) -> Findings:
    """Write a sound, compact copy, for this account alone; never over another file.

    Raises StateError when it cannot be written, Unsound when the database is damaged.
    """
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        other = "; choose a new name" if isinstance(error, FileExistsError) else ""
        raise StateError(f"{target}: {error.strerror}{other}") from None
    try:
        with _copied(path, target.parent, ".loomid-") as copy:
            findings = _sound(copy)
            copy.replace(target)
            _sync(target.parent)
            return findings
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def restore(state_dir: Path, source: Path) -> Restored:
    """Put a copy in the place of the present database, which is kept beside it.

    Raises BusyError while a loomid runs, StateError, and Unsound for a copy that is none.
    """
    _sound(source)
    with locks.hold_state(state_dir):
        for left in state_dir.glob(f"{_UNFINISHED}*"):  # by one that was killed
            left.unlink()
        return _restored(state_dir, source)


def _restored(state_dir: Path, source: Path) -> Restored:
    with _copied(source, state_dir, _UNFINISHED) as fresh:
        path = state_dir / FILE
        back = _carry_over(path, fresh)
        findings = _sound(fresh)
        former = _set_aside(path)
        fresh.replace(path)
        _sync(state_dir)
        return Restored(findings, former, back)


def _sound(path: Path) -> Findings:
    findings = check(path)
    if findings.problems:
        raise Unsound(path, findings.problems)
    return findings


@contextlib.contextmanager
def _copied(source: Path, folder: Path, prefix: str) -> Iterator[Path]:
    """A copy in `folder`, on disk, under a name of its own; gone afterwards if left there.

    One read transaction: commits go on, and nothing of deleted texts is in it.
    """
    require(source)
    try:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=".db", dir=folder)
        os.close(handle)
        copy = Path(name)
        try:
            with closing(look(source)) as connection:
                if not connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
                    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("VACUUM INTO ?", (name,))
            _sync(copy)
            yield copy
        finally:
            copy.unlink(missing_ok=True)
    except sqlite3.OperationalError as error:
        raise StateError(f"{source} cannot be copied to {folder}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise Unsound(source, [f"it is damaged: {error}"]) from None
    except UnicodeEncodeError:
        raise StateError(f"{folder}: its name is not UTF-8, and SQLite asks for that") from None
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ── what the present database knows better ──────────────────────────────────


def _carry_over(path: Path, fresh: Path) -> list[tuple[str, str]]:
    """Take over from the present database, if there is one, what a copy cannot know:
    positions that were reserved since, where devices count from, what was asked of Hermes.

    The ids and names of devices that the present one does not have.
    """
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        migrate(connection)
        connection.execute("PRAGMA secure_delete = ON")
        known = _asked(path, "SELECT device_id, base FROM device", schema=len(MIGRATIONS))
        _reserve(connection, _reserved(path))
        if known is None:
            return []
        connection.executemany(
            "UPDATE device SET base = ?2 WHERE device_id = ?1 AND base != ?2", known
        )
        sql = f"SELECT {_REQUESTS} FROM request ORDER BY id"  # noqa: S608 - our own columns
        connection.executemany(
            f"""INSERT OR REPLACE INTO request ({_REQUESTS})
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
            WHERE ?5 = 'open' OR ?1 IN (SELECT device_id FROM device)""",  # noqa: S608 - our own columns
            _asked(path, sql, schema=len(MIGRATIONS)) or [],
        )
        _carry_answers(path, connection)
        ids = {row[0] for row in known}
        devices = connection.execute("SELECT device_id, name FROM device ORDER BY created_at")
        return [(device_id, name) for device_id, name in devices if device_id not in ids]


def _carry_answers(path: Path, connection: sqlite3.Connection) -> None:
    """How approvals and questions ended since, and who has claimed those that the copy knows as
    well: what a phone is told of its answer stays true."""
    sql = f"""SELECT {_DECISIONS} FROM decision
        WHERE state = 'claimed' OR ended_at IS NOT NULL"""  # noqa: S608 - our own columns
    present = [Entry(*row) for row in _asked(path, sql, schema=len(MIGRATIONS)) or []]
    known = {row[0] for row in connection.execute("SELECT id FROM decision")}
    connection.executemany(
        f"INSERT OR REPLACE INTO decision ({_DECISIONS}) VALUES ({_PLACES})",  # noqa: S608 - our own columns
        [astuple(one) for one in present if one.over or one.id in known],
    )


def _reserved(path: Path) -> int:
    """The highest position that the present database knows of; 0: none."""
    found = [
        (_asked(path, sql) or [(0,)])[0][0] or 0
        for sql in ("SELECT max(reserved) FROM start", "SELECT max(position) FROM event")
    ]
    # Whatever the clock says: it may have been set back since.
    return max((one for one in found if isinstance(one, int) and one < MOST_POSITION), default=0)


def _reserve(connection: sqlite3.Connection, upto: int) -> None:
    """A start that may have handed out all of it: the next begins above."""
    connection.execute(
        """INSERT INTO start (first, reserved, kernel, file, broken, clean)
        SELECT ?1, ?1, '', 'restored', 1, 1
        WHERE ?1 > (SELECT coalesce(max(reserved), 0) FROM start)""",
        (upto,),
    )


def _asked(path: Path, sql: str, schema: int | None = None) -> list[tuple[Any, ...]] | None:
    """Rows of the present database; None when it is missing, damaged or of another schema."""
    try:
        with closing(look(path)) as connection:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if schema not in (None, found):
                return None
            return connection.execute(sql).fetchall()
    except (sqlite3.Error, OSError):
        return None


def _set_aside(path: Path) -> Path | None:
    """Keep the present database under another name, beside its own; None: there is none.

    Raises BusyError.
    """
    if not path.exists():
        return None
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        # All in one file, if that can be: whoever is killed below leaves it whole.
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise BusyError(f"another process reads {path}")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside = path.with_name(f"{path.name}.{stamp}")
    count = 1
    while aside.exists():
        count += 1
        aside = path.with_name(f"{path.name}.{stamp}-{count}")
    # The log goes first: the file that follows must not meet it.
    with contextlib.suppress(FileNotFoundError):
        path.with_name(f"{path.name}-wal").rename(f"{aside}-wal")
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    try:
        aside.hardlink_to(path)  # so that there is one in its place at every moment
    except OSError:
        path.rename(aside)
    return aside
