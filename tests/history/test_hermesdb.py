"""Hermes' database is read without being in the way of Hermes, whatever it is like."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from loomid import hermesdb
from loomid.errors import GatewayError
from loomid.hermesdb import READERS, HermesDb, Reader, TextLimits
from loomid.lmp import capabilities
from loomid.lmp.facts import GatewayUp
from tests.support.hermes_home import RELEASES, Home
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from loomid.lmp.stored import Row

LIMITS = TextLimits(10_000, 100)


def rows_of(home: Home, session: str = "s1", limits: TextLimits = LIMITS) -> list[Row]:
    """A session's messages, the oldest first."""

    def work(reader: Reader) -> list[Row]:
        return [*reader.messages(reader.ids(session, 2**62), limits)]

    return hermesdb.read(home.folder, work)[::-1]


def test_what_is_no_message_of_the_conversation_is_left_out(home: Home) -> None:
    home.session()
    home.say("hi", "hello")
    home.message("session_meta", "x")
    home.message("user", "taken back", active=0)
    home.message("system", "prompt")
    home.say("in another", session=home.session("s2"))
    assert [(row.role, row.content.text) for row in rows_of(home)] == [
        ("user", "hi"),
        ("assistant", "hello"),
    ]


def test_order_is_that_of_the_numbers_whatever_the_clock_says(home: Home) -> None:
    home.session()
    for text in ("one", "two", "three"):
        home.message("user", text, after=-10.0)
    assert [row.content.text for row in rows_of(home)] == ["one", "two", "three"]


def test_more_messages_than_are_read_at_once(home: Home) -> None:
    home.session()
    count = hermesdb.CHUNK * 2 + 1
    with closing(sqlite3.connect(home.path)) as line, line:
        line.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            [("s1", "user", str(n), 1.0 * n) for n in range(hermesdb.IDS + count)],
        )
    texts = [row.content.text for row in rows_of(home)]
    assert texts == [str(n) for n in range(hermesdb.IDS + count)]


def test_content_that_is_json(home: Home) -> None:
    home.session()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJDRA=="}}
    home.message("user", [{"type": "text", "text": "look"}, picture, {"type": "input_audio"}])
    home.message("user", [{"type": "text", "text": "a" * 20_000}, 3, None])
    looked, long = rows_of(home)
    assert looked.content.text == "look"
    first, second = looked.content.attachments
    assert (first.kind, first.media_type, first.bytes) == ("image", "image/png", 4)
    assert second.kind == "audio"
    assert (long.content.text, long.content.truncated) == ("a" * 10_000, True)


@pytest.mark.parametrize(
    "content", ["\x00json:{", "\x00json:", "\x00json:7", "\x00x", None, b"\xff"]
)
def test_odd_content_is_no_error(home: Home, content: Any) -> None:
    home.session()
    number = home.message("user")
    home.run("UPDATE messages SET content = ? WHERE id = ?", content, number)
    (row,) = rows_of(home)
    assert row.content.attachments == ()


def test_text_is_made_valid(home: Home) -> None:
    home.session()
    home.message("user", "a\x00b")
    home.message("user", [{"type": "text", "text": "\ud800"}])
    home.run("UPDATE messages SET content = CAST(x'61ff62' AS TEXT) WHERE id = 1")
    first, second = rows_of(home)
    assert (first.content.text, second.content.text) == ("a\ufffdb", "\ufffd")


def picture(size: int) -> dict[str, Any]:
    """As Hermes stores one of so many bytes."""
    data = "QUJD" * (size // 3)
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_pictures_of_any_size(tmp_path: Path) -> None:
    """Looked into are those that are not too large; of the others what comes before them."""
    home = Home(tmp_path / "hermes")
    home.session()
    say = {"type": "text", "text": "look"}
    few, many = 3 * 2**19, 3 * 2**22
    home.message("user", [say, picture(few), {"type": "text", "text": "here"}])
    home.message("user", [say, picture(3), picture(many), {"type": "text", "text": "there"}])
    home.message("user", [picture(3)] * 50)
    small, large, album = rows_of(home)
    assert (small.content.text, small.content.truncated) == ("look\nhere", False)
    assert [(one.media_type, one.bytes) for one in small.content.attachments] == [
        ("image/png", few)
    ]
    assert (large.content.text, large.content.truncated) == ("look", True)
    assert [one.kind for one in large.content.attachments] == ["image"]
    assert (len(album.content.attachments), album.content.truncated) == (16, True)


def test_python_never_sees_a_large_message(tmp_path: Path) -> None:
    """While Python looks at megabytes nothing else of loomid runs."""
    home = Home(tmp_path / "hermes")
    home.session()
    wide = '"' * 2 + ',""' * 2**20
    for content in ("\x00json:" + json.dumps([picture(2**20)] * 5), "\x00json:[" + wide + "]"):
        home.message("user", content)
        home.message("tool", content)
    home.message("user", "x" * 2**22)
    home.message("tool", json.dumps({"error": "x" * 2**22}), tool_name="terminal")
    call = {"id": "c1", "function": {"name": "write_file", "arguments": "{" + wide + "}"}}
    home.message("assistant", "", tool_calls=json.dumps([call]))
    sizes: list[int] = []

    def work(reader: Reader) -> list[Row]:
        reader._line.text_factory = lambda raw: sizes.append(len(raw)) or raw.decode()
        return [*reader.messages(reader.ids("s1", 2**62), LIMITS)]

    rows = hermesdb.read(home.folder, work)
    assert max(sizes) < 2**17
    assert [(call.call_id, call.tool) for call in rows[0].calls] == [("c1", "write_file")]
    assert rows[1].ok is False
    assert rows[2].content.truncated


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a\u0000b", "a\ufffdb"),
        (r"a\\u0000b", r"a\u0000b"),
        (r"a\\\u0000b", "a\\\ufffdb"),
        (r"\ud800", "\ufffd"),
        (r"\ud83d\ude00\u5927", "😀大"),
    ],
)
def test_text_in_json_is_what_it_was(home: Home, escaped: str, text: str) -> None:
    home.session()
    home.message("user", f'\x00json:[{{"type": "text", "text": "{escaped}"}}]')
    assert rows_of(home)[0].content.text == text


def test_calls_and_what_they_gave_back(home: Home) -> None:
    home.session()
    home.use(
        "terminal", {"command": "ls", "n": 3}, json.dumps({"output": "x" * 500, "error": None})
    )
    home.use("terminal", {"command": "false"}, json.dumps({"exit_code": 1, "error": None}))
    home.use("read_file", {"path": "a"}, json.dumps({"error": "no such file"}))
    home.use("write_file", {"content": "y" * 200_000, "path": "b"}, "plain")
    rows = rows_of(home)
    calls = [row.calls[0] for row in rows if row.calls]
    assert [(call.tool, call.preview.text[:14]) for call in calls] == [
        ("terminal", "ls\nn: 3"),
        ("terminal", "false"),
        ("read_file", "path: a"),
        ("write_file", "content: yyyyy"),
    ]
    results = [row for row in rows if row.role == "tool"]
    assert [row.call_id for row in results] == [call.call_id for call in calls]
    assert [row.ok for row in results] == [True, False, False, True]
    assert [row.content.truncated for row in results] == [True, False, False, False]
    assert len(results[0].content.text) == LIMITS.tool


@pytest.mark.parametrize("calls", ["{", "[1, null, {}]", '[{"function": {"arguments": "{"}}]', "7"])
def test_odd_calls_are_no_error(home: Home, calls: str) -> None:
    home.session()
    home.message("assistant", "x", tool_calls=calls)
    (row,) = rows_of(home)
    assert len(row.calls) <= 1


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_hermes_writes_while_it_is_read(tmp_path: Path, journal: str) -> None:
    """Each reader sees whole messages; no write of Hermes fails or waits for long."""
    home = Home(tmp_path / "hermes", journal=journal)
    home.session()
    done = threading.Event()
    waits: list[float] = []

    def write() -> None:
        with closing(sqlite3.connect(home.path, timeout=30.0)) as line:
            for number in range(80):
                begun = time.monotonic()
                with line:
                    line.execute(
                        "INSERT INTO messages (session_id, role, content, timestamp)"
                        " VALUES ('s1', 'user', ?, ?)",
                        (f"{number} " + "x" * 2_000, float(number)),
                    )
                waits.append(time.monotonic() - begun)
                time.sleep(0.01)  # Hermes does other things, too
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    last = 0
    try:
        while not done.is_set():
            rows = rows_of(home)
            assert [row.content.text.split()[0] for row in rows] == [
                str(number) for number in range(len(rows))
            ]
            assert len(rows) >= last
            last = len(rows)
    finally:
        writer.join(60.0)
    assert len(rows_of(home)) == 80
    assert len(waits) == 80


def test_nothing_is_held_between_statements(home: Home) -> None:
    """A writer that takes the whole file gets it while we have a connection open."""
    home.session()
    home.say("hi")

    def work(reader: Reader) -> list[Row]:
        rows = reader.messages(reader.ids("s1", 2**62), LIMITS)
        first = next(rows)
        with closing(sqlite3.connect(home.path, timeout=0.0)) as line, line:
            line.execute("BEGIN EXCLUSIVE")
            line.execute(
                "INSERT INTO messages (session_id, role, timestamp) VALUES ('s1', 'user', 1)"
            )
        return [first, *rows]

    assert len(hermesdb.read(home.folder, work)) == 2


def test_a_database_that_is_locked_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hermesdb, "BUSY_S", 0.05)
    home = Home(tmp_path / "hermes")
    home.session()
    with closing(sqlite3.connect(home.path)) as line:
        line.execute("BEGIN EXCLUSIVE")
        with pytest.raises(GatewayError) as caught:
            rows_of(home)
    assert caught.value.params == {"reason": "database_busy"}


async def test_who_leaves_does_not_let_more_threads_read(home: Home) -> None:
    """A phone that asks and leaves, again and again: what has begun goes on; nothing else waits
    for it, and what has not begun is not run."""
    go, ran = threading.Event(), []

    def work(_: Reader) -> None:
        ran.append(threading.current_thread().name)
        go.wait(60.0)

    async with asyncio.TaskGroup() as group:
        with closing(HermesDb()) as db:
            for turn in range(3):
                reads = [group.create_task(db.read(home.folder, work)) for _ in range(READERS * 8)]
                await asyncio.sleep(0)  # they are on their way
                await until(lambda: len(ran) >= READERS)
                if turn < 2:
                    for read in reads:
                        read.cancel()
                    await asyncio.wait(reads)
            assert await asyncio.to_thread(len, ran) == READERS
            go.set()
            await asyncio.wait(reads)
    assert len(ran) == READERS * 9
    assert len(set(ran)) <= READERS


async def test_what_has_not_begun_when_it_is_closed_is_not_run(home: Home) -> None:
    go, ran = threading.Event(), []

    def work(_: Reader) -> None:
        ran.append(1)
        go.wait(60.0)

    async with asyncio.TaskGroup() as group:
        db = HermesDb()
        reads = [group.create_task(db.read(home.folder, work)) for _ in range(READERS * 2)]
        await until(lambda: len(ran) == READERS)
        db.close()
        go.set()
        await asyncio.wait(reads)
    assert [read.cancelled() for read in reads] == [False] * READERS + [True] * READERS
    assert len(ran) == READERS


def reason(folder: Path) -> str:
    with pytest.raises(GatewayError) as caught:
        hermesdb.read(folder, lambda reader: reader.rows("SELECT * FROM messages"))
    return str(caught.value.params["reason"])


def test_no_database(tmp_path: Path) -> None:
    assert not hermesdb.readable(tmp_path)
    assert reason(tmp_path) == "no_database"
    os.mkfifo(tmp_path / "state.db")
    assert not hermesdb.readable(tmp_path)
    (tmp_path / "state.db").unlink()
    (tmp_path / "state.db").mkdir()
    assert not hermesdb.readable(tmp_path)
    assert reason(tmp_path) == "no_database"


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database at all")
    assert not hermesdb.readable(tmp_path)
    assert reason(tmp_path) == "no_database"


def test_a_damaged_database(tmp_path: Path) -> None:
    home = Home(tmp_path)
    raw = bytearray(home.path.read_bytes())
    raw[100:] = bytes(len(raw) - 100)
    home.path.write_bytes(raw)
    assert reason(tmp_path) == "no_database"


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as line, line:
        line.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)")
    assert hermesdb.readable(tmp_path)
    assert reason(tmp_path) == "foreign_database"


def test_it_is_not_written_and_not_made(home: Home) -> None:
    with pytest.raises(GatewayError):
        hermesdb.read(home.folder, lambda reader: reader.rows("DELETE FROM messages"))
    (home.folder / "none").mkdir()
    assert reason(home.folder / "none") == "no_database"
    assert not list((home.folder / "none").iterdir())


def test_paths_that_a_uri_would_take_apart(tmp_path: Path) -> None:
    home = Home(tmp_path / "a?b#c%20 d")
    home.session()
    home.say("hi")
    assert len(rows_of(home)) == 2


def test_columns_that_a_release_lacks_are_null(tmp_path: Path) -> None:
    """Older than any we know: the least that makes a conversation."""
    with closing(sqlite3.connect(tmp_path / "state.db")) as line, line:
        line.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, started_at REAL)")
        line.execute(
            """CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT,
            content TEXT, timestamp REAL, tool_name TEXT)"""
        )
        line.execute("INSERT INTO messages VALUES (1, 's1', 'user', 'hi', 1.0, NULL)")
    rows = hermesdb.read(tmp_path, lambda r: [*r.messages(r.ids("s1", 9), LIMITS)])
    assert [(row.content.text, row.reasoning.text, row.summary) for row in rows] == [
        ("hi", "", False)
    ]


def test_what_is_announced(home: Home) -> None:
    up = GatewayUp("n", "0.22", "0.1.0", [], None, home=str(home.folder), readable=True)
    assert capabilities.of(up) == ["history", "search", "stats"]
    assert "history" not in capabilities.of(GatewayUp("n", "0.22", "0.1.0", [], None))


def test_every_release_is_there() -> None:
    assert RELEASES == ("19", "20", "22")
