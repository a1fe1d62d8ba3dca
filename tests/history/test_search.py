"""Search over Hermes' index, and over the messages where the index cannot help."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loomid import hermesdb, lineage
from loomid.errors import BadQuery, GatewayError
from loomid.lmp import query
from loomid.search import Found, Hits, merged, search
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from loomid.hermesdb import Reader

KEY = "agent:main:loomi:dm:c1"
END = lineage.END
Hit = tuple[str, int, float]
"""Gateway, number, time."""


def look(home: Home, text: str, before: int = END, limit: int = 20) -> Hits:
    wanted = query.parse(text)

    def work(reader: Reader) -> Hits:
        return search(reader, wanted, before, limit)

    return hermesdb.read(home.folder, work)


def marked(found: Found) -> list[str]:
    """What of the snippet is highlighted."""
    return [found.snippet[start:end] for start, end in found.highlights]


def said(home: Home, text: str) -> list[int]:
    return [found.id for found in look(home, text).found]


@pytest.fixture
def told(home: Home) -> Home:
    """Five messages, the numbers 1 to 5."""
    home.session("s1", KEY, title="A title")
    home.message("user", "the quick brown fox")
    home.message("assistant", "a lazy dog's quickness", finish_reason="stop")
    home.message("user", "北京大学的天气预报 today")
    home.message("user", [{"type": "text", "text": "a picture of a walrus"}])
    home.message("tool", "quick output", tool_name="terminal")
    return home


def test_words(told: Home) -> None:
    assert said(told, "quick") == [1]
    assert said(told, "QUICK fox") == [1]
    assert said(told, "quick dog") == []
    assert said(told, "quick*") == [2, 1]
    assert said(told, "fox OR dog") == [2, 1]
    assert said(told, '"brown fox"') == [1]
    assert said(told, '"fox brown"') == []
    assert said(told, "quick* -fox") == [2]
    assert said(told, "dog's") == [2]


def test_what_is_told_of_a_message(told: Home) -> None:
    (found,) = look(told, "brown").found
    assert (found.name, found.title, found.role, found.session_id) == (KEY, "A title", "user", "s1")
    assert found.snippet == "the quick brown fox"
    assert marked(found) == ["brown"]


def test_scripts_without_spaces(told: Home) -> None:
    assert said(told, "大学的") == [3]
    assert said(told, "大学") == [3]  # too short for the index
    assert said(told, "天气 OR nothing") == [3]
    assert said(told, "天气 -today") == []
    for text in ("大学的", "大学"):
        (found,) = look(told, text).found
        assert marked(found) == [text]


def test_messages_that_came_with_something(told: Home) -> None:
    (found,) = look(told, "walrus").found
    assert found.snippet == "a picture of a walrus"
    assert marked(found) == ["walrus"]


@pytest.mark.parametrize(
    "text",
    [
        '"brown',
        'brown"',
        "brown OR",
        "OR brown",
        "brown AND",
        "(brown)",
        "brown^",
        "content:brown",
        "brown NEAR",
        "*brown",
        "-- brown",
    ],
)
def test_what_is_no_syntax_is_words(told: Home, text: str) -> None:
    assert look(told, text).found == [] or said(told, text) == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("!!! ??", "empty"),
        ("-fox", "only_exclusions"),
        ("x" * 501, "too_long"),
        ("OR", "empty"),
        ('""', "empty"),
    ],
)
def test_nothing_to_look_for(text: str, reason: str) -> None:
    with pytest.raises(BadQuery) as caught:
        query.parse(text)
    assert caught.value.params["reason"] == reason


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.text(st.sampled_from("ab\"*-()^:{}+OR AND NOT NEAR\x00大学、,%_\\'é"), max_size=30))
def test_no_query_is_an_error_of_the_index(told: Home, text: str) -> None:
    try:
        query.parse(text)
    except BadQuery:
        return
    for found in look(told, text).found:
        assert all(0 <= start < end <= len(found.snippet) for start, end in found.highlights)


def test_pages_are_the_whole(home: Home) -> None:
    home.session("s1", KEY)
    numbers = [home.message("user", f"needle 针线活 {n}") for n in range(7)]
    for text in ("needle", "针线活", "针线"):
        found: list[int] = []
        before: int | None = END
        while before is not None:
            page = look(home, text, before, limit=3)
            found += [one.id for one in page.found]
            before = page.before
        assert found == numbers[::-1], text


class Many:
    """The databases of several gateways, searched page by page."""

    def __init__(self, folder: Path, said: list[list[float]]) -> None:
        """`said`: for each database when each of its messages was said."""
        self.homes = {f"gw{number}": Home(folder / f"{number}") for number in range(len(said))}
        for home, times in zip(self.homes.values(), said, strict=True):
            home.session("s1", KEY)
            for ts in times:
                home.message("user", "needle", timestamp=ts)

    def page(self, places: dict[str, int], limit: int) -> tuple[list[Hit], dict[str, int]]:
        results = {
            name: look(self.homes[name], "needle", place, limit) for name, place in places.items()
        }
        hits, rest = merged(results, limit)
        assert len(hits) <= limit
        return [(name, found.id, found.ts) for name, found in hits], rest

    def pages(self, limits: Iterator[int]) -> list[Hit]:
        """All hits, page after page of these sizes."""
        places, found = dict.fromkeys(self.homes, END), []
        while places:
            hits, places = self.page(places, next(limits))
            found += hits
        return found


times = st.lists(st.integers(1, 9).map(float), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(times, max_size=4), st.lists(st.integers(1, 7), min_size=1), st.booleans())
def test_pages_over_several_databases_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory, said: list[list[float]], sizes: list[int], sane: bool
) -> None:
    """Each hit once, in an order that no page size changes: by time, and those of one database
    by number whatever its clock said."""
    if sane:
        said = [sorted(times) for times in said]
    many = Many(tmp_path_factory.mktemp("many"), said)
    found = many.pages(itertools.cycle(sizes))
    assert found == many.pages(itertools.repeat(100))
    for name, times in zip(many.homes, said, strict=True):
        numbers = [number for gateway, number, _ in found if gateway == name]
        assert numbers == [*range(len(times), 0, -1)]
    if sane:
        assert [ts for *_, ts in found] == sorted((t for ts in said for t in ts), reverse=True)


def test_what_is_said_between_two_pages_is_on_none(tmp_path: Path) -> None:
    many = Many(tmp_path, [[3.0, 9.0], [1.0, 2.0]])
    places = dict.fromkeys(many.homes, END)
    hits, places = many.page(places, 1)
    assert hits == [("gw0", 2, 9.0)]
    for home in many.homes.values():
        home.message("user", "needle", timestamp=10.0)
    hits, _ = many.page(places, 9)
    assert hits == [("gw0", 1, 3.0), ("gw1", 2, 2.0), ("gw1", 1, 1.0)]


def test_what_is_no_part_of_the_conversation_is_not_found(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", "needle", active=0)
    home.message("session_meta", "needle")
    home.session("s2", None, parent_session_id="s1")
    home.message("user", "needle in a helper", "s2")
    assert said(home, "needle") == []


def test_a_copy_is_found_once(home: Home) -> None:
    home.session("s1", KEY, end_reason="compression")
    home.message("user", "needle")
    home.session("s2", None, parent_session_id="s1")
    home.copy("s1", "s2", keep_time=True)
    (found,) = look(home, "needle").found
    assert (found.name, found.session_id) == (KEY, "s1")


@pytest.mark.parametrize("limit", [1, 2, 20])
def test_a_copy_on_another_page_is_none_the_less_one(home: Home, limit: int) -> None:
    """A branch in the same chat, and what was compressed in place; one in another chat is its
    own task."""
    home.session("s1", KEY)
    numbers = [home.message("user", f"needle {n}") for n in range(3)]
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    numbers.append(home.message("user", "needle", "s2"))
    home.run("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = 's2'")
    home.copy("s2", "s2", keep_time=True)
    home.run("UPDATE messages SET active = 1, compacted = 0 WHERE id > ?", numbers[-1])
    home.session("s3", KEY + "x", parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s3", keep_time=False)
    found: list[Found] = []
    before: int | None = END
    while before is not None:
        page = look(home, "needle", before, limit)
        found += page.found
        before = page.before
    assert [one.id for one in found if one.name == KEY] == numbers[::-1]
    assert len([one for one in found if one.name == KEY + "x"]) == 3


def asked(home: Home, sessions: int, *, keys: bool) -> int:
    """How many statements a page takes whose hits are in so many sessions of one task."""
    statements: list[str] = []
    for number in range(sessions):
        above = {"parent_session_id": f"s{number - 1}"} if number else {}
        key = KEY if keys or not number else None
        home.session(f"s{number}", key, end_reason="compression", **above)
        home.message("user", f"needle {number}", f"s{number}")

    def work(reader: Reader) -> list[Found]:
        reader._line.set_trace_callback(statements.append)
        return search(reader, query.parse("needle"), END, 100).found

    found = hermesdb.read(home.folder, work)
    assert [(one.session_id, one.name) for one in found] == [
        (f"s{number}", KEY) for number in reversed(range(sessions))
    ]
    return len(statements)


@pytest.mark.parametrize("keys", [True, False])
def test_a_task_of_many_sessions_is_looked_through_once(tmp_path: Path, keys: bool) -> None:
    few = asked(Home(tmp_path / "few"), 20, keys=keys)
    many = asked(Home(tmp_path / "many"), 80, keys=keys)
    assert many < 5 * few, "sixteen times it were, for each hit anew"


def test_a_busy_database_is_not_taken_for_one_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hermes has it locked while the index is asked, and no longer."""
    monkeypatch.setattr(hermesdb, "BUSY_S", 0.05)
    home = Home(tmp_path / "hermes")
    home.session("s1", KEY)
    home.message("user", "needle")

    def work(reader: Reader) -> Hits:
        with closing(sqlite3.connect(home.path, isolation_level=None)) as hermes:

            def lock(statement: str) -> None:
                if "MATCH" in statement and not hermes.in_transaction:
                    hermes.execute("BEGIN EXCLUSIVE")
                elif "MATCH" not in statement and hermes.in_transaction:
                    hermes.rollback()

            reader._line.set_trace_callback(lock)
            return search(reader, query.parse("needle"), END, 20)

    with pytest.raises(GatewayError) as caught:
        hermesdb.read(home.folder, work)
    assert caught.value.params == {"reason": "database_busy"}


def test_without_an_index_the_messages_are_looked_through(told: Home) -> None:
    told.run("DROP TABLE messages_fts")
    assert said(told, "brown") == [1]
    assert said(told, "brown -fox") == []


def test_a_damaged_index_is_no_damaged_database(told: Home) -> None:
    told.run("DELETE FROM messages_fts_data")
    assert said(told, "brown") == [1]


@pytest.mark.parametrize("word", ["针", "针线", "针线活", "ผ้า", "ผ้าไหม", "ﾊﾘ"])
def test_a_long_text_is_shown_around_what_was_found(home: Home, word: str) -> None:
    """Words of one character and more, in the midst of scripts without spaces."""
    home.session("s1", KEY)
    home.message("user", "字" * 5_000 + word + "尾" * 5_000)
    home.message("user", "another")
    (found,) = look(home, word).found
    assert len(found.snippet) < 200
    assert marked(found) == [word]


def test_a_snippet_of_long_words_is_short(home: Home) -> None:
    """The index counts words, and a word may be a megabyte."""
    home.session("s1", KEY, title="t" * 10_000)
    home.message("user", f"{'x' * 10**6} \x00 needle {'y' * 10**6}")
    (found,) = look(home, "needle").found
    assert len(found.snippet) < 200
    assert len(found.title) < 200
    assert marked(found) == ["needle"]


def test_marks_of_ours_in_a_message_do_no_harm(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", f"{query.CLOSES}odd{query.OPENS} needle {query.OPENS}")
    (found,) = look(home, "needle").found
    assert "needle" in marked(found)
