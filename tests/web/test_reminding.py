"""An approval that waits again is told to every phone, and never behind its own end."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from loomid.lmp import frames
from tests.support.hub import approval, delta, resolved, serving
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

RETURNED = frames.Returned(device_id="dev_1", request_id="r1", reason="gateway_offline")


async def test_told_again_to_all_who_are_there(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        plain, modern, away = [await server.paired(*c) for c in ([], ["snapshot"], [])]
        async with plain.connect() as one, modern.connect() as two:
            await server.publish(approval())
            for connection in (one, two):
                await connection.wait_type("approval.required")
            await server.hub.remind("apr_1", RETURNED)
            for connection in (one, two):
                again = await connection.wait_type("approval.required", 2)
                assert again.frame.replay
                fields = ("device_id", "request_id", "reason")
                assert again.payload["returned"] == {f: getattr(RETURNED, f) for f in fields}
            await server.publish(delta("on"))
            await one.wait_type("run.delta")
        # It is no event: who has it goes on after it, who was not there is told on connecting.
        async with plain.connect() as one, away.connect() as other:
            for connection in (one, other):
                assert connection.hello_ok is not None
                assert connection.hello_ok.payload["truncated"] is False
                told = await connection.wait_type("approval.required")
                assert "returned" not in told.payload


async def test_not_after_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        phone = await server.paired()
        async with phone.connect() as connection, asyncio.TaskGroup() as tasks:
            await server.publish(approval())
            await connection.wait_type("approval.required")
            with closing(sqlite3.connect(tmp_path / "loomid.db", isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                ending = tasks.create_task(server.publish(resolved()))
                await until(lambda: server.log.take_position() > server.log.visible)
                reminding = tasks.create_task(server.hub.remind("apr_1", RETURNED))
                await asyncio.sleep(0)
                holder.execute("ROLLBACK")
            await ending
            await reminding
            await server.hub.remind("apr_1", RETURNED)
            await server.publish(delta("on"))
            await connection.wait_type("run.delta")
            told = [got.type for got in phone.events() if got.type.startswith("approval.")]
            assert told == ["approval.required", "approval.resolved"]
