"""The database file itself: its schema, its migrations, and how a connection is used.

A connection lives on a thread of its own (aiosqlite); a whole transaction is one hop
there. What the tables hold is the business of `store` and `vault`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import aiosqlite

from loomid.errors import BusyError, StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")

FILE = "loomid.db"
"""In the state directory."""
REWRITTEN_BYTES = 64 * 2**20
FILE_MARK = "user.loomid.file"
BUGS = (sqlite3.ProgrammingError, sqlite3.InterfaceError)
"""SQLite's errors that no disk is to blame for."""

# One entry a schema version, each a list of statements; only ever append.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
        """CREATE TABLE start (
            id INTEGER PRIMARY KEY, first INTEGER NOT NULL, reserved INTEGER NOT NULL,
            kernel TEXT NOT NULL, file TEXT NOT NULL, broken INTEGER NOT NULL,
            clean INTEGER NOT NULL DEFAULT 0)""",
        """CREATE TABLE event (
            position INTEGER PRIMARY KEY, ts REAL NOT NULL, type TEXT NOT NULL,
            task_id TEXT, run_id TEXT, lasting INTEGER NOT NULL, payload BLOB NOT NULL)""",
        "CREATE INDEX event_lasting ON event (lasting) WHERE lasting = 1",
        "CREATE INDEX event_run ON event (run_id) WHERE run_id IS NOT NULL",
        """CREATE TABLE live (
            kind TEXT NOT NULL, id TEXT NOT NULL, position INTEGER NOT NULL,
            PRIMARY KEY (kind, id)) WITHOUT ROWID""",
        """CREATE TABLE fact (
            id INTEGER PRIMARY KEY, gateway_id TEXT NOT NULL, boot TEXT NOT NULL,
            n INTEGER NOT NULL, t REAL NOT NULL, at REAL NOT NULL, kind TEXT NOT NULL,
            body BLOB NOT NULL, tag TEXT NOT NULL)""",
        "CREATE INDEX fact_tag ON fact (gateway_id, tag)",
        """CREATE TABLE ended (
            id INTEGER PRIMARY KEY, gateway_id TEXT NOT NULL, turn_id TEXT NOT NULL,
            UNIQUE (gateway_id, turn_id))""",
        """CREATE TABLE ack (
            gateway_id TEXT NOT NULL, boot TEXT NOT NULL, n INTEGER NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (gateway_id, boot)) WITHOUT ROWID""",
        """CREATE TABLE device (
            device_id TEXT PRIMARY KEY, name TEXT NOT NULL, credential_hash BLOB NOT NULL,
            base INTEGER NOT NULL, created_at REAL NOT NULL, confirmed INTEGER NOT NULL,
            last_seen REAL, model TEXT NOT NULL, os TEXT NOT NULL, app_version TEXT NOT NULL)""",
        """CREATE TABLE token (
            token_hash BLOB PRIMARY KEY, expires_at REAL NOT NULL, name TEXT,
            created_at REAL NOT NULL, used_at REAL, device_id TEXT)""",
        """CREATE TABLE request (
            id INTEGER PRIMARY KEY, device_id TEXT NOT NULL, request_id TEXT NOT NULL,
            fingerprint BLOB NOT NULL, type TEXT NOT NULL, state TEXT NOT NULL, answer BLOB,
            command_id TEXT, gateway_id TEXT, boot TEXT, at REAL NOT NULL,
            UNIQUE (device_id, request_id))""",
        """CREATE TABLE claim (
            approval_id TEXT PRIMARY KEY, device_id TEXT NOT NULL, request_id TEXT NOT NULL,
            choice TEXT NOT NULL, command_id TEXT NOT NULL, at REAL NOT NULL)""",
        """CREATE TABLE task (
            task_id TEXT PRIMARY KEY, gateway_id TEXT NOT NULL, session_key TEXT,
            session_id TEXT NOT NULL, title TEXT NOT NULL, surface TEXT NOT NULL, model TEXT,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, message_count INTEGER NOT NULL,
            preview TEXT NOT NULL)""",
        "CREATE INDEX task_updated ON task (updated_at, task_id)",
    ),
    (
        """CREATE TABLE approval (
            approval_id TEXT PRIMARY KEY, task_id TEXT, run_id TEXT, command TEXT NOT NULL,
            asked_at REAL NOT NULL, deadline_ts REAL, state TEXT NOT NULL, shown_to TEXT,
            shown_at REAL, device_id TEXT, request_id TEXT, answer TEXT, command_id TEXT,
            claimed_at REAL, choice TEXT, decided_by TEXT, ended_at REAL)""",
        "CREATE INDEX approval_ended ON approval (ended_at)",
        """CREATE INDEX approval_request ON approval (device_id, request_id)
            WHERE request_id IS NOT NULL""",
        # What the first schema kept in the events and in `claim`.
        """INSERT INTO approval
            (approval_id, task_id, run_id, command, asked_at, deadline_ts, state)
            SELECT json_extract(said, '$.approval_id'), task_id, run_id,
            substr(json_extract(said, '$.command'), 1, 2000), ts,
            json_extract(said, '$.deadline_ts'), 'pending' FROM (SELECT task_id, run_id, ts,
            CAST(payload AS TEXT) AS said FROM event WHERE type = 'approval.required')
            WHERE true ON CONFLICT DO NOTHING""",
        """INSERT INTO approval (approval_id, command, asked_at, state)
            SELECT approval_id, '', at, 'pending' FROM claim WHERE true ON CONFLICT DO NOTHING""",
        """UPDATE approval SET state = 'claimed', device_id = claim.device_id,
            request_id = claim.request_id, answer = claim.choice, command_id = claim.command_id,
            claimed_at = claim.at, shown_to = claim.device_id, shown_at = claim.at
            FROM claim WHERE claim.approval_id = approval.approval_id""",
        """INSERT INTO approval (approval_id, task_id, run_id, command, asked_at, state)
            SELECT json_extract(CAST(payload AS TEXT), '$.approval_id'), task_id, run_id, '', ts,
            'pending' FROM event WHERE lasting = 1 AND type = 'approval.resolved'
            ON CONFLICT DO NOTHING""",
        """UPDATE approval SET state = coalesce(json_extract(said, '$.outcome'), 'applied'),
            choice = json_extract(said, '$.choice'), ended_at = ts,
            decided_by = json_extract(said, '$.decided_by')
            FROM (SELECT ts, CAST(payload AS TEXT) AS said FROM event
            WHERE lasting = 1 AND type = 'approval.resolved')
            WHERE json_extract(said, '$.approval_id') = approval_id""",
        "DROP TABLE claim",
    ),
    (
        # Devices keep all that they could do; codes that wait give what a new one gives.
        """ALTER TABLE device ADD COLUMN scopes TEXT NOT NULL
            DEFAULT 'view,send,approve,admin'""",
        "ALTER TABLE token ADD COLUMN scopes TEXT NOT NULL DEFAULT 'view,send,approve'",
        """CREATE TABLE audit (
            id INTEGER PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, name TEXT,
            action TEXT NOT NULL, about TEXT, detail TEXT NOT NULL, outcome TEXT,
            command_id TEXT)""",
        "CREATE INDEX audit_kind ON audit (who, action)",
        "CREATE INDEX audit_command ON audit (command_id) WHERE command_id IS NOT NULL",
    ),
    (
        """CREATE TABLE file (
            sha256 TEXT PRIMARY KEY, media_type TEXT NOT NULL, bytes INTEGER NOT NULL,
            width INTEGER, height INTEGER, used_at REAL NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX file_used ON file (used_at)",
        """CREATE TABLE file_use (
            id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, name TEXT NOT NULL, device_id TEXT,
            task_id TEXT, message_id TEXT, source TEXT, at REAL NOT NULL)""",
        "CREATE INDEX file_use_file ON file_use (sha256)",
        "CREATE INDEX file_use_message ON file_use (message_id) WHERE message_id IS NOT NULL",
        "CREATE INDEX file_use_source ON file_use (source) WHERE source IS NOT NULL",
        """CREATE TABLE upload (
            upload_id TEXT PRIMARY KEY, device_id TEXT NOT NULL, sha256 TEXT NOT NULL,
            bytes INTEGER NOT NULL, media_type TEXT, name TEXT, at REAL NOT NULL)
            WITHOUT ROWID""",
    ),
    (
        # Questions beside approvals. What is copied here is cleared in `approval` by the ledger.
        """CREATE TABLE decision (
            id TEXT PRIMARY KEY, kind TEXT NOT NULL, task_id TEXT, run_id TEXT,
            preview TEXT NOT NULL, asked_at REAL NOT NULL, deadline_ts REAL, state TEXT NOT NULL,
            shown_to TEXT, shown_at REAL, device_id TEXT, request_id TEXT, answer TEXT,
            command_id TEXT, claimed_at REAL, choice TEXT, decided_by TEXT, ended_at REAL)""",
        "CREATE INDEX decision_ended ON decision (ended_at)",
        """CREATE INDEX decision_request ON decision (device_id, request_id)
            WHERE request_id IS NOT NULL""",
        """INSERT INTO decision SELECT approval_id, 'approval', task_id, run_id, command, asked_at,
            deadline_ts, state, shown_to, shown_at, device_id, request_id, answer, command_id,
            claimed_at, choice, decided_by, ended_at FROM approval""",
    ),
    (
        # Messages with files: `files` and `copies` are JSON; see sentindex.
        """CREATE TABLE sent (
            message_id TEXT PRIMARY KEY, task_id TEXT, at REAL NOT NULL, size INTEGER NOT NULL,
            copies TEXT NOT NULL, files TEXT NOT NULL, text TEXT NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX sent_task ON sent (task_id, at)",
        "CREATE INDEX sent_at ON sent (at, message_id, size)",
    ),
    (
        # What agents sent: `part` is JSON; see handedindex.
        """CREATE TABLE handed (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, task_id TEXT NOT NULL,
            began REAL NOT NULL, until REAL NOT NULL, part TEXT NOT NULL)""",
        "CREATE INDEX handed_task ON handed (task_id)",
    ),
)


_WORK = "-- work"


class _Connection(sqlite3.Connection):
    """Lets a whole unit of work pass where aiosqlite hands its thread one statement."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401
        if sql is _WORK:
            parameters[0](self)
            return self.cursor()
        return super().execute(sql, parameters)


class Line:
    """One SQLite connection on a thread of its own; a transaction is one hop there."""

    def __init__(self, connection: aiosqlite.Connection, writing: asyncio.Lock) -> None:
        self._connection = connection
        # Our own connections queue here; SQLite's busy handler would poll.
        self._writing = writing

    @classmethod
    async def open(cls, path: Path, writing: asyncio.Lock, busy_s: float, sync: str) -> Line:
        connection = await aiosqlite.connect(
            path, timeout=busy_s, isolation_level=None, factory=_Connection, cached_statements=256
        )
        line = cls(connection, writing)
        try:
            await line.run(partial(_configure, sync))
        except BaseException:
            await line.close()
            raise
        return line

    async def close(self) -> None:
        """Close the connection; what its thread is doing is finished first."""
        await self._connection.close()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function on the connection's thread, outside of any transaction."""
        box: list[T] = []
        await self._connection.execute(_WORK, (lambda connection: box.append(work(connection)),))
        return box[0]

    async def alone(
        self, work: Callable[[sqlite3.Connection], T], within_s: float | None = None
    ) -> T:
        """Like run, while no other connection of ours writes.

        Raises TimeoutError when that is not to be had within so many seconds.
        """
        async with asyncio.timeout(within_s):
            await self._writing.acquire()
        try:
            return await self.run(work)
        finally:
            self._writing.release()

    async def write(
        self, work: Callable[[sqlite3.Connection], T], within_s: float | None = None
    ) -> T:
        """Run a function as one transaction; an exception rolls it back."""
        return await self.alone(partial(_transaction, work), within_s)


def _configure(sync: str, connection: sqlite3.Connection) -> None:
    if not connection.execute("PRAGMA page_count").fetchone()[0]:
        # Only a new file takes this; see `migrate` for one that an older loomid made.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise sqlite3.OperationalError("the file system does not support SQLite's WAL mode")
    connection.execute(f"PRAGMA synchronous = {sync}")
    if sync == "NORMAL":
        # A checkpoint syncs files: Store.checkpoint does it beside the log's commits.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    # Texts are kept for the retention and not a day longer in free pages.
    connection.execute("PRAGMA secure_delete = ON")


def _transaction(work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
    return result


def prepare(path: Path) -> str:
    """Make the file where it is missing, for this account alone; what tells it from copies.

    Before any connection is open: closing a file drops SQLite's locks on it. SQLite
    gives -wal and -shm the mode of the file. Raises OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)
        return f"{os.fstat(handle).st_ino}:{_mark(handle).hex()}"
    finally:
        os.close(handle)


def _mark(handle: int) -> bytes:
    """A mark that few ways of copying a file keep: an inode number alone is soon used again."""
    try:
        return os.getxattr(handle, FILE_MARK)
    except OSError:
        mark = secrets.token_bytes(8)
    try:
        os.setxattr(handle, FILE_MARK, mark)
    except OSError:
        return b""  # this file system has no such attributes
    return mark


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date. Raises StateError when a newer loomid wrote it."""
    for number in range(_version(connection), len(MIGRATIONS)):
        _transaction(partial(_step, number), connection)
    _make_shrinkable(connection)


def _make_shrinkable(connection: sqlite3.Connection) -> None:
    """Old files cannot give back room. Small ones are written anew, at once; in large ones
    free pages are used again, and a backup of them is shrinkable (docs/storage.md)."""
    pages, size, mode = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "page_size", "auto_vacuum")
    )
    if mode == 0 and pages * size <= REWRITTEN_BYTES:
        with contextlib.suppress(sqlite3.OperationalError):  # without the room for a copy, say
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("VACUUM")


def _version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StateError(
            f"the database was written by a newer loomid (schema {version}, this one knows "
            f"{len(MIGRATIONS)}); install that version again, or move the file away to start anew"
        )
    return version


def _step(number: int, connection: sqlite3.Connection) -> None:
    for statement in MIGRATIONS[number]:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {number + 1}")


@contextlib.contextmanager
def as_startup_error(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise BusyError(f"another process holds {path}") from None
        raise StateError(f"cannot use {path}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise StateError(
            f"{path} is damaged ({error}); see 'loomictl db check', put a backup in its place with "
            "'loomictl db restore FILE', or move it away together with its -wal and -shm files to "
            "start anew (every phone must pair again)"
        ) from None
