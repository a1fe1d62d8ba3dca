"""Which of Hermes' sessions a task is: all of its session key, and the chains they belong to.

Hermes goes on under another session after /new, /resume and /branch, and where compression
makes a new one. A branch begins with a copy of all it was made from, a compressed session with
a summary and a copy of the newest messages: `own` says where what is its own begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.lmp.stored import SUMMARIES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from loomid.hermesdb import Reader

MOST = 1_000
"""Sessions of one task."""
END = 2**63 - 1
"""Beyond all messages."""
_STEP = 500
_TEXT = 64
"""Characters of a message by which a copy is known, beside its length."""
_CLOCK_S = 1.0
_COPYING_S = 600.0
"""Copies are made when a session begins; what is so much younger is none."""


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a task."""

    id: str
    started_at: float
    parent: str | None
    """The one of the same task that it goes on from, and repeats the end of (or all)."""


def of_task(reader: Reader, session_key: str | None, session_id: str) -> list[Session]:
    """The sessions of a task, the newest first. `session_id`: one of them, "" if none is known."""
    found: dict[str, sqlite3.Row] = {}
    waiting = _select(reader, "id = ?", session_id) if session_id else []
    if session_key:
        waiting += _select(reader, f"{reader.column('sessions', 'session_key')} = ?", session_key)
    while waiting and len(found) < MOST:
        row = waiting.pop()
        if row["id"] in found or row["delegated"]:
            continue
        found[row["id"]] = row
        if not row["branched"]:
            waiting += [one for one in _above(reader, row) if one["end_reason"] == "compression"]
        if row["end_reason"] == "compression":
            below = _select(reader, "parent_session_id = ?", row["id"])
            waiting += [one for one in below if not one["branched"]]
    rows = sorted(found.values(), key=lambda row: (row["started_at"], row["id"]), reverse=True)
    return [
        Session(row["id"], row["started_at"], parent if (parent := _parent(row)) in found else None)
        for row in rows
    ]


def _parent(row: sqlite3.Row) -> str:
    return row["branched"] or row["parent_session_id"] or ""


def selected(reader: Reader) -> str:
    """The columns that `root` needs of a row of `sessions`."""
    config = reader.column("sessions", "model_config")
    marks = ", ".join(
        f"CASE WHEN json_valid({config}) THEN json_extract({config}, '$.{mark}') END AS {name}"
        for mark, name in (("_branched_from", "branched"), ("_delegate_from", "delegated"))
    )
    names = reader.columns("sessions", ("session_key", "parent_session_id", "end_reason"))
    return f"{names}, {marks}"


def _select(reader: Reader, where: str, value: str) -> list[sqlite3.Row]:
    return reader.rows(
        f"SELECT id, started_at, {selected(reader)} FROM sessions WHERE {where} "  # noqa: S608
        f"ORDER BY started_at DESC LIMIT {MOST}",
        value,
    )


def root(
    reader: Reader, session: sqlite3.Row, session_id: str, known: dict[str, str | None]
) -> str | None:
    """What a session's task is named by: its key, else the first of its chain of compressions.
    None of a session that is no conversation: a helper's. `known`: what was found of others;
    all that is found on the way comes to it."""
    passed: dict[str, None] = {}
    name: str | None = None
    while session_id not in passed:
        if session_id in known:
            name = known[session_id]
            break
        passed[session_id] = None
        if session["session_key"]:
            name = str(session["session_key"])
            break
        if session["delegated"]:
            break
        above = [] if session["branched"] else _above(reader, session)
        if not above or above[0]["end_reason"] == "branched":  # as older releases mark a branch
            name = session_id
            break
        if above[0]["end_reason"] != "compression":
            break
        session, session_id = above[0], above[0]["id"]
    known.update(dict.fromkeys(passed, name))
    return name


def _above(reader: Reader, session: sqlite3.Row) -> list[sqlite3.Row]:
    parent = session["parent_session_id"]
    return _select(reader, "id = ?", parent) if parent else []


def surely_own(reader: Reader, session: Session) -> int:
    """An id from which on nothing was taken over from the session's parent, by its time alone."""
    if session.parent is None:
        return 0
    (row,) = reader.rows(
        "SELECT min(id) AS first FROM messages WHERE session_id = ? AND timestamp > ?",
        *(session.id, session.started_at + _COPYING_S),
    )
    return END if row["first"] is None else int(row["first"])


def own(reader: Reader, session: Session) -> int:
    """The id of the first message that the session did not take over from its parent: all that
    it took over is in the parent's order, so both are gone through once, in steps."""
    if session.parent is None:
        return 0
    sure, began = surely_own(reader, session), session.started_at
    theirs = (key for _, key, ts in _keys(reader, session.parent) if ts <= began + _CLOCK_S)
    aged = False
    for id_, key, ts in _keys(reader, session.id):
        summary = str(key[-1]).startswith(SUMMARIES)
        old = ts < began - 0.001
        if id_ >= sure or not (summary or old or (not aged and key in theirs)):
            return id_
        aged |= old and not summary  # its copies keep their times
    return END


def told(reader: Reader, session: Session) -> str:
    """A condition: those of a session's messages that history tells, each of its task once."""
    return f"messages.id >= {own(reader, session)} AND {reader.shown(session.id)}"


def _keys(reader: Reader, session_id: str) -> Iterator[tuple[int, tuple[object, ...], float]]:
    """Id, what it is known by (its text at last), and time of each message; the oldest first."""
    after, shown = 0, reader.shown(session_id)
    while True:
        rows = reader.rows(
            f"""SELECT id, role, timestamp, tool_call_id, length(tool_calls) AS calls,
            length(CAST(content AS BLOB)) AS size, substr(content, 1, {_TEXT}) AS text
            FROM messages WHERE session_id = ? AND +id > ? AND {shown}
            ORDER BY +id LIMIT {_STEP}""",  # noqa: S608 - our own names
            *(session_id, after),
        )
        for row in rows:
            key = (row["role"], row["tool_call_id"], row["calls"], row["size"], row["text"])
            yield row["id"], key, row["timestamp"]
        if len(rows) < _STEP:
            return
        after = rows[-1]["id"]
