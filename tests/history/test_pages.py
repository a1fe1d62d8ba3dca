"""Pages of history: all of it once, in order, within their bounds."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from loomid import hermesdb, lineage, pages
from loomid.lmp.history_frames import LEAST_BYTES
from loomid.pages import Before, Page, Wanted
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from loomid.hermesdb import Reader
    from loomid.lmp.history_frames import HistoryTurn

KEY = "agent:main:loomi:dm:c1"
ALL = Wanted(1_000, 10**9, full=True)


def page_of(
    home: Home, wanted: Wanted, place: Before | None = None, live: str | None = None
) -> Page:
    def work(reader: Reader) -> Page:
        sessions = lineage.of_task(reader, KEY, "")
        return pages.read(reader, sessions, place, wanted, lambda s, n: f"{s}/{n}", live)

    return hermesdb.read(home.folder, work)


def pages_of(home: Home, wanted: Wanted) -> list[list[HistoryTurn]]:
    """All pages, the newest first."""
    found, place = [], None
    while True:
        page = page_of(home, wanted, place)
        size = sum(len(msgspec.json.encode(turn)) for turn in page.turns)
        assert size <= wanted.bytes
        assert page.turns or not found
        found.append(page.turns)
        if page.following is None:
            return found
        assert page.following != place
        place = page.following


def joined(found: list[list[HistoryTurn]]) -> list[HistoryTurn]:
    """The turns of all pages, oldest first; those that were told in pieces put together."""
    turns: list[HistoryTurn] = []
    for page in found:
        for turn in reversed(page):
            if turns and turns[0].turn_id == turn.turn_id:
                assert turn.continued is not None
                parts = [*turn.parts, *turns[0].parts]
                turns[0] = msgspec.structs.replace(turn, parts=parts)
            else:
                turns.insert(0, turn)
    return turns


turn = st.tuples(
    st.sampled_from(["hi", "x" * 300, "€" * 900, "\x01" * 200]),
    st.integers(0, 4),
    st.sampled_from(["ok", None, "y" * 2_500]),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(turn, max_size=12), st.integers(1, 30), st.sampled_from([4_096, 9_000, 60_000]))
def test_the_pages_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, told: list[Any], messages: int, size: int
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    home.session("s1", KEY)
    for number, (text, tools, answer) in enumerate(told):
        session = "s1" if number < 6 else home.session("s2", KEY) if number == 6 else "s2"
        home.message("user", f"{number} {text}", session)
        for index in range(tools):
            home.use("terminal", {"command": f"ls {index}"}, "r" * 600, session, text=f"t{index}")
        if answer is not None:
            home.message("assistant", answer, session, finish_reason="stop")
    found = pages_of(home, Wanted(messages, size, full=True))
    whole = joined([page_of(home, ALL).turns])
    assert [t.turn_id for t in joined(found)] == [t.turn_id for t in whole]
    assert [_ids(t) for t in joined(found)] == [_ids(t) for t in whole]
    assert all(t.prompt.startswith(str(n)) for n, t in enumerate(joined(found)) if t.prompt)


def _ids(turn: HistoryTurn) -> list[tuple[str, Any, Any]]:
    return [(part.part, part.status, part.preview) for part in turn.parts]


def test_a_page_has_the_newest_turns_that_fit(home: Home) -> None:
    home.session("s1", KEY)
    for number in range(10):
        home.say(f"{number}", "a" * 1_500)
    page = page_of(home, Wanted(100, 4_096 + 1_024, full=False))
    assert [turn.prompt for turn in page.turns] == ["8", "9"]
    page = page_of(home, Wanted(3, 10**6, full=False))
    assert [turn.prompt for turn in page.turns] == ["9"]
    page = page_of(home, Wanted(4, 10**6, full=False))
    assert [turn.prompt for turn in page.turns] == ["8", "9"]


def test_tool_texts_are_previews_unless_all_is_asked_for(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", "go")
    home.use("terminal", {"command": "ls"}, "r" * 9_000)
    (turn,) = page_of(home, Wanted(10, 10**6, full=False)).turns
    (part,) = turn.parts
    assert (len(part.result or ""), part.truncated) == (2_000, True)
    (turn,) = page_of(home, Wanted(10, 10**6, full=True)).turns
    (part,) = turn.parts
    assert (len(part.result or ""), part.truncated is True) == (9_000, False)


def test_one_turn_larger_than_a_page_comes_in_pieces(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", "go" * 5_000)
    for index in range(30):
        home.use("terminal", {"command": f"ls {index}"}, json.dumps({"output": "x" * 1_000}))
    home.message("assistant", "z" * 100_000, finish_reason="stop")
    found = pages_of(home, Wanted(10, LEAST_BYTES, full=True))
    assert len(found) > 10
    (turn,) = joined(found)
    assert [part.part for part in turn.parts[:2]] == [
        part.part for part in joined([page_of(home, ALL).turns])[0].parts[:2]
    ]
    assert len(turn.parts) == 31
    assert found[-1][0].continued is not True
    assert all(page[0].continued is True for page in found[:-1])
    assert found[0][0].parts[-1].truncated is True


def test_a_part_that_nothing_fits_beside_is_cut(home: Home) -> None:
    """Many pictures in the message; a tool whose arguments, escaped, are larger than a page, or
    whose name is."""
    home.session("s1", KEY)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    home.message("user", [{"type": "text", "text": "\x02" * 9_000}, *[picture] * 100])
    home.use("terminal", {"command": "\x01" * 2_000}, "\x03" * 2_000)
    home.use("t" * 10_000, {}, "ok")
    for page in pages_of(home, Wanted(10, LEAST_BYTES, full=True)):
        assert page[0].turn_id == "s1/1"


def test_a_turn_that_goes_on_while_its_pages_are_read(home: Home) -> None:
    home.session("s1", KEY)
    for number in range(4):
        home.say(f"{number}")
    first = page_of(home, Wanted(2, 10**6, full=False))
    home.say("new")
    rest = page_of(home, Wanted(100, 10**6, full=False), first.following)
    assert [t.prompt for t in [*rest.turns, *first.turns]] == ["0", "1", "2", "3"]


def test_a_live_run_is_named_on_the_newest_turn_alone(home: Home) -> None:
    home.session("s1", KEY)
    home.say("one", answer=None)
    home.say("two", answer=None)
    one, two = page_of(home, ALL, live="run_1").turns
    assert (one.run_id is not None, two.run_id) == (True, "run_1")
    assert not one.run_id
    home.message("assistant", "done", finish_reason="stop")
    _, two = page_of(home, ALL, live="run_1").turns
    assert not two.run_id


def test_memory_is_that_of_a_page(tmp_path: Path) -> None:
    """Three times as many messages, the same memory."""
    peaks = []
    for count in (3_000, 9_000):
        home = Home(tmp_path / f"{count}")
        home.session("s1", KEY)
        _many(home, count)
        tracemalloc.start()
        place = None
        for _ in range(5):
            place = page_of(home, Wanted(100, 64 * 1024, full=False), place).following
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 2, peaks  # three times it were, if it grew


def _many(home: Home, count: int) -> None:
    with closing(sqlite3.connect(home.path)) as line, line:
        line.executemany(
            """INSERT INTO messages (session_id, role, content, timestamp, finish_reason)
            VALUES ('s1', ?, ?, ?, 'stop')""",
            [("assistant" if n % 2 else "user", "m" * 400, float(n)) for n in range(count)],
        )
