"""Whether a database file is sound; looked at without changing it, also while loomid runs."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from loomid.database import MIGRATIONS, as_startup_error
from loomid.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 10.0
MOST_PROBLEMS = 20
MOST_POSITION = 2**53
"""Phones keep numbers as JSON has them; the clock comes here in the year 2255."""
_RULES = {
    """SELECT count(*) FROM event WHERE NOT json_valid(CAST(payload AS TEXT))""": (
        "events cannot be read"
    ),
    """SELECT count(*) FROM event WHERE position > (SELECT max(reserved) FROM start)""": (
        "events have positions that no start has reserved"
    ),
    """SELECT count(*) FROM start WHERE first <= (
        SELECT max(reserved) FROM start AS before WHERE before.id < start.id)""": (
        "starts have reserved positions of earlier ones"
    ),
    f"SELECT count(*) FROM start WHERE reserved >= {MOST_POSITION}": (  # noqa: S608 - ours
        "starts have reserved positions that none can reach"
    ),
    """SELECT count(*) FROM live WHERE position NOT IN (SELECT position FROM event)""": (
        "live things have no event"
    ),
    """SELECT count(*) FROM device WHERE base > (SELECT max(reserved) FROM start)""": (
        "devices begin above every position"
    ),
}
"""What always holds of a database that loomid wrote, as the number of exceptions."""


class MissingError(StateError):
    """There is no database."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was seen, None where it could not be; without problems the file can be used."""

    problems: list[str]
    schema: int | None = None
    size: int | None = None
    """Bytes, without the write-ahead log."""
    free: int | None = None
    """Bytes of these that hold nothing."""
    events: int | None = None
    devices: int | None = None


def look(path: Path) -> sqlite3.Connection:
    """Open a database to read it. Raises sqlite3.Error."""
    where = f"file:{quote(bytes(path))}?mode=ro"
    connection = sqlite3.connect(where, uri=True, timeout=PATIENCE_S, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # Where nothing can be written, SQLite needs to be told that nobody else does.
        connection = sqlite3.connect(f"{where}&immutable=1", uri=True, isolation_level=None)
    except BaseException:
        connection.close()
        raise
    return connection


def require(path: Path) -> None:
    """Raises MissingError when there is no such file, StateError when it may not be seen."""
    try:
        if path.is_file():
            # Not by opening it: that would drop the locks of who has it open in this process.
            if not os.access(path, os.R_OK, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
    except PermissionError as error:
        raise StateError(f"{path}: {error.strerror}; run this as loomid's account") from None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None
    raise MissingError(f"there is no database {path}")


def check(path: Path) -> Findings:
    """Look through all of a database.

    Raises StateError when there is none to be read, BusyError when it is held.
    """
    require(path)
    if not path.stat().st_size:
        return Findings(["it is empty"])
    try:
        with closing(look(path)) as connection:
            connection.execute("BEGIN")  # one moment of it all
            return _findings(connection)
    except sqlite3.OperationalError:
        with as_startup_error(path):
            raise
    except sqlite3.DatabaseError as error:
        return Findings([f"it is damaged: {error}"])


def _findings(connection: sqlite3.Connection) -> Findings:
    schema, size, pages, free = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("user_version", "page_size", "page_count", "freelist_count")
    )
    if schema > len(MIGRATIONS):
        return Findings([f"a newer loomid wrote it (schema {schema})"], schema)
    problems = [f"it is damaged: {line}" for line in _damage(connection)]
    problems += _foreign(connection, schema)
    events = devices = None
    if schema and not problems:
        problems += _of_another_kind(connection)
    if schema and not problems:
        for sql, said in _RULES.items():
            if found := connection.execute(sql).fetchone()[0]:
                problems.append(f"{found} {said}")
        events, devices = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - ours
            for table in ("event", "device")
        )
    return Findings(problems, schema, size * pages, size * free, events, devices)


def _damage(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(f"PRAGMA integrity_check({MOST_PROBLEMS})").fetchall()
    return [line for row in rows for line in row[0].splitlines() if line != "ok"]


def _foreign(connection: sqlite3.Connection, schema: int) -> Iterator[str]:
    """What is not as the migrations make it."""
    found = _objects(connection)
    with closing(sqlite3.connect(":memory:")) as model:
        for statement in (one for step in MIGRATIONS[:schema] for one in step):
            model.execute(statement)
        wanted = _objects(model)
    if not schema:
        yield "it is no database of loomid"
        return
    for name in sorted(found.keys() | wanted.keys()):
        if name not in wanted:
            yield f"{name} is not of loomid"
        elif name not in found:
            yield f"{name} is missing"
        elif found[name] != wanted[name]:
            yield f"{name} is not as loomid makes it"


def _of_another_kind(connection: sqlite3.Connection) -> Iterator[str]:
    """Values that are not of their column's type: SQLite keeps them all the same."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'meta'"
    ).fetchall()
    for (table,) in tables:
        columns = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
        wrong = " OR ".join(
            f"typeof({name}) NOT IN ('null', '{kind.lower()}')" for name, kind in columns
        )
        sql = f"SELECT count(*) FROM {table} WHERE {wrong}"  # noqa: S608 - our own names
        if found := connection.execute(sql).fetchone()[0]:
            yield f"{found} rows of {table} hold values of another kind"
    sql = """SELECT count(*) FROM meta WHERE typeof(value) !=
        CASE name WHEN 'secret' THEN 'blob' ELSE 'integer' END"""
    if found := connection.execute(sql).fetchone()[0]:
        yield f"{found} rows of meta hold values of another kind"


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    )
    return {f"{kind} {name}": " ".join((sql or "").split()) for kind, name, sql in rows}


def free_on_disk(path: Path) -> int | None:
    """Bytes that are left where a file is."""
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path.parent).free
    return None
