"""Hermes' own database, read where it lies: <HERMES_HOME>/state.db (docs/hermes.md).

Read-only, and short: each statement is carried out and fetched whole before the next, so that
a gateway that writes waits for milliseconds at most, in whatever journal mode it runs. What a
release's schema lacks reads as NULL.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from loomid.errors import GatewayError
from loomid.lmp.preview import cut
from loomid.lmp.stored import (
    NAME_CHARS,
    SUMMARIES,
    Content,
    Head,
    Row,
    beginning_of,
    calls_of,
    content_of,
    content_of_parts,
    json_of,
)
from loomid.text import valid_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

FILE = "state.db"
BUSY = "database_busy"
"""Why it cannot be read: at another moment it can."""
BUSY_S = 1.0
POLL_S = 0.005
READERS = 4
"""Threads that read, however many phones ask."""
CHUNK = 32
IDS = 2_000
CALLS_CHARS = 64 * 1024
"""Calls with longer arguments are read one by one, and no longer than so."""
ARGS_CHARS = 2**20
LARGEST = 8 * 2**20
"""Bytes of a message's JSON that is looked into; of more of it, only into the beginning."""
NODES = 1_000
_BEGINNING = 64 * 1024
_MAGIC = b"SQLite format 3\x00"
_JSON = "x'006a736f6e3a'"
"""How Hermes marks content that is no plain text: NUL, "json:"."""
_WITHOUT_NUL = r"replace(replace(replace({}, '\\', char(1)), '\u0000', '\ufffd'), char(1), '\\')"
"""JSON without what would end a text in SQLite: NUL, escaped; an escaped backslash is none."""
_ROLES = "messages.role IN ('user', 'assistant', 'tool')"
SUMMARY = " OR ".join(f"messages.content LIKE '{begins}%'" for begins in SUMMARIES).join("()")
"""A condition: Hermes' summaries of what it compressed."""
MERGED = "[PRIOR CONTEXT "
"""So begins a message that Hermes has put its summary behind."""
_NEEDED = {"messages": {"id", "session_id", "role", "content"}, "sessions": {"id", "started_at"}}


@dataclass(frozen=True, slots=True)
class TextLimits:
    """How many characters of a text are read."""

    text: int
    tool: int
    """Of what a tool gave back."""


def readable(home: str | Path) -> bool:
    """Whether there is a database that can be read; cheap, and takes no lock."""
    return obstacle(home) is None


def obstacle(home: str | Path) -> str | None:
    """Why there is none; None: there is."""
    path = Path(home, FILE)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would wait for its writer
            return f"{path}: not a file"
        with path.open("rb") as file:
            found = file.read(len(_MAGIC))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None if found == _MAGIC else f"{path}: not a database"


class HermesDb:
    """The databases of all Hermes homes: a connection for each use, in threads of their own, so
    that no number of reads, nor who leaves while he waits for one, holds up anything else."""

    def __init__(self) -> None:
        self._readers = ThreadPoolExecutor(READERS, "hermesdb")

    async def read(self, home: Path, work: Callable[[Reader], T]) -> T:
        """Run a function on a fresh connection. Raises GatewayError, with a `reason`. Cancelled
        before it has begun it is not run; later it goes on, and nobody hears of it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, read, home, work)

    def close(self) -> None:
        """Begin no more reads."""
        self._readers.shutdown(wait=False, cancel_futures=True)


def read(home: Path, work: Callable[[Reader], T]) -> T:
    """The same, at once and in this thread."""
    if not readable(home):
        raise GatewayError("Hermes' database cannot be read.", reason="no_database")
    try:
        try:
            return _read(home, work, "mode=ro")
        except sqlite3.OperationalError as error:
            if not (_is(error, sqlite3.SQLITE_CANTOPEN) and _at_rest(home)):
                raise
            # Written ahead, and nobody has it open: SQLite would make files beside it, which it
            # may not in a home that is read-only for us.
            return _read(home, work, "immutable=1")
    except sqlite3.DatabaseError as error:
        reason = BUSY if _is(error, sqlite3.SQLITE_BUSY) else "no_database"
        raise GatewayError("Hermes' database cannot be read.", reason=reason) from None


def _read(home: Path, work: Callable[[Reader], T], how: str) -> T:
    with closing(_connect(home, how)) as line:
        return work(Reader(line))


def _is(error: sqlite3.Error, code: int) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == code


def _at_rest(home: Path) -> bool:
    return not any(Path(home, FILE + beside).exists() for beside in ("-wal", "-journal"))


def _connect(home: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(home / FILE))}?{how}"
    line = sqlite3.connect(uri, uri=True, timeout=0.0, isolation_level=None)
    line.row_factory = sqlite3.Row
    line.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return line


class Reader:
    """One connection, and what this database has."""

    def __init__(self, line: sqlite3.Connection) -> None:
        self._line = line
        self._columns = {table: self._table(table) for table in _NEEDED}
        if any(needed - self._columns[table] for table, needed in _NEEDED.items()):
            raise GatewayError("That is no database of Hermes.", reason="foreign_database")

    def _table(self, table: str) -> set[str]:
        return {row["name"] for row in self.rows(f"PRAGMA table_info({table})")}

    def rows(self, sql: str, *parameters: object) -> list[sqlite3.Row]:
        """One statement, fetched whole; Hermes is waited for while it writes."""
        give_up = time.monotonic() + BUSY_S
        while True:
            try:
                return self._line.execute(sql, parameters).fetchall()
            except sqlite3.OperationalError as error:
                if not _is(error, sqlite3.SQLITE_BUSY) or time.monotonic() >= give_up:
                    raise
            # SQLite itself would look every 100 ms: too seldom, beside one who writes all the time.
            time.sleep(POLL_S)

    def column(self, table: str, name: str) -> str:
        """The column, or NULL where the release has none."""
        return f"{table}.{name}" if name in self._columns[table] else "NULL"

    def columns(self, table: str, names: Iterable[str]) -> str:
        """Those columns, each under its name."""
        return ", ".join(f"{self.column(table, name)} AS {name}" for name in names)

    @property
    def visible(self) -> str:
        """A condition: messages that were not taken back. Those that Hermes compressed in place
        are among them, and copies of some beside its summary of them."""
        if not {"active", "compacted"} <= self._columns["messages"]:
            return _ROLES
        return f"{_ROLES} AND (messages.active = 1 OR messages.compacted = 1)"

    def shown(self, session_id: str) -> str:
        """A condition for one session's messages: each of them once, as it was at first."""
        if self.visible == _ROLES:
            return _ROLES
        (row,) = self.rows(
            """SELECT min(id) AS first FROM messages
            WHERE session_id = ? AND active = 0 AND compacted = 1""",
            session_id,
        )
        if row["first"] is None:
            return self.visible
        # A copy keeps the time, and the text unless that of a tool was shortened or the summary
        # was put behind it.
        return f"""{self.visible} AND NOT (messages.id > {row["first"]} AND {SUMMARY})
            AND NOT EXISTS (SELECT 1 FROM messages AS it WHERE it.session_id = messages.session_id
            AND it.timestamp = messages.timestamp AND it.id < messages.id
            AND it.role = messages.role AND (it.active = 1 OR it.compacted = 1)
            AND (it.content IS messages.content OR it.tool_call_id = messages.tool_call_id
            OR messages.content LIKE '{MERGED}%')
            AND it.tool_calls IS messages.tool_calls)"""  # noqa: S608 - our own names

    def tables(self) -> set[str]:
        """The names of all tables."""
        return {row["name"] for row in self.rows("SELECT name FROM sqlite_master")}

    # ── messages ──

    def ids(self, session_id: str, before: int, least: int = 0) -> Iterator[int]:
        """Ids of a session's visible messages from `least` up to `before`, the newest first."""
        shown = self.shown(session_id)
        while True:
            # Not in the order of the table: that would pass over all other sessions' messages.
            found = self.rows(
                f"""SELECT id FROM messages WHERE session_id = ? AND +id < ? AND +id >= ?
                AND {shown} ORDER BY +id DESC LIMIT {IDS}""",  # noqa: S608 - our own names
                *(session_id, before, least),
            )
            yield from (row["id"] for row in found)
            if len(found) < IDS:
                return
            before = found[-1]["id"]

    def messages(self, ids: Iterable[int], limits: TextLimits) -> Iterator[Row]:
        """These messages, in this order; read in small steps."""
        chunk: list[int] = []
        for one in ids:
            chunk.append(one)
            if len(chunk) == CHUNK:
                yield from self._chunk(chunk, limits)
                chunk = []
        yield from self._chunk(chunk, limits)

    def _chunk(self, ids: list[int], limits: TextLimits) -> list[Row]:
        more = ("tool_call_id", "finish_reason", "display_kind", "_compressed_summary")
        thought = f"{self.column('messages', 'reasoning')}, "
        thought += self.column("messages", "reasoning_content")
        calls = self.column("messages", "tool_calls")
        found = self.rows(
            f"""SELECT id, session_id, role, timestamp, {self.columns("messages", more)},
            substr(content, 1, CASE role WHEN 'tool' THEN ?2 ELSE ?3 END + 1) AS content,
            substr(CAST(content AS BLOB), 1, 6) = {_JSON} AS is_json,
            CASE WHEN length({calls}) <= {CALLS_CHARS} THEN {calls} END AS tool_calls,
            length({calls}) > {CALLS_CHARS} AS many_calls,
            substr(coalesce({thought}), 1, ?3 + 1) AS thought,
            CASE WHEN role = 'tool' AND length(content) <= {LARGEST} AND json_valid(content) THEN
            coalesce(json_extract(content, '$.error'), '') NOT IN ('', 0) OR
            tool_name = 'terminal' AND coalesce(json_extract(content, '$.exit_code'), 0) != 0
            END AS failed
            FROM messages WHERE id IN (SELECT value FROM json_each(?1))
            ORDER BY id DESC""",  # noqa: S608 - our own names
            *(json.dumps(ids), limits.tool, limits.text),
        )
        return [self._row(row, limits) for row in found]

    def _row(self, row: sqlite3.Row, limits: TextLimits) -> Row:
        limit = limits.tool if row["role"] == "tool" else limits.text
        calls = json_of(row["tool_calls"])
        if row["many_calls"]:
            calls = self._parsed(row["id"], "tool_calls", ARGS_CHARS)
        return Row(
            id=row["id"],
            session_id=row["session_id"],
            role=row["role"],
            ts=float(row["timestamp"] or 0.0),
            content=self._content(row, limit),
            calls=calls_of(calls) if row["role"] == "assistant" else (),
            call_id=valid_text(row["tool_call_id"] or "")[:NAME_CHARS],
            ok=not row["failed"],
            finish_reason=row["finish_reason"] or "",
            reasoning=cut(valid_text(row["thought"] or ""), limits.text),
            display=row["display_kind"] or "",
            marked_summary=bool(row["_compressed_summary"]),
        )

    def _content(self, row: sqlite3.Row, limit: int) -> Content:
        if row["is_json"]:
            return self.parts_of(row["id"], limit)
        raw = row["content"]
        return content_of(raw if isinstance(raw, str) else None, limit)

    def parts_of(self, message: int, limit: int) -> Content:
        """Content that Hermes stored as JSON: there may be pictures of any size in it."""
        found = self._parsed(message, "content", limit + 1)
        if found is not None:
            return content_of_parts(found, limit)
        (row,) = self.rows(
            f"""SELECT CAST(substr(CAST(content AS BLOB), 7, {_BEGINNING}) AS TEXT) AS raw
            FROM messages WHERE id = ?""",  # noqa: S608 - our own names
            message,
        )
        return replace(content_of_parts(beginning_of(row["raw"]), limit), truncated=True)

    def _parsed(self, message: int, name: str, chars: int) -> object:
        """A column's JSON with its strings cut; None: it is none, or too large.

        SQLite takes it apart: while Python did that to megabytes no other thread would run.
        """
        whole = f"CAST(substr(CAST({name} AS BLOB), {7 if name == 'content' else 1}) AS TEXT)"
        found = self.rows(
            f"""SELECT it.id, it.parent, it.key, it.type, length(rtrim(it.atom, '=')) AS size,
            CAST(substr(it.atom, 1, ?) AS BLOB) AS head FROM (SELECT {_WITHOUT_NUL.format(whole)}
            AS raw FROM messages WHERE id = ? AND length(CAST({name} AS BLOB)) <= {LARGEST}),
            json_tree(CASE WHEN json_valid(raw) THEN raw END) AS it
            LIMIT {NODES}""",  # noqa: S608 - our own names
            *(chars, message),
        )
        nodes: dict[int, Any] = {}
        for row in found:
            made = nodes[row["id"]] = _MADE.get(row["type"], _nothing)(row)
            above = nodes.get(row["parent"])
            if isinstance(above, dict):
                above[row["key"]] = made
            elif isinstance(above, list):
                above.append(made)
        return nodes[found[0]["id"]] if found else None


def _nothing(_: sqlite3.Row) -> None:
    """A number or the like: not looked at."""


def _head(row: sqlite3.Row) -> Head:
    raw = row["head"] or b""
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
    return Head(valid_text(text), row["size"] or 0)


_MADE: dict[str, Callable[[sqlite3.Row], object]] = {
    "object": lambda _: {},
    "array": lambda _: [],
    "text": _head,
}
