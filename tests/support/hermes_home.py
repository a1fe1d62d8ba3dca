"""A Hermes home of one release without a Hermes: its state.db, made with the real schema."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent.parent / "data" / "hermes"
RELEASES = ("19", "20", "22")
MARK = "\x00json:"


class Home:
    """What Hermes would have written there. `journal`: 0.19 writes ahead, later releases delete."""

    def __init__(self, folder: Path, release: str = "22", *, journal: str = "delete") -> None:
        self.folder = folder
        self.release = release
        folder.mkdir(exist_ok=True)
        self.path = folder / "state.db"
        schema = (SCHEMAS / f"state-{release}.sql").read_text(encoding="utf-8")
        with closing(sqlite3.connect(self.path)) as line:
            line.execute(f"PRAGMA journal_mode = {journal}")
            line.executescript(schema)
        self._now = 1_000.0

    def run(self, sql: str, *parameters: Any) -> int:
        """One statement of Hermes; the number of the row that it made."""
        with closing(sqlite3.connect(self.path)) as line, line:
            line.execute("PRAGMA synchronous = OFF")
            return line.execute(sql, parameters).lastrowid or 0

    def rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """What a statement finds."""
        with closing(sqlite3.connect(self.path)) as line:
            line.row_factory = sqlite3.Row
            return [dict(row) for row in line.execute(sql, parameters)]

    def session(self, session_id: str = "s1", key: str | None = None, **more: Any) -> str:
        """A session that begins now."""
        self._now += 1.0
        row = {"id": session_id, "source": "loomi", "session_key": key, "started_at": self._now}
        if config := more.pop("model_config", None):
            more["model_config"] = json.dumps(config)
        self._insert("sessions", row | more)
        return session_id

    def message(self, role: str, content: Any = "", session: str = "s1", **more: Any) -> int:
        """The next message."""
        self._now += more.pop("after", 1.0)
        stored = content if isinstance(content, str | None) else MARK + json.dumps(content)
        row = {"session_id": session, "role": role, "content": stored, "timestamp": self._now}
        return self._insert("messages", row | more)

    def say(self, text: str, answer: str | None = "ok", session: str = "s1", **more: Any) -> None:
        """A turn: what the user wrote, and an answer if there was one."""
        self.message("user", text, session)
        if answer is not None:
            self.message("assistant", answer, session, finish_reason="stop", **more)

    def use(self, tool: str, args: Any, result: str, session: str = "s1", text: str = "") -> None:
        """The model asks for a tool, which gives that back."""
        call = {"id": f"call_{self._now:g}", "type": "function"}
        call["function"] = {"name": tool, "arguments": json.dumps(args)}
        calls = {"tool_calls": json.dumps([call]), "finish_reason": "tool_calls"}
        self.message("assistant", text, session, **calls)
        self.message("tool", result, session, tool_call_id=call["id"], tool_name=tool)

    def copy(self, source: str, target: str, *, keep_time: bool, last: int = 10**6) -> None:
        """What a branch or a compression does with the messages of a session, or the last of
        them."""
        with closing(sqlite3.connect(self.path)) as line:
            line.row_factory = sqlite3.Row
            rows = line.execute(
                "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (source,)
            )
            for row in rows.fetchall()[-last:]:
                fields = {k: row[k] for k in set(row.keys()) if k not in ("id", "session_id")}
                if not keep_time:
                    fields["timestamp"] = self._now
                self._insert("messages", {**fields, "session_id": target})

    def _insert(self, table: str, row: dict[str, Any]) -> int:
        names, marks = ", ".join(row), ", ".join("?" for _ in row)
        return self.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", *row.values())
