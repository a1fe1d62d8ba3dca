"""The read-only query of Hermes' sessions, on databases like those of Hermes."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from hermes_shim import sessions

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, session_key TEXT, model TEXT,
 parent_session_id TEXT, started_at REAL, ended_at REAL, message_count INTEGER, title TEXT
 {more});
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT,
 content TEXT, timestamp REAL, active INTEGER DEFAULT 1);
"""
NEWER = ", archived INTEGER NOT NULL DEFAULT 0, hidden INTEGER NOT NULL DEFAULT 0"


@pytest.fixture(params=["", NEWER], ids=["older", "newer"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    connection = sqlite3.connect(tmp_path / "state.db")
    connection.executescript(SCHEMA.format(more=request.param))
    yield connection
    connection.close()


def add(db: Any, sid: str, key: str | None, started: float, *texts: str, **more: Any) -> None:
    row = {"id": sid, "session_key": key, "source": "loomi", "started_at": started, **more}
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO sessions ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    for number, text in enumerate(texts):
        role = ("user", "assistant")[number % 2]
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            (sid, role, text, started + number + 1),
        )
    db.commit()


def found(tmp_path: Path, limit: int = 10, **more: Any) -> list[dict[str, Any]]:
    return sessions.recent(tmp_path / "state.db", limit, **more)["sessions"]


def test_one_row_a_session_key_newest_first(db: Any, tmp_path: Path) -> None:
    add(db, "s1", "k1", 100, "a", "b", title="First", model="m1")
    add(db, "s2", "k2", 200, "c")
    add(db, "s3", "k1", 300, "d", "e")  # after /new
    first, second = found(tmp_path)
    assert first == {
        "session_key": "k1",
        "session_id": "s3",
        "platform": "loomi",
        "title": "First",
        "model": None,
        "created_at": 100,
        "updated_at": 302,
        "message_count": 4,
        "preview": "e",
    }
    assert (second["session_key"], second["updated_at"]) == ("k2", 201)


def test_sessions_without_a_key_are_one_by_their_root(db: Any, tmp_path: Path) -> None:
    add(db, "root", None, 100, "a", source="cli")
    add(db, "child", None, 200, "b", source="cli", parent_session_id="root")
    add(db, "lost", None, 50, "c", source="cli", parent_session_id="gone")
    first, second = found(tmp_path)
    assert (first["session_id"], first["session_key"], first["created_at"]) == ("child", None, 100)
    assert first["message_count"] == 2
    assert second["session_id"] == "lost"


def test_children_count_to_the_key_of_their_root(db: Any, tmp_path: Path) -> None:
    add(db, "s1", "k1", 100, "a")
    add(db, "sub", None, 110, "x", source="subagent", parent_session_id="s1")
    assert [(s["session_key"], s["platform"], s["session_id"]) for s in found(tmp_path)] == [
        ("k1", "loomi", "s1")
    ]


def test_what_is_no_conversation_is_not_counted(db: Any, tmp_path: Path) -> None:
    add(db, "s1", "k1", 100, "hello", '[{"type": "text", "text": "two"}, {"type": "image"}]')
    for role, content, active in (
        ("session_meta", "m", 1),
        ("user", "undone", 0),
        ("tool", "t", 1),
    ):
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp, active)"
            " VALUES ('s1', ?, ?, 150, ?)",
            (role, content, active),
        )
    db.commit()
    (only,) = found(tmp_path)
    assert (only["message_count"], only["preview"]) == (2, "two")


def test_pages(db: Any, tmp_path: Path) -> None:
    for number in range(7):
        add(db, f"s{number}", f"k{number}", 100.0 * number, "a")
    seen, before = [], None
    while True:
        page = sessions.recent(tmp_path / "state.db", 3, before)
        seen += [s["session_key"] for s in page["sessions"]]
        if not page["more"]:
            break
        before = page["sessions"][-1]["updated_at"]
    assert seen == [f"k{number}" for number in reversed(range(7))]


def test_by_platform_and_hidden(db: Any, tmp_path: Path) -> None:
    add(db, "s1", "k1", 100, "a", source="telegram")
    add(db, "s2", "k2", 200, "a")
    assert [s["session_key"] for s in found(tmp_path, source="telegram")] == ["k1"]
    if "archived" in {row[1] for row in db.execute("PRAGMA table_info(sessions)")}:
        db.execute("UPDATE sessions SET archived = 1 WHERE id = 's1'")
        db.execute("UPDATE sessions SET hidden = 1 WHERE id = 's2'")
        db.commit()
        assert found(tmp_path) == []


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_while_hermes_writes(db: Any, tmp_path: Path, journal: str) -> None:
    db.execute(f"PRAGMA journal_mode={journal}")
    add(db, "s1", "k1", 100, "a")
    db.execute("UPDATE sessions SET title = 'not yet' WHERE id = 's1'")  # an open transaction
    assert found(tmp_path)[0]["title"] is None
    db.commit()
    assert found(tmp_path)[0]["title"] == "not yet"


def test_nothing_is_made_or_written(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        found(tmp_path)
    assert list(tmp_path.iterdir()) == []
