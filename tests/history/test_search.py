"""Search over Hermes' index, and over the messages where the index cannot help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loomid import hermesdb
from loomid.errors import BadQuery
from loomid.lmp import query
from loomid.search import Found, Result, search
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from loomid.hermesdb import Reader

KEY = "agent:main:loomi:dm:c1"
END = 2**62


def look(home: Home, text: str, before: int = END, limit: int = 20) -> Result:
    wanted = query.parse(text)

    def work(reader: Reader) -> Result:
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
    assert found.name == KEY


def test_without_an_index_the_messages_are_looked_through(told: Home) -> None:
    told.run("DROP TABLE messages_fts")
    assert said(told, "brown") == [1]
    assert said(told, "brown -fox") == []


def test_a_damaged_index_is_no_damaged_database(told: Home) -> None:
    told.run("DELETE FROM messages_fts_data")
    assert said(told, "brown") == [1]


def test_a_long_text_is_shown_around_what_was_found(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", "字" * 5_000 + "针线" + "尾" * 5_000)
    (found,) = look(home, "针线").found
    assert len(found.snippet) < 300
    assert marked(found) == ["针线"]


def test_marks_of_ours_in_a_message_do_no_harm(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", f"{query.CLOSES}odd{query.OPENS} needle {query.OPENS}")
    (found,) = look(home, "needle").found
    assert "needle" in marked(found)
