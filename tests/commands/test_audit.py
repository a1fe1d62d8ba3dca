"""What was done is told by the audit: by whom, and what became of it; never what was said."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from loomid.errors import StorageFailing
from tests.support.answering import PHONE, TABLET, Host, Side, key_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "a word that is in no audit"
OLD = {
    "id": "s",
    "session_key": key_of("old"),
    "source": "loomi",
    "started_at": 1.0,
    "last_active": 5.0,
}
MODES = {"approvals": "manual", "efforts": ["low"], "reasoning": None, "yolo": False}
MODELS = {
    "providers": [{"slug": "a", "name": "A", "total_models": 9, "models": [{"model": "a-1"}]}],
    "default": {"model": "a-1", "provider": "a"},
}


async def rows(side: Side) -> list[tuple[Any, ...]]:
    """Oldest first: who, action, about, detail, outcome."""
    found = await side.vault.audit.latest(None, 0.0)
    names = ("who", "action", "about", "detail", "outcome")
    return [tuple(one[name] for name in names) for one in reversed(found)]


async def test_requests_and_what_became_of_them(side: Side, host: Host) -> None:
    await side.ask("session.send", text=SECRET, request_id="r1")
    await side.ask("session.send", text=f"/new {SECRET}", request_id="r2", command=True)
    await side.ask("session.send", text=SECRET, request_id="r1")  # a repetition does nothing
    host.errors["inject"] = "failed"
    await side.refused("session.send", text=SECRET, request_id="r3")
    host.errors["inject"] = "stale"  # nothing ran, and nothing is remembered
    await side.refused("session.send", TABLET, text=SECRET, request_id="r4")
    await side.refused("session.send", text=SECRET, task_id="task_none", request_id="r5")
    queue = {"mode": "queue"}
    assert await rows(side) == [
        ("dev_1", "session.send", "gw1", queue, "ok"),
        ("dev_1", "session.send", "gw1", queue | {"command": "new"}, "ok"),
        ("dev_1", "session.send", "gw1", queue, "gateway_error"),
        ("dev_2", "session.send", "gw1", queue, "gateway_offline"),
    ]


async def test_what_a_mode_was_set_to(side: Side, host: Host) -> None:
    host.values |= {"modes": MODES, "set_mode": MODES}
    host.sessions = [OLD]
    task_id = side.task_id(key_of("old"))
    own = {"task_id": task_id}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("yolo", "on", own | {"confirm": True}),
        ("yolo", "off", own),
        ("approvals", "off", {"confirm": True}),
        ("approvals", "manual", {}),
        ("reasoning", "low", own),
    ]
    for number, (mode, value, more) in enumerate(asked):
        request = {"mode": mode, "value": value, "request_id": f"r{number}"}
        await side.ask("mode.set", **request, **more)
    refused = {"mode": "approvals", "value": SECRET, "request_id": "r9"}
    assert (await side.refused("mode.set", **refused)).code == "bad_choice"
    assert await rows(side) == [
        ("dev_1", "mode.set", more.get("task_id", "gw1"), {"mode": mode, "value": value}, "ok")
        for mode, value, more in asked
    ]


async def test_which_model_was_set_and_for_what(side: Side, host: Host) -> None:
    host.values |= {"models": MODELS, "set_model": {"model": "a-1", "provider": "a"}}
    host.sessions = [OLD]
    task_id = side.task_id(key_of("old"))
    await side.ask("model.set", model="a-1", task_id=task_id, request_id="r1")
    host.values["set_model"] = {"model": "a-1", "provider": "a", "asked": True}
    dear = {"model": "dear\x1b" * 100, "provider": "a"}  # it has more than it lists
    await side.ask("model.set", **dear, default=True, confirm=True, request_id="r2")
    default = {"model": ("dear?" * 100)[:200], "provider": "a", "default": True}
    assert await rows(side) == [
        ("dev_1", "model.set", task_id, {"model": "a-1"}, "ok"),
        ("dev_1", "model.set", "gw1", default, "asked"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [("/yolo", "yolo"), ("/Reload_MCP@bot now", "reload-mcp"), ("/approvals off", "approvals")],
)
async def test_which_command_was_sent(side: Side, host: Host, text: str, told: str) -> None:
    send = {"text": text, "command": True, "confirm": True, "request_id": "r1"}
    await side.ask("session.send", **send)
    detail = {"mode": "queue", "command": told}
    assert await rows(side) == [("dev_1", "session.send", "gw1", detail, "ok")]


async def test_cancels_with_and_without_an_id(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    await side.ask("run.cancel", run_id=run_id, request_id="r1")
    await side.ask("run.cancel", run_id=run_id)
    told = ("dev_1", "run.cancel", run_id, {}, "ok")
    assert await two(side) == [told, told]


async def two(side: Side) -> list[tuple[Any, ...]]:
    """The rows, once there are two: those of requests without an id come after their answer."""
    async with asyncio.timeout(10):
        while len(found := await rows(side)) < 2:
            pass
    return found


async def test_a_run_is_cancelled_while_nothing_can_be_written(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    async with side.log._store.safe._writing:
        async with asyncio.timeout(5):
            await side.ask("run.cancel", run_id=run_id)
        assert host.ops("cancel")
        await side.ask("run.cancel", run_id=run_id)
    assert len(await two(side)) == 2


async def test_an_answer_and_what_hermes_made_of_it(side: Side, host: Host) -> None:
    host.ask("s1")
    name = await side.asked("s1")
    await side.ask("approval.resolve", approval_id=name, choice="once", request_id="r1")
    await side.decided("s1")
    late = {"approval_id": name, "choice": "deny", "request_id": "r2"}
    assert (await side.refused("approval.resolve", TABLET, **late)).code == "already_resolved"
    await until(lambda: not side.under_way)
    assert await rows(side) == [("dev_1", "approval.resolve", name, {"choice": "once"}, "applied")]


async def test_an_answer_that_does_not_reach_hermes(side: Side, host: Host) -> None:
    host.errors["approve"] = "stale"
    host.ask("s1")
    name = await side.asked("s1")
    await side.ask("approval.resolve", approval_id=name, choice="once", request_id="r1")
    await until(lambda: side.reminded)
    del host.errors["approve"]
    await side.ask("approval.resolve", TABLET, approval_id=name, choice="deny", request_id="r2")
    await side.decided("s1")
    assert await rows(side) == [
        ("dev_1", "approval.resolve", name, {"choice": "once"}, "returned"),
        ("dev_2", "approval.resolve", name, {"choice": "deny"}, "applied"),
    ]


async def test_somebody_else_was_faster(side: Side, host: Host) -> None:
    host.silent.add("approve")
    host.ask("s1")
    host.ask("s2")
    name, other = await side.asked("s1"), await side.asked("s2")
    await side.ask("approval.resolve", approval_id=name, choice="once", request_id="r1")
    host.decide("s1", "deny")
    host.decide("s2", "timeout")
    await side.decided("s1")
    await side.decided("s2")
    assert await rows(side) == [
        ("dev_1", "approval.resolve", name, {"choice": "once"}, "overtaken"),
        ("local", "approval.resolve", name, {"choice": "deny"}, "applied"),
        ("timeout", "approval.resolve", other, {"choice": "deny"}, "expired"),
    ]


async def test_what_a_kill_leaves_open_is_told_later(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    """The row is on disk before the command leaves, its outcome once that is known."""
    host = make_host()
    host.silent.add("inject")
    async with Side(tmp_path) as side:
        await side.online(host)
        frame = {"text": SECRET, "request_id": "r1"}
        asking = side.commands._group.create_task(side.refused("session.send", **frame))
        await until(lambda: host.commands)
        assert await rows(side) == [("dev_1", "session.send", "gw1", {"mode": "queue"}, None)]
        asking.cancel()
    host.silent.clear()
    host.answer(host.commands[0])
    async with Side(tmp_path) as side:
        await until(lambda: not side.under_way)
        assert await rows(side) == [("dev_1", "session.send", "gw1", {"mode": "queue"}, "ok")]


async def test_no_row_without_its_request(side: Side, host: Host) -> None:
    """They are one transaction: with a disk that fails there is neither, and nothing is sent."""
    with closing(sqlite3.connect(side._path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        error = await side.refused("session.send", text=SECRET, request_id="r1")
    assert isinstance(error, StorageFailing)
    assert host.commands == []
    assert await rows(side) == []
    assert await side.vault.request(PHONE.device_id, "r1") is None


async def test_no_text_is_in_it(side: Side, host: Host) -> None:
    host.start_turn("t1")
    await side.run_begun("t1")
    host.ask("s1", "t1", command=SECRET, description=SECRET)
    name = await side.asked("s1")
    await side.ask("session.send", text=SECRET, request_id=SECRET)
    await side.ask("session.send", text=f"/new {SECRET}", request_id="r2", command=True)
    word = SECRET.replace(" ", "-")
    await side.ask("session.send", text=f"/{word}", request_id="r4", command=True)
    host.values["rename"] = {"title": SECRET}
    host.sessions = [OLD]
    task_id = side.task_id(key_of("old"))
    await side.ask("task.rename", task_id=task_id, title=SECRET, request_id="r5")
    answer = {"approval_id": name, "choice": "deny", "reason": SECRET, "request_id": "r3"}
    await side.ask("approval.resolve", **answer)
    await side.decided("s1")
    with closing(sqlite3.connect(side._path)) as line:
        found = line.execute("SELECT * FROM audit").fetchall()
    assert len(found) == 5
    assert SECRET not in repr(found)
    assert word not in repr(found)
