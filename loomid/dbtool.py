"""Copies of the database: made while loomid runs, put back while it does not.

A database that was put back never gives a position a second time: what the present one
has reserved is carried over, as far as it can be read; else the clock sees to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, BinaryIO

from loomid import locks, wal
from loomid.database import FILE, MIGRATIONS, migrate
from loomid.dbcheck import MOST_POSITION, Findings, check, look, require
from loomid.errors import BusyError, LoomiError, StateError
from loomid.lmp.decisions import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_UNFINISHED = ".loomid-restore-"
_PART = ".loomid-backup-"
_REQUESTS = """device_id, request_id, fingerprint, type, state, answer, command_id, gateway_id,
    boot, at"""
_DECISIONS = ", ".join(field.name for field in fields(Entry))
_PLACES = ", ".join("?" for _ in fields(Entry))
_AUDIT = "id, at, who, name, action, about, detail, outcome, command_id"


class Unsound(LoomiError):
    """A database that cannot be used; `problems` says why, a line each."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"{path}: {problems[0]}")
        self.problems = [f"{path}: {one}" for one in problems]


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of it: the copy's contents, where the former database is now, and the
    ids and names of phones that it did not know (any more), paired again or not."""

    findings: Findings
    former: Path | None
    missing: list[tuple[str, str]]
    back: bool


def backup(path: Path, target: Path) -> Findings:
    """Write a sound, compact copy, for this account alone; never over another file.

    It has another name until it is one. Raises StateError when it cannot be written,
    BusyError while another is written there, Unsound when the database is damaged.
    """
    with _explained(path, target.parent):
        _require_free(target)
        with _part(target) as part:
            _copy(path, part)
            findings = _sound(part)
            _publish(part, target)
            return findings


def restore(state_dir: Path, source: Path, *, bring_back: bool = False) -> Restored:
    """Put a copy in the place of the present database, which is kept beside it.

    Phones that were removed since the copy was made stay so, unless `bring_back`.
    Killed at any moment, it leaves one of both in place, whole; the next removes the rest.
    Raises BusyError while a loomid runs, StateError, and Unsound for a copy that is none.
    """
    _sound(source)
    with locks.hold_state(state_dir), _explained(source, state_dir):
        _clear(state_dir)
        try:
            return _restored(state_dir, source, bring_back)
        finally:
            _clear(state_dir)


def _restored(state_dir: Path, source: Path, bring_back: bool) -> Restored:
    path, fresh = state_dir / FILE, state_dir / f"{_UNFINISHED}new.db"
    os.close(_create(fresh))
    _copy(source, fresh)
    missing, back = _carry_over(path, fresh, bring_back)
    findings = _sound(fresh)
    former = _set_aside(path)
    fresh.replace(path)
    _sync(state_dir)
    return Restored(findings, former, missing, back)


def _clear(state_dir: Path) -> None:
    """Remove what one that was killed has left; the lock is held."""
    for left in state_dir.glob(f"{_UNFINISHED}*"):
        left.unlink()


def _sound(path: Path) -> Findings:
    findings = check(path)
    if findings.problems:
        raise Unsound(path, findings.problems)
    return findings


# ── files ───────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _explained(source: Path, folder: Path) -> Iterator[None]:
    """Turn errors of copying into one line that says what is at fault."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StateError(f"{source} cannot be copied to {folder}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise Unsound(source, [f"it is damaged: {error}"]) from None
    except UnicodeEncodeError:
        raise StateError(f"{folder}: its name is not UTF-8, and SQLite asks for that") from None
    except OSError as error:
        raise StateError(f"{folder}: {error.strerror}") from None


def _copy(source: Path, copy: Path) -> None:
    """Fill an empty file.

    One read transaction: commits go on, and nothing of deleted texts is in it.
    """
    require(source)
    with closing(look(source)) as connection:
        if not connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("VACUUM INTO ?", (str(copy),))
    _sync(copy)


def _create(path: Path) -> int:
    """Make a file for this account alone. Raises FileExistsError."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """An empty file beside the target, gone afterwards.

    It is locked while it is written: what killed ones have left is not, and goes now. That is
    never written to, as it may be another name of a copy that was finished.
    """
    for left in target.parent.glob(f"{_PART}*.db"):
        with contextlib.suppress(OSError), closing(_open(left)) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(left)
    name = hashlib.sha256(os.fsencode(target.name)).hexdigest()  # SQLite wants UTF-8
    part = target.with_name(f"{_PART}{name[:16]}.db")
    try:
        with open(_create(part), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(file.fileno()).st_nlink:
                raise BlockingIOError  # another took it for what is left of one
            try:
                yield part
            finally:
                _remove(part)
    except (FileExistsError, BlockingIOError):
        raise BusyError(f"another backup to {target} is under way") from None


def _open(path: Path) -> BinaryIO:
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # noqa: PTH123


def _remove(part: Path) -> None:
    part.with_name(f"{part.name}-journal").unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _require_free(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise StateError(f"{target}: File exists; choose a new name")


def _publish(part: Path, target: Path) -> None:
    """Give a finished copy its name, in one step."""
    try:
        target.hardlink_to(part)
    except OSError:  # no hard links are to be had here, or a file came meanwhile
        _require_free(target)
        part.rename(target)
    _sync(target.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ── what the present database knows better ──────────────────────────────────


def _carry_over(path: Path, fresh: Path, bring_back: bool) -> tuple[list[tuple[str, str]], bool]:
    """Take over from the present database, if there is one, what a copy cannot know: positions
    that were reserved since, where devices count from and what they may do, who was removed,
    what was asked of Hermes, and the audit.

    The ids and names of devices that the present one does not have, and whether they are back.
    """
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        migrate(connection)
        connection.execute("PRAGMA secure_delete = ON")
        sql = "SELECT device_id, base, scopes FROM device"
        known = _asked(path, sql, schema=len(MIGRATIONS))
        _reserve(connection, _reserved(path))
        # Whether such a code was used or withdrawn since, not every present one can tell.
        connection.execute("DELETE FROM token WHERE used_at IS NULL")
        if known is None:
            return [], True
        missing = _missing(connection, {row[0] for row in known})
        back = bring_back or not _grew_from(path, connection)
        if not back:
            gone = [(device_id,) for device_id, _ in missing]
            connection.executemany("DELETE FROM device WHERE device_id = ?", gone)
            connection.executemany("DELETE FROM request WHERE device_id = ?", gone)
        connection.executemany(
            "UPDATE device SET base = ?2, scopes = ?3 WHERE device_id = ?1", known
        )
        sql = f"SELECT {_REQUESTS} FROM request ORDER BY id"  # noqa: S608 - our own columns
        connection.executemany(
            f"""INSERT OR REPLACE INTO request ({_REQUESTS})
            SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
            WHERE ?5 = 'open' OR ?1 IN (SELECT device_id FROM device)""",  # noqa: S608 - our own columns
            _asked(path, sql, schema=len(MIGRATIONS)) or [],
        )
        connection.executemany(
            f"INSERT OR REPLACE INTO audit ({_AUDIT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - our own columns
            _asked(path, f"SELECT {_AUDIT} FROM audit", schema=len(MIGRATIONS)) or [],  # noqa: S608 - our own columns
        )
        _carry_answers(path, connection)
        return missing, back


def _missing(connection: sqlite3.Connection, known: set[str]) -> list[tuple[str, str]]:
    devices = connection.execute("SELECT device_id, name FROM device ORDER BY created_at")
    return [(device_id, name) for device_id, name in devices if device_id not in known]


def _grew_from(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the present database once was the copied one, and can be read whole: else whom it
    does not know may never have been removed from it."""
    sql = "SELECT value FROM meta WHERE name = 'secret'"
    return _whole(path) and _asked(path, sql) == connection.execute(sql).fetchall()


def _whole(path: Path) -> bool:
    try:
        written = wal.last_commit(path)
        with closing(look(path)):
            return written == 0 or (written is not None and written <= wal.last_read(path))
    except (sqlite3.Error, OSError):
        return False


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

    It stays in its place until another takes that. Raises BusyError, and StateError when it
    is not damaged and yet cannot be kept in one file.
    """
    if not path.exists():
        return None
    log = _log_of(path)
    for former in path.parent.glob(f"{path.name}.*Z*"):
        if former.samefile(path):  # by one that was killed here: it has not been replaced
            _log_of(former).unlink(missing_ok=True)
            former.unlink()
    try:
        with closing(sqlite3.connect(path)) as connection:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise BusyError(f"another process reads {path}")
    except sqlite3.OperationalError as error:
        raise StateError(f"{path} cannot be kept: {error}; move it and {log.name} away") from None
    except sqlite3.DatabaseError:
        pass  # damaged: it is kept as it is, with its log
    aside = _unused(path)
    _also(path, aside)
    if log.exists():
        _also(log, _log_of(aside))
    _sync(path.parent)
    # What takes its place must not meet its log.
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    return aside


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _unused(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = f"{path.name}.{stamp}"
    count = 1
    while (aside := path.with_name(name)).exists():
        count += 1
        name = f"{path.name}.{stamp}-{count}"
    return aside


def _also(path: Path, name: Path) -> None:
    """Have a file under another name, too."""
    try:
        name.hardlink_to(path)
    except OSError:  # no hard links are to be had here
        copy = path.with_name(f"{_UNFINISHED}former")
        shutil.copyfile(path, copy)
        copy.chmod(0o600)
        _sync(copy)
        copy.rename(name)
