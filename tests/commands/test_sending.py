"""session.send and run.*: what leaves for the gateway, and what the phone hears."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loomid.lmp import envelope, requests
from loomid.lmp.runs import Runs
from loomid.status import gateway_infos
from tests.support.answering import LIMITS, PHONE, TABLET, Host, Side, key_of
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_a_message_without_a_task_begins_one(side: Side, host: Host) -> None:
    answer = await side.ask("session.send", text="hi\nthere", request_id="r1")
    (command,) = host.commands
    chat = command.args.pop("chat_id")
    message_id = command.args.pop("message_id")
    assert command.op == "inject"
    assert command.args == {
        "text": "hi\nthere",
        "mode": "queue",
        "device_id": PHONE.device_id,
        "request_id": "r1",
    }
    assert len(chat) * 4 >= 48
    assert ":" not in chat
    task_id = side.task_id(key_of(chat))
    assert requests.request_ids([message_id]) == ["r1"]
    assert answer == {"request_id": "r1", "task_id": task_id, "accepted": True}

    again = await side.ask("session.send", text="more", request_id="r2", task_id=task_id)
    assert again["task_id"] == task_id
    assert host.commands[1].args["chat_id"] == chat

    other = await side.ask("session.send", text="hi", request_id="r3")
    assert other["task_id"] != task_id


@pytest.mark.parametrize("mode", ["queue", "steer", "interrupt"])
async def test_modes_and_commands_are_passed_on(side: Side, host: Host, mode: str) -> None:
    await side.ask("session.send", text="/new", request_id="r1", mode=mode)
    await side.ask("session.send", text="/new", request_id="r2", mode=mode, command=True)
    assert [command.args["mode"] for command in host.ops("inject")] == [mode, "command"]


async def test_the_home_task_takes_messages(side: Side, host: Host) -> None:
    home = side.commands.home_task()
    assert home == side.task_id(key_of("home"))
    await side.ask("session.send", text="hi", request_id="r1", task_id=home)
    assert host.commands[0].args["chat_id"] == "home"


async def test_each_gateway_has_a_home_task_where_its_scheduled_jobs_report(
    side: Side, host: Host, make_host: Callable[..., Host]
) -> None:
    other = await side.online(make_host("gw2"))
    await until(lambda: len(side.log.projection.gateways()) == 2)
    told = {one.gateway_id: one.home_channel for one in gateway_infos(side.log)}
    assert told["gw1"] == side.commands.home_task()
    sent = {"chat_id": "home", "text": "Backup: done", "reply_to": None}
    sent |= {"session_key": key_of("home"), "message_id": "m1", "metadata": {"job_id": "j1"}}
    after = side.log.visible
    other.link.emit("sent", sent)
    await until(lambda: side.log.visible > after)
    (entry,) = side.log.read(after, 9)
    frame, _ = envelope.decode_server(envelope.render(entry.position, entry.parts))
    assert (frame.type, frame.task_id) == ("notification", told["gw2"])
    assert told["gw2"] != told["gw1"]


async def test_the_home_task_is_known_without_its_gateway(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path) as side:
        assert side.commands.home_task() is None
        host = await side.online(make_host())
        home = side.task_id(key_of("home"))
        await until(lambda: side.log.projection.gateways())
    host.link.stop(0.1)
    async with Side(tmp_path) as side:
        assert side.commands.home_task() == home
        error = await side.refused("session.send", text="hi", request_id="r1", task_id=home)
        assert error.code == "gateway_offline"
        (state,) = side.gateways.states()
        assert (state.name, state.online) == ("Stand-in", False)


async def test_a_task_that_only_hermes_knows_takes_messages(side: Side, host: Host) -> None:
    key = key_of("old")
    host.sessions = [
        {"id": "s", "session_key": key, "source": "loomi", "started_at": 1.0, "last_active": 5.0}
    ]
    await side.ask("session.send", text="hi", request_id="r1", task_id=side.task_id(key))
    assert host.ops("inject")[0].args["chat_id"] == "old"


async def test_texts_and_tasks_that_are_refused(side: Side, host: Host) -> None:
    foreign = key_of("c9").replace("loomi", "telegram")
    host.sessions = [
        {
            "id": "s1",
            "session_key": foreign,
            "source": "telegram",
            "started_at": 1.0,
            "last_active": 5.0,
        },
        {
            "id": "cron_1",
            "session_key": None,
            "source": "cron",
            "started_at": 1.0,
            "last_active": 4.0,
        },
    ]

    async def code(text: str = "hi", **more: object) -> str:
        refused = await side.refused("session.send", text=text, request_id="r1", **more)
        return refused.code

    assert await code("x" * (LIMITS.max_text_chars + 1)) == "too_large"
    assert await code(" \n\t") == "bad_frame"
    assert await code("stop", command=True) == "bad_frame"
    assert await code(task_id="task_unknown") == "unknown_task"
    assert await code(task_id=side.task_id(foreign)) == "not_permitted"
    assert await code(task_id=side.task_id("cron_1")) == "not_permitted"
    assert host.ops("inject") == []
    # None of it is kept: the same id is free.
    await side.ask("session.send", text="x" * LIMITS.max_text_chars, request_id="r1")


async def test_no_gateway(side: Side, make_host: Callable[..., Host]) -> None:
    assert (
        await side.refused("session.send", text="hi", request_id="r1")
    ).code == "gateway_offline"
    assert side.commands.home_task() is None
    host = await side.online(make_host())
    task_id = (await side.ask("session.send", text="hi", request_id="r1"))["task_id"]
    host.link.stop()
    await until(lambda: side.gateways.boot_of("gw1") is None)
    refused = await side.refused("session.send", text="hi", request_id="r2", task_id=task_id)
    assert refused.code == "gateway_offline"
    assert side.commands.home_task() == side.task_id(key_of("home"))


async def test_cancel_and_pause(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    host.dropped = ["telegram-7", requests.message_id("x", "r7")]
    answer = await side.ask("run.cancel", run_id=run_id, request_id="r1")
    expected = {"run_id": run_id, "state": "cancelling", "request_id": "r1", "dropped": ["r7"]}
    assert answer == expected
    assert host.commands[0].args == {"session_key": key_of("c1"), "turn_id": "t1"}

    host.dropped = []
    answer = await side.ask("run.pause", run_id=run_id)
    assert answer == {"run_id": run_id, "state": "pausing", "dropped": []}
    assert [command.op for command in host.commands] == ["cancel", "cancel"]


async def test_resume_says_continue_in_the_task_of_the_run(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    host.end_turn("t1", interrupted=True)
    await side.run_over("t1")
    answer = await side.ask("run.resume", TABLET, run_id=run_id, request_id="r1")
    assert answer == {"run_id": run_id, "state": "resuming", "request_id": "r1"}
    (command,) = host.commands
    assert (command.op, command.args["chat_id"]) == ("inject", "c1")
    assert (command.args["text"], command.args["mode"]) == ("continue", "queue")
    assert command.args["device_id"] == TABLET.device_id


async def test_runs_that_cannot_be_controlled(side: Side, host: Host) -> None:
    host.start_turn("t1")
    host.start_turn("t2", platform="telegram")
    ours, foreign = await side.run_begun("t1"), await side.run_begun("t2")
    host.end_turn("t1")
    await side.run_over("t1")
    for verb in ("cancel", "pause"):
        assert (await side.refused(f"run.{verb}", run_id="run_x")).code == "unknown_run"
        assert (await side.refused(f"run.{verb}", run_id=ours)).code == "run_not_active"
    assert (await side.refused("run.resume", run_id="run_x")).code == "unknown_run"
    assert (await side.refused("run.pause", run_id=foreign)).code == "not_permitted"
    assert (await side.refused("run.resume", run_id=foreign)).code == "not_permitted"
    assert host.ops("inject") == host.ops("cancel") == []


async def test_runs_of_before_a_restart(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    host.end_turn("t1")
    await side.run_over("t1")
    # As after a restart, and when the run has long been over.
    for ended in (["t1"], []):
        side.pump.runs["gw1"] = Runs("gw1", side.key, ended)
        assert (await side.refused("run.cancel", run_id=run_id)).code == "run_not_active"
        await side.ask("run.resume", run_id=run_id)
        assert host.ops("inject")[-1].args["chat_id"] == "c1"
    assert len(host.ops("inject")) == 2


async def test_the_turn_may_end_before_the_command_comes(side: Side, host: Host) -> None:
    host.start_turn("t1")
    run_id = await side.run_begun("t1")
    host.errors["cancel"] = "not_active"
    refused = await side.refused("run.cancel", run_id=run_id, request_id="r1")
    assert (refused.code, refused.params) == ("run_not_active", {})
