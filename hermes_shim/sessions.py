"""Hermes' sessions, read from its state.db: never written, and never held open.

0.20 and 0.22 may keep the database in DELETE journal mode, where a reader blocks the
gateway's writes: so each query is fetched at once, in short read-only transactions.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

PREVIEW = 200
_SESSIONS = """SELECT s.id, s.session_key, s.source, s.title, s.model, s.started_at,
 s.parent_session_id, COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id),
 s.started_at) FROM sessions s WHERE {where} ORDER BY 8 DESC, s.rowid DESC"""
_SPOKEN = "FROM messages WHERE role IN ('user', 'assistant') AND content <> '' AND active = 1"


def recent(
    path: Path, limit: int, before: float | None = None, source: str | None = None
) -> dict[str, Any]:
    """The conversations with the latest activity: one a session key, or a root session.

    Blocks on the disk. Raises sqlite3.Error when the database cannot be read.
    """
    uri = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=2)) as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(sessions)")}
        shown = [f"COALESCE(s.{flag}, 0) = 0" for flag in ("archived", "hidden") if flag in columns]
        rows = db.execute(_SESSIONS.format(where=" AND ".join(["1", *shown]))).fetchall()
        found = [entry for entry in _merged(rows).values() if source in (None, entry["platform"])]
        page = [entry for entry in found if before is None or entry["updated_at"] < before]
        for entry in page[:limit]:
            ids = entry.pop("ids")
            marks = ",".join("?" * len(ids))
            spoken = f"{_SPOKEN} AND session_id IN ({marks})"
            count = db.execute(f"SELECT COUNT(*) {spoken}", ids).fetchone()[0]
            last = db.execute(f"SELECT content {spoken} ORDER BY id DESC LIMIT 1", ids).fetchone()
            entry |= {"message_count": count, "preview": _text(last[0])[:PREVIEW] if last else ""}
    return {"sessions": page[:limit], "more": len(page) > limit}


def _merged(rows: list[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """One entry a conversation, in the order of the rows: latest first."""
    above = {row[0]: (row[6], row[1], row[2]) for row in rows}
    merged: dict[str, dict[str, Any]] = {}
    for sid, _, platform, title, model, started, _, active in rows:
        root, seen = sid, {sid}
        while (parent := above[root][0]) in above and parent not in seen:
            seen.add(root := parent)
        if platform != above[root][2]:
            continue  # a subagent's own session
        key = above[sid][1] or above[root][1]
        entry = merged.setdefault(
            key or root,
            {
                "session_key": key,
                "session_id": sid,
                "platform": platform,
                "title": title,
                "model": model,
                "updated_at": active,
                "ids": [],
            },
        )
        entry["ids"].append(sid)
        entry["title"] = entry["title"] or title
        entry["created_at"] = min(started, entry.get("created_at", started))
    return merged


def _text(content: object) -> str:
    """Message text; newer releases may store a JSON list of parts."""
    text = str(content)
    if text.startswith("["):
        try:
            parts = json.loads(text)
            text = " ".join(str(p["text"]) for p in parts if isinstance(p, dict) and p.get("text"))
        except (ValueError, TypeError):
            pass
    return text
