"""What the agent of `loomid --demo` remembers: as much of Hermes' database as loomid reads."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.hermesdb import FILE

if TYPE_CHECKING:
    from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, session_key TEXT,
    model TEXT, model_config TEXT, parent_session_id TEXT, started_at REAL NOT NULL,
    end_reason TEXT, title TEXT, api_call_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
    finish_reason TEXT, reasoning TEXT, display_kind TEXT);
CREATE INDEX IF NOT EXISTS by_session ON messages (session_id, timestamp);
"""
_COPIED = """role, content, tool_call_id, tool_calls, tool_name, timestamp, finish_reason,
    reasoning, display_kind"""
_LIST = """SELECT id, session_key, source, coalesce(title, '') AS title, model, started_at,
    (SELECT count(*) FROM messages WHERE session_id = sessions.id) AS message_count,
    coalesce((SELECT max(timestamp) FROM messages WHERE session_id = sessions.id), started_at)
    AS last_active,
    coalesce((SELECT content FROM messages WHERE session_id = sessions.id AND role = 'user'
    ORDER BY id LIMIT 1), '') AS preview
    FROM sessions ORDER BY last_active DESC LIMIT ? OFFSET ?"""


class TitleTaken(Exception):
    """Another session has it."""


class Book:
    """Sessions and their messages, in a Hermes home; without one in memory."""

    def __init__(self, home: Path | None) -> None:
        self._line = sqlite3.connect(home / FILE if home else ":memory:", isolation_level=None)
        self._line.row_factory = sqlite3.Row
        self._line.executescript(_SCHEMA)

    def begin(self, session_id: str, key: str, model: str, origin: str | None = None) -> None:
        """A session; with `origin` one that begins with a copy of that one's messages."""
        config = None if origin is None else json.dumps({"_branched_from": origin})
        self._line.execute(
            """INSERT INTO sessions (id, source, session_key, model, model_config,
            parent_session_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (session_id, wire.PLATFORM, key, model, config, origin, time.time()),
        )
        self._line.execute(
            f"""INSERT INTO messages (session_id, {_COPIED})
            SELECT ?, {_COPIED} FROM messages WHERE session_id = ? ORDER BY id""",  # noqa: S608
            (session_id, origin),
        )

    def add(self, session_id: str, role: str, content: str, **more: Any) -> None:  # noqa: ANN401
        """A message; `more` are other columns of it."""
        said = {"session_id": session_id, "role": role, "content": content}
        row = said | {"timestamp": time.time()} | more
        names, places = ", ".join(row), ", ".join("?" * len(row))
        self._line.execute(
            f"INSERT INTO messages ({names}) VALUES ({places})",  # noqa: S608 - our own names
            [*row.values()],
        )
        calls = role == "assistant", role == "tool"
        self._line.execute(
            """UPDATE sessions SET api_call_count = api_call_count + ?,
            tool_call_count = tool_call_count + ? WHERE id = ?""",
            (*calls, session_id),
        )

    def model(self, session_id: str, name: str) -> None:
        """What the session runs with now."""
        self._line.execute("UPDATE sessions SET model = ? WHERE id = ?", (name, session_id))

    def title(self, session_id: str, title: str | None = None) -> str:
        """Its title, which can be given. Raises TitleTaken."""
        if title is not None:
            if self.taken(title, session_id):
                raise TitleTaken
            self._line.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, session_id))
        found = self._line.execute("SELECT title FROM sessions WHERE id = ?", (session_id,))
        return next((str(row["title"] or "") for row in found), "")

    def taken(self, title: str, session_id: str = "") -> bool:
        """Whether another session has that title."""
        said = "SELECT 1 FROM sessions WHERE title = ? AND id != ?"
        return self._line.execute(said, (title, session_id)).fetchone() is not None

    def heading(self, session_id: str, text: str) -> None:
        """Give a session that has no title one that begins so."""
        base = title = " ".join(text.split())[:60]
        number = 2
        while self.taken(title, session_id):
            title, number = f"{base} #{number}", number + 1
        if title and not self.title(session_id):
            self.title(session_id, title)

    def empty(self, session_id: str) -> bool:
        """Whether it has no message."""
        said = "SELECT 1 FROM messages WHERE session_id = ? LIMIT 1"
        return self._line.execute(said, (session_id,)).fetchone() is None

    def sessions(self, limit: int = -1, offset: int = 0) -> list[dict[str, Any]]:
        """As Hermes lists them, the newest first."""
        return [dict(row) for row in self._line.execute(_LIST, (limit, offset))]
