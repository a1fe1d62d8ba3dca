"""Sessions of one task: /new, /resume, branches and compressions read as one conversation."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from loomid import hermesdb, lineage, pages, stats
from loomid.lmp import query
from loomid.lmp.history_frames import HistoryTurn
from loomid.pages import Wanted
from loomid.search import search
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from loomid.hermesdb import Reader

KEY = "agent:main:loomi:dm:c1"
SUMMARY = (
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below."
)
WANTED = Wanted(1_000, 1_000_000, full=False)


def turns(home: Home, key: str | None, session: str) -> list[HistoryTurn]:
    def work(reader: Reader) -> list[HistoryTurn]:
        sessions = lineage.of_task(reader, key, session)
        return pages.read(reader, sessions, None, WANTED, lambda s, n: f"{s}/{n}", None).turns

    return hermesdb.read(home.folder, work)


def prompts(home: Home, key: str | None, session: str) -> list[object]:
    return [turn.prompt for turn in turns(home, key, session)]


def name(home: Home, session: str) -> str | None:
    def work(reader: Reader) -> str | None:
        columns = lineage.selected(reader)
        (row,) = reader.rows(f"SELECT {columns} FROM sessions WHERE id = ?", session)
        return lineage.root(reader, row, session, {})

    return hermesdb.read(home.folder, work)


def test_a_key_goes_on_under_another_session(home: Home) -> None:
    home.say("one", session=home.session("s1", KEY))
    home.say("other", session=home.session("s2", KEY + "x"))
    home.say("two", session=home.session("s3", KEY))
    assert prompts(home, KEY, "s3") == ["one", "two"]
    assert prompts(home, KEY, "") == ["one", "two"]


def test_a_session_that_a_key_was_pointed_at(home: Home) -> None:
    """/resume continues a session of the command line on the phone."""
    home.say("on the terminal", session=home.session("cli", None))
    home.say("hi", session=home.session("s1", KEY))
    assert prompts(home, KEY, "cli") == ["on the terminal", "hi"]
    assert name(home, "cli") == "cli"


def test_a_chain_of_compressions(home: Home) -> None:
    """The new session begins with the first messages, a summary and the newest messages."""
    home.session("s1", KEY)
    home.say("one")
    home.say("two")
    home.say("three")
    home.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 's1'")
    home.session("s2", None, parent_session_id="s1")
    home.copy("s1", "s2", keep_time=False, last=100)
    home.run("DELETE FROM messages WHERE session_id = 's2' AND content = 'two'")
    home.message("user", SUMMARY, "s2")
    home.copy("s1", "s2", keep_time=True, last=2)
    home.say("four", session="s2")
    assert prompts(home, KEY, "s2") == ["one", "two", "three", "four"]
    assert prompts(home, None, "s2") == ["one", "two", "three", "four"]
    assert prompts(home, None, "s1") == ["one", "two", "three", "four"]
    assert name(home, "s2") == KEY


@pytest.mark.parametrize("messages", [1, 3, 100])
def test_a_turn_that_is_compressed_in_its_midst_is_one(home: Home, messages: int) -> None:
    """With the ids that it had live: its rounds are counted on in the new session."""
    home.session("s1", KEY)
    home.say("one")
    home.message("user", "two")
    home.use("terminal", {"command": "ls"}, "a", text="first")
    home.run("UPDATE sessions SET end_reason = 'compression' WHERE id = 's1'")
    home.session("s2", KEY, parent_session_id="s1")
    home.message("user", SUMMARY, "s2")
    home.copy("s1", "s2", keep_time=True, last=3)
    home.use("terminal", {"command": "pwd"}, "b", "s2")
    home.message("assistant", "done", "s2", finish_reason="stop")

    def work(reader: Reader) -> list[HistoryTurn]:
        sessions, found, place = lineage.of_task(reader, KEY, "s2"), [], None
        while True:
            wanted = Wanted(messages, 10**6, full=False)
            page = pages.read(reader, sessions, place, wanted, _name, None)
            found[:0] = page.turns
            if (place := page.following) is None:
                return found

    one, two = hermesdb.read(home.folder, work)
    assert (one.prompt, two.prompt, two.status) == ("one", "two", "completed")
    kinds = [part.part if part.kind != "tool" else part.preview for part in two.parts]
    assert kinds == ["text:0", "ls", "pwd", "text:2"]
    home.say("three", session=home.session("s3", KEY))
    assert prompts(home, KEY, "s3") == ["one", "two", "three"]


def test_a_chain_without_a_key_is_named_by_its_first(home: Home) -> None:
    home.say("one", session=home.session("s1", None, end_reason="compression"))
    home.say(
        "two", session=home.session("s2", None, parent_session_id="s1", end_reason="compression")
    )
    home.say("three", session=home.session("s3", None, parent_session_id="s2"))
    assert [name(home, session) for session in ("s1", "s2", "s3")] == ["s1"] * 3
    assert prompts(home, None, "s1") == prompts(home, None, "s3") == ["one", "two", "three"]


def compress(home: Home, first: int, last: int) -> None:
    """As Hermes does it in place: all is put away; then come copies of the first messages, a
    summary, and copies of the last."""
    home.run("CREATE TABLE kept AS SELECT * FROM messages WHERE active = 1")
    home.run("UPDATE messages SET active = 0, compacted = 1 WHERE active = 1")
    _again(home, f"ORDER BY id LIMIT {first}")
    home.message("user", SUMMARY)
    _again(home, f"WHERE id IN (SELECT id FROM kept ORDER BY id DESC LIMIT {last}) ORDER BY id")
    home.run("DROP TABLE kept")


def _again(home: Home, which: str) -> None:
    names = "session_id, role, content, tool_call_id, tool_calls, tool_name, timestamp"
    names += ", finish_reason"
    home.run(f"INSERT INTO messages ({names}) SELECT {names} FROM kept {which}")


def test_what_was_compressed_in_place_is_told_as_it_was(home: Home) -> None:
    home.session("s1", KEY)
    for text in ("one", "two", "three", "four"):
        home.say(text)
    home.message("user", "five")
    home.use("terminal", {"command": "ls"}, "a long list")
    compress(home, 2, 3)
    home.run("UPDATE messages SET content = '[cleared]' WHERE role = 'tool' AND active = 1")
    home.message("assistant", "done", finish_reason="stop")
    home.say("six")
    compress(home, 2, 4)
    home.say("seven")
    found = turns(home, KEY, "s1")
    assert [turn.prompt for turn in found] == [
        *("one", "two", "three", "four", "five", "six", "seven")
    ]
    assert [part.result for part in found[4].parts if part.kind == "tool"] == ["a long list"]
    assert all(turn.status == "completed" for turn in found)


def test_a_message_that_the_summary_was_put_behind_is_told_once(home: Home) -> None:
    """What a user writes in such words is told."""
    home.session("s1", KEY)
    for text in ("one", "two", "three"):
        home.say(text)
    compress(home, 2, 3)
    merged = "[PRIOR CONTEXT — for reference only; not a new message]\n"
    home.run(
        f"""UPDATE messages SET content = '{merged}' || content || ? WHERE id =
        (SELECT max(id) FROM messages WHERE role = 'assistant' AND active = 1) - 2""",
        f"\n\n[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{SUMMARY}",
    )
    home.say(f"{merged}four")
    found = turns(home, KEY, "s1")
    assert [turn.prompt for turn in found] == ["one", "two", "three", f"{merged}four"]
    assert [part.text for turn in found for part in turn.parts] == ["ok"] * 4


def test_a_summary_of_what_is_gone_is_told(home: Home) -> None:
    home.session("s1", KEY)
    home.message("user", SUMMARY)
    home.say("two")
    summary, turn = turns(home, KEY, "s1")
    assert (summary.summary, summary.partial is True) == (True, False)
    assert [part.text for part in summary.parts] == [SUMMARY]
    assert turn.prompt == "two"


def test_what_is_said_twice_is_told_twice(home: Home) -> None:
    """In a session that was compressed: only copies are left out."""
    home.session("s1", KEY)
    home.say("yes")
    compress(home, 1, 1)
    home.say("yes")
    home.say("yes")
    assert prompts(home, KEY, "s1") == ["yes"] * 3


def test_a_branch_of_the_same_chat_is_not_told_twice(home: Home) -> None:
    home.session("s1", KEY)
    home.say("one")
    home.say("two")
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    home.say("three", session="s2")
    assert prompts(home, KEY, "s2") == ["one", "two", "three"]


def test_a_branch_of_another_chat_has_what_it_began_with(home: Home) -> None:
    home.session("s1", KEY)
    home.say("one")
    home.session("s2", KEY + "x", parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    home.say("later", session="s1")
    home.say("two", session="s2")
    assert prompts(home, KEY + "x", "s2") == ["one", "two"]
    assert prompts(home, KEY, "s1") == ["one", "later"]


def test_what_both_say_later_is_the_own_of_each(home: Home) -> None:
    """History, search and figures agree about it, though the texts are the same."""
    home.session("s1", KEY)
    home.say("one")
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    home.message("user", "needle please", after=3_600.0)
    home.message("user", "needle please", "s2", after=3_600.0)
    assert prompts(home, KEY, "s2") == ["one", "needle please", "needle please"]

    def work(reader: Reader) -> tuple[list[str], int]:
        found = search(reader, query.parse("needle"), lineage.END, 20).found
        figures = stats.of_sessions(reader, lineage.of_task(reader, KEY, "s2"), KEY)
        return [one.session_id for one in found], figures["messages"]

    assert hermesdb.read(home.folder, work) == (["s2", "s1"], 4)


@pytest.mark.parametrize("keep_time", [True, False])
def test_what_is_said_again_after_a_branch_is_its_own(home: Home, *, keep_time: bool) -> None:
    """Also when what it was made from says it again, too."""
    home.session("s1", KEY)
    for text in ("hi", "how are you", "hi"):
        home.say(text)
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=keep_time)
    home.say("hi", session="s2")
    home.say("hi", session="s1", after=60.0)
    home.say("how are you", session="s2")
    said = ["hi", "how are you", "hi", "hi", "hi", "how are you"]
    assert prompts(home, KEY, "s2") == said


def test_a_branch_that_nothing_was_added_to(home: Home) -> None:
    home.session("s1", KEY)
    home.say("one")
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    assert prompts(home, KEY, "s2") == ["one"]


def statements(home: Home, messages: int) -> list[str]:
    """What the newest page of so many messages asks the database."""
    asked: list[str] = []

    def work(reader: Reader) -> None:
        sessions = lineage.of_task(reader, KEY, "s2")
        reader._line.set_trace_callback(asked.append)
        pages.read(reader, sessions, None, Wanted(messages, 10**6, full=False), _name, None)

    hermesdb.read(home.folder, work)
    return asked


def _name(session_id: str, number: int) -> str:
    return f"{session_id}/{number}"


def test_a_page_of_a_branch_does_not_look_at_what_it_was_made_from(home: Home) -> None:
    """Unless it comes to where that ends; then all is there once."""
    home.session("s1", KEY)
    for number in range(20):
        home.say(f"{number}")
    home.session("s2", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    home.copy("s1", "s2", keep_time=False)
    home.say("soon", session="s2")
    home.message("user", "later", "s2", after=3_600.0)
    home.message("assistant", "ok", "s2", finish_reason="stop")
    for number in range(100):
        home.say(f"at last {number}", session="s2")
    assert not [one for one in statements(home, 50) if "'s1'" in one]
    assert [one for one in statements(home, 500) if "'s1'" in one]
    assert prompts(home, KEY, "s2") == [
        *(f"{number}" for number in range(20)),
        *("soon", "later"),
        *(f"at last {number}" for number in range(100)),
    ]


def test_memory_does_not_grow_with_what_a_session_was_made_from(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 8_000):
        home = Home(tmp_path / f"{count}")
        home.session("s1", KEY)
        home.run(
            """INSERT INTO messages (session_id, role, content, timestamp)
            WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT ?)
            SELECT 's1', 'user', 'message ' || n, n FROM n""",
            count,
        )
        home.session("s2", KEY, parent_session_id="s1", end_reason="compression")
        home.say("own", session="s2")

        def work(reader: Reader) -> int:
            newest, _ = lineage.of_task(reader, KEY, "s2")
            return lineage.own(reader, newest)

        tracemalloc.start()
        assert hermesdb.read(home.folder, work) == count + 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 2, peaks  # four times it were, if it grew


def test_helpers_are_no_part_of_it(home: Home) -> None:
    home.session("s1", KEY, end_reason="compression")
    home.say("one")
    home.session("s2", None, parent_session_id="s1", model_config={"_delegate_from": "s1"})
    home.say("do this", session="s2")
    assert prompts(home, KEY, "s1") == ["one"]
    assert name(home, "s2") is None
    home.run("UPDATE sessions SET end_reason = NULL WHERE id = 's1'")
    home.say("help", session=home.session("s3", None, parent_session_id="s1"))
    assert name(home, "s3") is None


def test_sessions_that_are_each_others_parents_come_to_an_end(home: Home) -> None:
    home.session("s1", None, end_reason="compression")
    home.session("s2", None, parent_session_id="s1", end_reason="compression")
    home.run("UPDATE sessions SET parent_session_id = 's2' WHERE id = 's1'")
    home.say("one")
    assert prompts(home, None, "s2") == ["one"]
    assert name(home, "s2") is None


def test_a_session_that_is_gone(home: Home) -> None:
    assert prompts(home, KEY, "gone") == []
