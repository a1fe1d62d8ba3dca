"""task.history, task.search, task.stats as phones ask them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from loomid import hermesdb
from loomid.history import History
from loomid.lmp.history_frames import LEAST_BYTES, TaskSearch
from tests.support.answering import LIMITS, PHONE, Host, Side, key_of, until
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = key_of("c1")


@pytest.fixture
def hermes(tmp_path: Path) -> Home:
    """What the gateway has on its disk: one conversation of three turns, and another."""
    home = Home(tmp_path / "hermes")
    home.session("s1", KEY, title="Photos", model="m", input_tokens=70, cache_read_tokens=30)
    home.run("UPDATE sessions SET output_tokens = 5, api_call_count = 3, tool_call_count = 1")
    for text in ("one", "two", "three"):
        home.say(text, f"{text} done")
    home.say("elsewhere", session=home.session("s2", key_of("c2")))
    return home


@pytest.fixture
async def host(side: Side, tmp_path: Path, hermes: Home) -> AsyncIterator[Host]:
    made = Host(tmp_path / "h.sock", home=str(hermes.folder))
    made.sessions = [row("s1", "c1"), row("s2", "c2")]
    yield await side.online(made)
    made.link.stop(0.1)


def row(session: str, chat: str) -> dict[str, Any]:
    return {
        "id": session,
        "session_key": key_of(chat),
        "source": "loomi",
        "started_at": 1_000.0,
        "last_active": 1_007.0,
    }


async def test_a_page_of_history(side: Side, host: Host) -> None:
    task = side.task_id(KEY)
    answer = await side.ask("task.history", task_id=task, max_messages=4, request_id="r1")
    assert (answer["request_id"], answer["task_id"]) == ("r1", task)
    two, three = answer["turns"]
    assert three == {
        "turn_id": three["turn_id"],
        "session_id": "s1",
        "started_at": three["started_at"],
        "ended_at": three["started_at"] + 1.0,
        "prompt": "three",
        "parts": [{"part": "text:0", "kind": "text", "text": "three done"}],
        "status": "completed",
        "finished": True,
    }
    rest = await side.ask("task.history", task_id=task, before=answer["next_before"])
    assert [turn["prompt"] for turn in rest["turns"]] == ["one"]
    assert "next_before" not in rest
    again = await side.ask("task.history", task_id=task)
    assert [turn["turn_id"] for turn in again["turns"]][1:] == [two["turn_id"], three["turn_id"]]


async def test_a_cursor_is_good_for_its_task_alone(side: Side, host: Host) -> None:
    task, other = side.task_id(KEY), side.task_id(key_of("c2"))
    answer = await side.ask("task.history", task_id=task, max_messages=2)
    cursor = answer["next_before"]
    error = await side.refused("task.history", task_id=other, before=cursor)
    assert error.code == "bad_cursor"
    flipped = ("B" if cursor[-1] != "B" else "C") + cursor[1:]
    for odd in ("", "x", "é", cursor[:-2], flipped, cursor + "A", "!" * 40):
        error = await side.refused("task.history", task_id=task, before=odd)
        assert error.code == "bad_cursor", odd
    error = await side.refused("task.search", query="one", cursor=cursor)
    assert error.code == "bad_cursor"


async def test_cursors_outlive_a_restart(tmp_path: Path, hermes: Home) -> None:
    """Both of one task and of a search, and the ids that came with them."""
    host, pages = Host(tmp_path / "h.sock", home=str(hermes.folder)), []
    host.sessions = [row("s1", "c1"), row("s2", "c2")]
    cursors: list[dict[str, Any]] = [{}, {}]
    try:
        for _ in range(2):
            async with Side(tmp_path) as side:
                await side.online(host)
                task = side.task_id(KEY)
                answers = [
                    await side.ask("task.history", task_id=task, max_messages=2, **cursors[0]),
                    await side.ask("task.search", query="done", limit=1, **cursors[1]),
                ]
            cursors = [{"before": answers[0]["next_before"]}, {"cursor": answers[1]["next_cursor"]}]
            pages.append((answers[0]["turns"][0]["prompt"], answers[1]["hits"][0]["snippet"]))
    finally:
        host.link.stop(0.1)
    assert pages == [("three", "three done"), ("two", "two done")]


async def test_a_page_is_never_above_the_frame_limit(side: Side, host: Host, hermes: Home) -> None:
    hermes.message("user", "big")
    hermes.message("assistant", "€" * LIMITS.max_frame_bytes, finish_reason="stop")
    answer = await side.ask("task.history", task_id=side.task_id(KEY), max_bytes=10**12)
    (turn,) = answer["turns"]
    assert turn["parts"][0]["truncated"] is True
    assert LIMITS.max_frame_bytes // 4 < len(str(answer).encode()) < LIMITS.max_frame_bytes


async def test_the_newest_turn_of_a_live_run_says_so(side: Side, host: Host, hermes: Home) -> None:
    host.start_turn("t1", "c1")
    run_id = await side.run_begun("t1")
    hermes.message("user", "hi")
    answer = await side.ask("task.history", task_id=side.task_id(KEY))
    turn = answer["turns"][-1]
    assert (turn["prompt"], turn["run_id"], turn["partial"]) == ("hi", run_id, True)


async def test_what_cannot_be_told(side: Side, host: Host, hermes: Home) -> None:
    for type_ in ("task.history", "task.stats"):
        assert (await side.refused(type_, task_id="task_none")).code == "unknown_task"
    hermes.path.unlink()
    for type_, asked in (
        ("task.history", {"task_id": side.task_id(KEY)}),
        ("task.stats", {"task_id": side.task_id(KEY)}),
        ("task.search", {"query": "one"}),
    ):
        error = await side.refused(type_, **asked)
        assert (error.code, error.params) == ("gateway_error", {"reason": "no_database"})


async def test_a_gateway_of_another_machine(side: Side, tmp_path: Path, hermes: Home) -> None:
    far = Host(tmp_path / "h.sock", stat="1 (python) S " + "0 " * 30, home=str(hermes.folder))
    far.sessions = [row("s1", "c1")]
    await side.online(far)
    try:
        for type_, asked in (
            ("task.history", {"task_id": side.task_id(KEY)}),
            ("task.search", {"query": "one"}),
        ):
            error = await side.refused(type_, **asked)
            assert (error.code, error.params) == ("not_permitted", {"reason": "no_database"})
    finally:
        far.link.stop(0.1)


async def test_history_is_there_while_the_gateway_is_away(side: Side, host: Host) -> None:
    task = side.task_id(KEY)
    await side.ask("task.list")
    host.link.stop(1.0)
    await until(lambda: side.gateways.boot_of("gw1") is None)
    answer = await side.ask("task.history", task_id=task)
    assert len(answer["turns"]) == 3


async def test_search(side: Side, host: Host) -> None:
    answer = await side.ask("task.search", query="done", limit=2, request_id="r1")
    assert answer["request_id"] == "r1"
    assert [hit["snippet"] for hit in answer["hits"]] == ["three done", "two done"]
    hit = answer["hits"][0]
    assert (hit["task_id"], hit["title"], hit["role"]) == (side.task_id(KEY), "Photos", "assistant")
    assert hit["highlights"] == [[6, 10]]
    rest = await side.ask("task.search", query="done", cursor=answer["next_cursor"])
    assert [hit["snippet"] for hit in rest["hits"]] == ["one done"]
    assert "next_cursor" not in rest
    error = await side.refused("task.search", query="two", cursor=answer["next_cursor"])
    assert error.code == "bad_cursor"
    error = await side.refused("task.search", query="-done")
    assert (error.code, error.params) == ("bad_query", {"reason": "only_exclusions"})


async def test_search_over_two_gateways(
    side: Side, host: Host, hermes: Home, tmp_path: Path
) -> None:
    far = Home(tmp_path / "far")
    far.session("s9", KEY)
    for number in range(6):
        far.message("user", f"far done {number}", "s9", after=0.7)
    other = await side.online(Host(tmp_path / "h.sock", "gw2", "boot2", home=str(far.folder)))
    try:
        found: list[tuple[float, str]] = []
        cursor = None
        while True:
            answer = await side.ask("task.search", query="done", limit=2, cursor=cursor)
            found += [(hit["ts"], hit["snippet"]) for hit in answer["hits"]]
            cursor = answer.get("next_cursor")
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 9
        assert found == sorted(found, reverse=True)
    finally:
        other.link.stop(0.1)


async def test_a_busy_database_keeps_its_place(
    side: Side, host: Host, hermes: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has comes when it can be read again; alone it is an error, and the same cursor is
    good after it."""
    monkeypatch.setattr(hermesdb, "BUSY_S", 0.05)
    far = Home(tmp_path / "far")
    far.message("user", "far done", far.session("s9", KEY))
    other = await side.online(Host(tmp_path / "h.sock", "gw2", "boot2", home=str(far.folder)))
    try:
        with closing(sqlite3.connect(hermes.path)) as line:
            line.execute("BEGIN EXCLUSIVE")
            answer = await side.ask("task.search", query="done", limit=2)
            assert [hit["snippet"] for hit in answer["hits"]] == ["far done"]
            assert answer["incomplete"] is True
            cursor = answer["next_cursor"]
            error = await side.refused("task.search", query="done", cursor=cursor)
            assert (error.code, error.params) == ("gateway_error", {"reason": "database_busy"})
        answer = await side.ask("task.search", query="done", cursor=cursor)
        snippets = [hit["snippet"] for hit in answer["hits"]]
        assert snippets == ["three done", "two done", "one done"]
        assert "incomplete" not in answer
    finally:
        other.link.stop(0.1)


async def test_a_database_that_is_gone_is_told_and_not_waited_for(
    side: Side, host: Host, hermes: Home, tmp_path: Path
) -> None:
    far = Home(tmp_path / "far")
    other = await side.online(Host(tmp_path / "h.sock", "gw2", "boot2", home=str(far.folder)))
    far.path.unlink()
    try:
        answer = await side.ask("task.search", query="done")
        assert (len(answer["hits"]), answer["incomplete"]) == (3, True)
        assert "next_cursor" not in answer
    finally:
        other.link.stop(0.1)


async def test_a_cursor_of_many_gateways(side: Side, tmp_path: Path) -> None:
    """What we hand out we take back, however many places are in it."""
    hosts, count = [], 12
    try:
        for number in range(count):
            home = Home(tmp_path / f"{number}")
            home.message("user", f"needle {number}", home.session("s1", KEY))
            name = f"gw{number:0120}"
            hosts.append(Host(tmp_path / "h.sock", name, f"b{number}", home=str(home.folder)))
            await side.online(hosts[-1])
        found, cursor = set(), None
        for _ in range(count):
            answer = await side.ask("task.search", query="needle", limit=1, cursor=cursor)
            found |= {hit["snippet"] for hit in answer["hits"]}
            cursor = answer.get("next_cursor")
        assert (len(found), cursor) == (count, None)
    finally:
        for host in hosts:
            host.link.stop(0.1)


async def test_hits_are_never_above_the_frame_limit(side: Side, host: Host, hermes: Home) -> None:
    hermes.session("s3", KEY, title="\x01" * 5_000)
    for _ in range(100):
        hermes.message("user", "\x01" * 50 + "q " * 200, "s3")
    made = History(
        *(side.commands.tasks, side.gateways, side.log.projection, side.key),
        2**14,
        side.files.sent,
        side.commands.controls,
    )
    with closing(made) as history:
        answer = await history.search(PHONE, TaskSearch(query="q", limit=100))
    assert 0 < len(msgspec.json.encode(answer)) < 2**14
    assert answer.next_cursor


async def test_an_index_that_cannot_be_asked_is_told_once(
    side: Side, host: Host, hermes: Home, caplog: pytest.LogCaptureFixture
) -> None:
    """Each search reads all messages then; what was looked for is nobody's business."""
    hermes.run("DELETE FROM messages_fts_data")
    for word in ("elsewhere", "three"):
        assert (await side.ask("task.search", query=word))["hits"]
    (told,) = [each.getMessage() for each in caplog.records if each.name == "loomid.history"]
    assert str(hermes.folder) in told
    assert "SQLITE_CORRUPT" in told
    assert not any(word in caplog.text for word in ("elsewhere", "three"))


async def test_figures(side: Side, host: Host, hermes: Home) -> None:
    answer = await side.ask("task.stats", task_id=side.task_id(KEY), request_id="r1")
    assert answer == {
        "task_id": side.task_id(KEY),
        "request_id": "r1",
        "sessions": 1,
        "messages": 6,
        "started_at": 1_001.0,
        "active_at": 1_007.0,
        "model": "m",
        "input_tokens": 100,
        "output_tokens": 5,
        "cached_tokens": 30,
        "reasoning_tokens": 0,
        "calls": 3,
        "tool_calls": 1,
        "duration": 5.0,
    }
    hermes.run("UPDATE sessions SET estimated_cost_usd = 0.5, cost_status = 'estimated'")
    hermes.run(
        "INSERT INTO gateway_routing VALUES ('', ?, ?, 0)",
        *(KEY, '{"session_id": "s1", "last_prompt_tokens": 88}'),
    )
    answer = await side.ask("task.stats", task_id=side.task_id(KEY))
    assert (answer["cost_usd"], answer["cost"], answer["context_tokens"]) == (0.5, "estimated", 88)
    hermes.run("UPDATE sessions SET actual_cost_usd = 0.25, reasoning_tokens = NULL")
    answer = await side.ask("task.stats", task_id=side.task_id(KEY))
    assert (answer["cost_usd"], answer["cost"]) == (0.25, "actual")
    assert "reasoning_tokens" not in answer


async def test_how_much_the_context_can_hold(side: Side, host: Host, hermes: Home) -> None:
    async def told() -> tuple[int | None, int | None]:
        answer = await side.ask("task.stats", task_id=side.task_id(KEY))
        return answer.get("context_tokens"), answer.get("context_window")

    host.values["model"] = {"model": "m", "provider": "p", "context_length": 1_000}
    assert await told() == (None, None)
    assert not host.ops("model")
    hermes.run(
        "INSERT INTO gateway_routing VALUES ('', ?, ?, 0)",
        *(KEY, '{"session_id": "s1", "last_prompt_tokens": 88}'),
    )
    assert await told() == (88, 1_000)
    assert host.ops("model")[0].args == {"chat_id": "c1"}
    host.values["model"] = {"model": "m", "provider": "p"}
    assert await told() == (88, None)
    host.values["model"] = {"model": "another", "context_length": 9}
    assert await told() == (88, None)
    host.values["model"] = {"model": ["odd"]}
    assert await told() == (88, None)
    del host.values["model"]  # an older plugin
    assert await told() == (88, None)


async def test_messages_are_counted_once(side: Side, host: Host, hermes: Home) -> None:
    """A branch in the same chat begins with copies."""
    hermes.session("s3", KEY, parent_session_id="s1", model_config={"_branched_from": "s1"})
    hermes.copy("s1", "s3", keep_time=False)
    hermes.say("four", session="s3")
    answer = await side.ask("task.stats", task_id=side.task_id(KEY))
    assert (answer["sessions"], answer["messages"]) == (2, 8)


@pytest.mark.parametrize("size", [{"limit": 0}, {"limit": -1}, {"limit": 101}, {"limit": 10**30}])
async def test_wrong_sizes_of_a_page_of_hits(side: Side, size: dict[str, Any]) -> None:
    assert (await side.refused("task.search", query="x", **size)).code == "bad_frame"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"max_messages": wrong} for wrong in (0, -1, 1_001, 10**30, 1.5)),
        *({"max_bytes": wrong} for wrong in (LEAST_BYTES - 1, -1)),
        {"view": "all"},
        {"before": "x" * 70_000},
    ],
)
async def test_wrong_bounds_are_bad_frames(side: Side, wrong: dict[str, Any]) -> None:
    error = await side.refused("task.history", task_id="task_1", **wrong)
    assert error.code == "bad_frame"
