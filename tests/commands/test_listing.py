"""task.list: Hermes' own list, with what runs now; the last known one without a gateway."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from loomid.errors import BadFrame
from loomid.tasks import make_cursor, read_cursor
from tests.support.answering import Host, Side, key_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = time.time()


def session(chat: str, age: float, **more: Any) -> dict[str, Any]:
    base = {
        "id": f"s-{chat}",
        "session_key": key_of(chat),
        "source": "loomi",
        "title": chat.upper(),
        "model": "m",
        "started_at": NOW - age - 1000,
        "last_active": NOW - age,
        "message_count": 3,
        "preview": "bye",
    }
    return base | more


async def pages(side: Side, limit: int, **more: Any) -> list[list[str]]:
    """The titles on each page."""
    found, cursor = [], None
    while True:
        answer = await side.ask("task.list", limit=limit, cursor=cursor, **more)
        found.append([task["title"] for task in answer["tasks"]])
        cursor = answer.get("next_cursor")
        if cursor is None:
            return found


async def test_a_task_has_all_its_fields(side: Side, host: Host) -> None:
    host.sessions = [session("a", 5000.0)]
    answer = await side.ask("task.list", request_id="r1")
    assert answer == {
        "request_id": "r1",
        "tasks": [
            {
                "task_id": side.task_id(key_of("a")),
                "title": "A",
                "status": "idle",
                "surface": "loomi",
                "model": "m",
                "created_at": NOW - 6000.0,
                "updated_at": NOW - 5000.0,
                "message_count": 3,
                "preview": "bye",
                "gateway_id": "gw1",
            }
        ],
    }


async def test_newest_first_page_by_page(side: Side, host: Host) -> None:
    host.sessions = [session(f"c{i}", 1000.0 + i) for i in range(7)]
    titles = [f"C{i}" for i in range(7)]
    assert await pages(side, 50) == [titles]
    for limit in (1, 2, 3, 7):
        found = await pages(side, limit)
        assert [title for page in found for title in page] == titles
        assert all(len(page) <= limit for page in found)


async def test_sessions_of_the_same_time_are_all_listed(side: Side, host: Host) -> None:
    host.sessions = [session(f"c{i}", 1000.0 + i // 2) for i in range(8)]
    found = await pages(side, 3)
    titles = [title for page in found for title in page]
    assert sorted(titles) == [f"C{i}" for i in range(8)]


async def test_several_gateways_are_one_list(
    side: Side, host: Host, make_host: Callable[..., Host]
) -> None:
    other = await side.online(make_host("gw2"))
    host.sessions = [session(f"a{i}", 1000.0 + 3 * i) for i in range(6)]
    other.sessions = [session(f"b{i}", 1001.5 + 7 * i) for i in range(6)]
    everything = sorted(
        [(1000.0 + 3 * i, f"A{i}") for i in range(6)]
        + [(1001.5 + 7 * i, f"B{i}") for i in range(6)]
    )
    for limit in (2, 5, 50):
        found = await pages(side, limit)
        assert [title for page in found for title in page] == [title for _, title in everything]

    # The tasks of a gateway that is away stay in the list.
    other.link.stop()
    await until(lambda: side.gateways.boot_of("gw2") is None)
    assert sorted((await pages(side, 50))[0]) == sorted(title for _, title in everything)


async def test_what_runs_and_what_waits(side: Side, host: Host) -> None:
    host.sessions = [session(chat, 1000.0) for chat in ("c1", "c2", "c3")]
    host.start_turn("t1", "c1")
    host.start_turn("t2", "c2")
    run_one, run_two = await side.run_begun("t1"), await side.run_begun("t2")
    host.ask("s1", "t1")
    await side.asked("s1")
    answer = await side.ask("task.list")
    assert {task["title"]: (task["status"], task.get("run_id")) for task in answer["tasks"]} == {
        "C1": ("waiting", run_one),
        "C2": ("running", run_two),
        "C3": ("idle", None),
    }
    assert await pages(side, 9, status_filter="waiting") == [["C1"]]
    assert await pages(side, 9, status_filter="running") == [["C2"]]
    assert await pages(side, 9, status_filter="idle") == [["C3"]]
    host.end_turn("t2", "c2")
    await side.run_over("t2")
    assert await pages(side, 9, status_filter="running") == [[]]


async def test_a_task_that_was_just_begun_is_listed(side: Side, host: Host) -> None:
    task_id = (await side.ask("session.send", text="hi", request_id="r1"))["task_id"]
    (task,) = (await side.ask("task.list"))["tasks"]
    assert (task["task_id"], task["surface"], task["gateway_id"]) == (task_id, "loomi", "gw1")


async def test_a_session_that_hermes_no_longer_has_is_not_listed(side: Side, host: Host) -> None:
    host.sessions = [session("a", 1000.0), session("b", 2000.0)]
    assert await pages(side, 50) == [["A", "B"]]
    host.sessions.pop()
    assert await pages(side, 50) == [["A"]]


async def test_without_a_gateway_the_last_known_list(side: Side, host: Host) -> None:
    assert "stale" not in await side.ask("task.list")
    host.sessions = [session(f"c{i}", 1000.0 + i) for i in range(5)]
    titles = await pages(side, 50)
    host.link.stop()
    await until(lambda: side.gateways.boot_of("gw1") is None)
    answer = await side.ask("task.list")
    assert answer["stale"] is True
    assert [task["title"] for task in answer["tasks"]] == titles[0]
    assert [title for page in await pages(side, 2) for title in page] == titles[0]


@pytest.mark.parametrize("error", ["failed", "unknown_op"])
async def test_a_gateway_that_cannot_list(side: Side, host: Host, error: str) -> None:
    host.sessions = [session("a", 1000.0)]
    await side.ask("task.list")
    host.errors["sessions"] = error
    answer = await side.ask("task.list")
    assert [task["title"] for task in answer["tasks"]] == ["A"]
    assert answer["stale"] is True


async def test_a_gateway_that_lists_oddly(side: Side, host: Host) -> None:
    host.sessions = [{"last_active": 1.0, "id": None}]
    assert (await side.ask("task.list"))["stale"] is True


async def test_sessions_without_key_or_title(side: Side, host: Host) -> None:
    host.sessions = [
        {
            "id": "cron_1",
            "session_key": None,
            "source": "cron",
            "started_at": 7.0,
            "last_active": 7.0,
        }
    ]
    (task,) = (await side.ask("task.list"))["tasks"]
    assert task["task_id"] == side.task_id("cron_1")
    assert (task["title"], task["model"], task["created_at"]) == ("", None, 7.0)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "W10=", "WzFlOTk5LCIiXQ==", "\ufffd"])
async def test_a_cursor_that_is_not_ours(side: Side, host: Host, cursor: str) -> None:
    assert (await side.refused("task.list", cursor=cursor)).code == "bad_frame"
    assert host.commands == []


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_cursor_is_ours_or_refused(text: str) -> None:
    try:
        position = read_cursor(text)
    except BadFrame:
        return
    assert read_cursor(make_cursor(position)) == position


@given(st.floats(0, 1e11), st.from_regex(r"task_[0-9a-f]{18}", fullmatch=True))
def test_cursors_come_back(updated_at: float, task_id: str) -> None:
    assert read_cursor(make_cursor((updated_at, task_id))) == (updated_at, task_id)


@pytest.mark.parametrize(
    "odd",
    [
        {"message_count": 10**30},
        {"message_count": -1},
        {"last_active": 1e308},
        {"last_active": -1.0},
        {"started_at": 10**30},
        {"title": ["x"]},
    ],
)
async def test_a_list_that_makes_no_sense_is_not_taken(
    side: Side, host: Host, odd: dict[str, Any]
) -> None:
    host.sessions = [session("a", 5.0)]
    assert len((await side.ask("task.list"))["tasks"]) == 1
    host.sessions = [session("b", 1.0) | odd]
    answer = await side.ask("task.list")
    assert answer["stale"]
    assert [task["title"] for task in answer["tasks"]] == ["A"]
