"""Messages that hold what was looked for, by Hermes' full-text index (docs/hermes.md)."""

from __future__ import annotations

import heapq
import math
import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from loomid import lineage
from loomid.hermesdb import SUMMARY
from loomid.lmp import preview
from loomid.lmp.query import CLOSES, OPENS, unmarked, window
from loomid.lmp.stored import content_of
from loomid.text import valid_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loomid.hermesdb import Reader
    from loomid.lineage import Session
    from loomid.lmp.query import Mark, Query

WORDS, TRIGRAMS = "messages_fts", "messages_fts_trigram"
_SCANNED = 2_000
_SCANS = 25
"""Messages looked through for what the index cannot find: so many at once, so often a page."""
_CHARS = 200_000
_SNIPPET_TOKENS = 24
_INDEX_FAULTS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
"""What an index alone may have: it cannot be asked so, or is damaged."""


@dataclass(frozen=True, slots=True)
class Found:
    """A message that holds it."""

    id: int
    session_id: str
    name: str
    """What its task's id is made from: the session key, else the first session of its chain."""
    title: str
    role: str
    ts: float
    snippet: str
    highlights: list[Mark]


@dataclass(frozen=True, slots=True)
class Hits:
    """The newest of them before a message; `before`: where to look on, None: nowhere."""

    found: list[Found]
    before: int | None
    fault: str = ""
    """Why the index could not be asked, by SQLite's name for it."""


def search(reader: Reader, query: Query, before: int, limit: int) -> Hits:
    """Messages with smaller numbers than `before`, the newest first: those that history tells.

    There may be fewer than asked for and still a `before`. Raises sqlite3.Error.
    """
    fault = ""
    tables = reader.tables()
    table = TRIGRAMS if query.substrings else WORDS
    if table in tables and (query.fits_trigrams or table == WORDS):
        try:
            return _named(reader, _indexed(reader, query, before, limit, table), limit, query)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _INDEX_FAULTS:
                raise
            fault = error.sqlite_errorname
    return replace(_scan(reader, query, before, limit), fault=fault)


def merged(
    results: Mapping[str, Hits], limit: int
) -> tuple[list[tuple[str, Found]], dict[str, int]]:
    """The newest hits of several databases, each with the name of its own; and before which
    message each is to be looked through further.

    Each keeps its own order; what is behind the end of one that has more waits for that.
    """
    hits: list[tuple[str, Found]] = []
    for _, name, found in heapq.merge(*(_heads(*each) for each in results.items())):
        if found is None or len(hits) == limit:
            break
        hits.append((name, found))
    places = {
        name: _place(result, [found.id for of, found in hits if of == name])
        for name, result in results.items()
    }
    return hits, {name: place for name, place in places.items() if place is not None}


def _place(result: Hits, shown: list[int]) -> int | None:
    if len(shown) == len(result.found):
        return result.before
    return shown[-1] if shown else result.found[0].id + 1


def _heads(name: str, result: Hits) -> list[tuple[float, str, Found | None]]:
    """A stream to merge; None: from here on nothing is known."""
    heads: list[tuple[float, str, Found | None]] = [(-each.ts, name, each) for each in result.found]
    return heads if result.before is None else [*heads, (-math.inf, name, None)]


def _columns(reader: Reader) -> str:
    return f"""messages.id, messages.session_id, messages.role, messages.timestamp,
        substr(CAST(messages.content AS BLOB), 1, 6) = x'006a736f6e3a' AS is_json,
        {reader.column("sessions", "title")} AS title, {lineage.selected(reader)}"""


def _condition(reader: Reader) -> str:
    shown = reader.column("messages", "display_kind")
    spoken = f"messages.role != 'tool' AND coalesce({shown}, '') IN ('', 'steer')"
    return f"{reader.visible} AND {spoken} AND NOT {SUMMARY}"


def _indexed(
    reader: Reader, query: Query, before: int, limit: int, table: str
) -> list[sqlite3.Row]:
    return reader.rows(
        f"""SELECT {_columns(reader)},
        snippet({table}, 0, '{OPENS}', '{CLOSES}', '…', {_SNIPPET_TOKENS}) AS snippet
        FROM {table} JOIN messages ON messages.id = {table}.rowid
        JOIN sessions ON sessions.id = messages.session_id
        WHERE {table} MATCH ? AND {table}.rowid < ? AND {_condition(reader)}
        ORDER BY {table}.rowid DESC LIMIT ?""",  # noqa: S608 - our own names
        *(f"content : ({query.match(trigrams=table == TRIGRAMS)})", before, limit + 1),
    )


def _scan(reader: Reader, query: Query, before: int, limit: int) -> Hits:
    """Without an index: the messages themselves, a bounded number of them."""
    like = "messages.content LIKE ? ESCAPE '\\'"
    groups = [" OR ".join(like for _ in group) for group in query.groups]
    where = " AND ".join(f"({each})" for each in groups)
    where += "".join(f" AND NOT {like}" for _ in query.without)
    words = [_like(term.text) for term in (*query.terms, *query.without)]
    rows: list[sqlite3.Row] = []
    last = reader.rows("SELECT coalesce(max(id), 0) AS it FROM messages")[0]["it"]
    upto = min(before, last + 1)
    for _ in range(_SCANS):
        if upto <= 0 or len(rows) > limit:
            break
        rows += reader.rows(
            f"""SELECT {_columns(reader)}, substr(messages.content, 1, {_CHARS}) AS snippet
            FROM messages JOIN sessions ON sessions.id = messages.session_id
            WHERE messages.id < ? AND messages.id >= ? AND {_condition(reader)} AND {where}
            ORDER BY messages.id DESC LIMIT {limit + 1}""",  # noqa: S608 - our own names
            *(upto, upto - _SCANNED, *words),
        )
        upto -= _SCANNED
    result = _named(reader, rows, limit, query, whole=True)
    if result.before is None and upto > 0:
        return Hits(result.found, upto)
    return result


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _named(
    reader: Reader, rows: list[sqlite3.Row], limit: int, query: Query, *, whole: bool = False
) -> Hits:
    more = len(rows) > limit
    found = list(_found(reader, rows[:limit], query, whole))
    return Hits(found, rows[limit - 1]["id"] if more else None)


def _found(reader: Reader, rows: list[sqlite3.Row], query: Query, whole: bool) -> Iterator[Found]:
    names: dict[str, str | None] = {}
    tasks: dict[str, dict[str, Session]] = {}
    told: dict[str, str] = {}
    for row in rows:
        session = row["session_id"]
        name = lineage.root(reader, row, session, names)
        if name is None:
            continue  # a helper's session
        if name not in tasks:
            # As a key that finds nothing, if it is none: then the chain of this session is it.
            sessions = lineage.of_task(reader, name, session)
            tasks[name] = {one.id: one for one in sessions}
        if session not in tasks[name]:
            continue  # beyond what history tells
        if session not in told:
            told[session] = lineage.told(reader, tasks[name][session])
        is_told = f"SELECT 1 FROM messages WHERE id = ? AND {told[session]}"  # noqa: S608 - ours
        if not reader.rows(is_told, row["id"]):
            continue  # a copy
        snippet, marks = _snippet(reader, row, query, whole)
        title = preview.title(valid_text(row["title"] or ""))
        ts = float(row["timestamp"])
        yield Found(row["id"], session, name, title, row["role"], ts, snippet, marks)


def _snippet(reader: Reader, row: sqlite3.Row, query: Query, whole: bool) -> tuple[str, list[Mark]]:
    if row["is_json"]:
        return window(reader.parts_of(row["id"], _CHARS).text, query.terms)
    if whole:
        return window(content_of(row["snippet"], _CHARS).text, query.terms)
    return unmarked(valid_text(row["snippet"] or ""))
