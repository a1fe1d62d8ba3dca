"""What an app can try on the demo's agent is what docs/protocol.md says of Hermes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from loomid.lmp import scopes
from tests.support.daemon import Daemon
from tests.support.main_job import demo_agent
from tests.support.phone import Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.phone import Connection


@asynccontextmanager
async def an_app(tmp_path: Path, pace: str = "0.005") -> AsyncIterator[tuple[Phone, Connection]]:
    """A phone of a daemon with the demo's agent behind it."""
    daemon = Daemon(tmp_path)
    try:
        await asyncio.to_thread(daemon.start)
        async with demo_agent(daemon, pace, tmp_path / "home"):
            phone = Phone(daemon.url)
            code = (await asyncio.to_thread(daemon.pair, scopes=[*scopes.ALL]))["qr"]
            async with phone.connect(code["token"]) as connection:
                yield phone, connection
    finally:
        daemon.close()


async def send(c: Connection, request_id: str, text: str, **more: object) -> str:
    """A message that is accepted; its task."""
    answer = await c.request("session.send", request_id=request_id, text=text, **more)
    assert answer.type == "session.send.result", answer
    return answer.payload["task_id"]


async def test_steer_is_folded_into_the_run(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", "long story")
        await c.wait_type("run.delta")
        await send(c, "r2", "in French", task_id=task, mode="steer")
        folded = await c.wait_type("run.input")
        assert folded.payload["text"] == "in French"
        assert folded.payload["origin"] == {"device_id": phone.device_id, "request_id": "r2"}
        ended = await c.wait_type("run.completed")
        assert "in French" in ended.payload["text"]
        (started,) = phone.events("run.started")
        assert started.payload["run_id"] == folded.payload["run_id"] == ended.payload["run_id"]
        await send(c, "r3", "more", task_id=task, mode="steer")  # nothing runs: a run of its own
        await c.wait_type("run.completed", 2)
        origin = phone.events("run.started")[1].payload["origin"]
        assert origin == {"device_id": phone.device_id, "request_id": "r3"}


async def test_a_message_that_interrupts_has_a_run_with_its_origin(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", "long story")
        await c.wait_type("run.delta")
        await send(c, "r2", "stop that", task_id=task, mode="interrupt")
        await c.wait_type("run.completed", 2)
        ended = {
            one.payload["status"]: one.payload["text"] for one in phone.events("run.completed")
        }
        assert ended["completed"] == "You wrote: stop that"
        assert ended.keys() == {"completed", "cancelled"}
        origins = [one.payload["origin"]["request_id"] for one in phone.events("run.started")]
        assert origins == ["r1", "r2"]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_command_is_answered_by_a_notification(tmp_path: Path, busy: bool) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = None
        if busy:
            task = await send(c, "r1", "danger")
            await c.wait_type("approval.required")
        to = {"task_id": task} if task else {}
        task = await send(c, "r2", "/status", command=True, **to)
        told = await c.wait_type("notification")
        assert (told.payload["category"], told.payload["source"]) == ("result", "command")
        assert told.frame.task_id == task
        assert "/status" in told.payload["text"]
        # Whatever the agent did with it has come before the next run.
        await send(c, "r3", "hello")
        await c.wait_type("run.completed")
        prompts = [one.payload["prompt"] for one in phone.events("run.started")]
        assert prompts == (["danger", "hello"] if busy else ["hello"])


async def test_session_holds_for_the_rest_of_the_conversation(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", "danger")
        asked = (await c.wait_type("approval.required")).payload
        body = {"approval_id": asked["approval_id"], "choice": "session", "request_id": "r2"}
        await c.request("approval.resolve", **body)
        await c.wait_type("run.completed")
        await send(c, "r3", "danger", task_id=task)
        await c.wait_type("run.completed", 2)
        assert len(phone.events("approval.required")) == 1
        assert phone.events("run.tool_finished")[1].payload["ok"] is True
        await send(c, "r4", "danger")  # another conversation
        other = await c.wait_type("approval.required", 2)
        assert other.frame.task_id != task


async def test_a_gateway_is_the_same_at_the_next_start(tmp_path: Path) -> None:
    """Else each start would leave one more that is offline for good in `loomictl status`."""
    daemon = Daemon(tmp_path)
    try:
        await asyncio.to_thread(daemon.start)
        for _ in range(2):
            async with demo_agent(daemon, "0", tmp_path / "home"):
                pass
        assert len((await asyncio.to_thread(daemon.status))["gateways"]) == 1
    finally:
        daemon.close()
