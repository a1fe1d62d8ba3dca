"""Numbers rise whatever the disk and the phone do; a slow phone costs nobody but itself."""

import asyncio
import logging
import sqlite3
from dataclasses import replace

import pytest

from loomid import outbox
from tests.support.hub import SERVER, answer, completed, delta, serving, started
from tests.support.waiting import until


def transport(connection):
    """The client's transport, to stop it from reading."""
    return connection.ws._writer.transport


def lock(path):
    """Hold the database's write lock from outside."""
    other = sqlite3.connect(path / "loomid.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


async def test_a_pong_waits_for_the_event_numbered_before_it(tmp_path):
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as c,
        asyncio.TaskGroup() as tasks,
    ):
        other = lock(tmp_path)
        before = server.log.visible
        tasks.create_task(server.publish(started()))
        await until(lambda: server.log.take_position() > server.log.visible >= before)
        await c.send("ping")
        (status,) = server.hub._live.values()
        await until(lambda: status.outbox.waiting)
        other.close()
        await c.wait_type("pong")
        assert [g.type for g in c.got[1:]] == ["run.started", "pong"]


async def test_a_stop_waits_for_what_waits_for_a_commit(tmp_path):
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as c,
        asyncio.TaskGroup() as tasks,
    ):
        other = lock(tmp_path)
        tasks.create_task(server.publish(started()))
        await until(lambda: server.log.take_position() > server.log.visible)
        await c.send("ping")
        (phone,) = server.hub._live.values()
        await until(lambda: phone.outbox.waiting)
        tasks.create_task(server.web.stop())
        await until(lambda: phone.ended)
        other.close()
        assert await c.wait_closed() == 1001
        assert [g.type for g in c.got[1:]] == ["run.started", "pong"]


async def test_a_bug_in_what_waits_for_a_commit_harms_no_commit(tmp_path):
    async with serving(tmp_path) as server, asyncio.TaskGroup() as tasks:

        async def told():
            with pytest.raises(ZeroDivisionError):
                await server.log.at_rest(lambda: 1 / 0)

        other = lock(tmp_path)
        publishing = tasks.create_task(server.publish(started()))
        await until(lambda: server.log.take_position() > server.log.visible)
        tasks.create_task(told())
        await asyncio.sleep(0)
        other.close()
        await publishing
        assert [one.type for one in server.log.read(0, 9)] == ["run.started"]


async def test_frames_flow_and_nothing_is_lost_while_the_disk_fails(tmp_path):
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as c,
        asyncio.TaskGroup() as tasks,
    ):
        other = lock(tmp_path)
        tasks.create_task(server.publish(started(), delta("a")))
        for n in range(3):
            await c.send("ping")
            await c.wait_type("pong", n + 1)
        assert not c.phone.events()
        other.close()
        await c.wait_type("run.delta")
        await c.send("ping")
        await c.wait_type("pong", 4)
        assert [g.type for g in c.phone.events()] == ["run.started", "run.delta"]


async def test_a_phone_that_takes_nothing_is_let_go(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with (
        serving(tmp_path, config=replace(SERVER, stall_s=1.0)) as server,
        server.phone().connect(await server.token()) as witness,
        server.phone().connect(await server.token()) as c,
    ):
        stuck = server.hub._live[c.phone.device_id]
        transport(c).pause_reading()
        published = 0
        while stuck.ended is None and published < 4000:
            await server.publish(*(delta("x" * 4096) for _ in range(100)))
            published += 100
        await until(lambda: stuck.ended)
        assert stuck.ended == (4005, "takes nothing")
        transport(c).resume_reading()
        assert await c.wait_closed() == 4005
        await witness.wait_for(lambda: len(witness.phone.events()) == published)
    assert "code 4005, takes nothing" in caplog.text


async def test_a_phone_that_falls_out_of_the_ring_reconnects_as_truncated(tmp_path):
    async with serving(tmp_path) as server:
        phone = server.phone()
        async with phone.connect(await server.token()) as c:
            transport(c).pause_reading()
            for _ in range(60):
                await server.publish(*(delta("x" * 2000) for _ in range(100)))
            transport(c).resume_reading()
            assert await c.wait_closed() == 4005
            assert 0 < len(phone.events()) < 6000
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            await server.publish(delta("live"))
            await c.wait_for(lambda: phone.got[-1].payload.get("text") == "live")


async def test_a_slow_phone_gets_everything_from_the_ring(tmp_path):
    async with serving(tmp_path) as server:
        phone = server.phone()
        async with phone.connect(await server.token()) as c:
            transport(c).pause_reading()
            for n in range(20):
                await server.publish(*(delta(f"{n} {i} ".ljust(3000)) for i in range(100)))
            (served,) = server.hub._live.values()
            assert len(served._socket._transport._buffer) < 400_000
            transport(c).resume_reading()
            await c.wait_type("run.delta", 2000)
        said = [g.payload["text"].strip() for g in phone.events("run.delta")]
        assert said == [f"{n} {i}" for n in range(20) for i in range(100)]


async def test_a_phone_that_takes_no_answers_is_not_read(tmp_path):
    asked = []

    async def execute(device, frame):
        asked.append(frame.request_id)
        return await answer(device, frame)

    async with (
        serving(tmp_path, execute=execute) as server,
        server.phone().connect(await server.token()) as c,
    ):
        other = lock(tmp_path)
        async with asyncio.TaskGroup() as tasks:
            before = server.log.visible
            tasks.create_task(server.publish(started()))
            await until(lambda: server.log.take_position() > server.log.visible >= before)
            for n in range(90):
                await c.send("task.list", {"request_id": f"r{n}"})
            (served,) = server.hub._live.values()
            await until(lambda: served.outbox.full)
            assert len(served.outbox._own) <= outbox.MAX_FRAMES
            other.close()
            await c.wait_for(lambda: len(c.got) >= 92)


async def test_urgent_events_wait_for_no_tick(tmp_path, monkeypatch):
    monkeypatch.setattr("loomid.pace.WRITE_S", 3600.0)
    monkeypatch.setattr("loomid.pace.MAX_TICK_S", 3600.0)
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as c,
    ):
        await server.publish(delta("leading"))
        await c.wait_type("run.delta")
        await server.publish(delta("waits"))
        await server.publish(completed("end"))
        await c.wait_type("run.completed")
        assert [g.type for g in c.got[1:]] == ["run.delta", "run.delta", "run.completed"]


async def test_every_length_and_every_character_arrives_as_it_was(tmp_path):
    """Frames come from byte templates: percent signs and header bytes must not matter."""
    texts = [("%d%s%% ü 🙂" * n)[:n] for n in range(400)] + ["%" * 70_000]
    async with serving(tmp_path) as server:
        live, late = server.phone(), await server.paired()
        async with live.connect(await server.token()) as c:
            await server.publish(*(delta(text) for text in texts))
            await c.wait_type("run.delta", len(texts))
        async with late.connect() as c:
            await c.wait_type("run.delta", len(texts))
        for phone in (live, late):
            assert [g.payload["text"] for g in phone.events()] == texts


async def test_numbers_that_grow_a_digit_within_a_block(tmp_path):
    """Templates are for numbers of one length, and begin at the same places for all phones."""
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as early,
    ):
        await server.publish(*(delta(str(n)) for n in range(90)))
        async with server.phone().connect(await server.token()) as late:
            await server.publish(*(delta(str(n)) for n in range(90, 1100)))
            for phone, first in ((early, 0), (late, 90)):
                await phone.wait_type("run.delta", 1100 - first)
                texts = [g.payload["text"] for g in phone.phone.events()]
                assert texts == [str(n) for n in range(first, 1100)]
            assert late.phone.last_seq < 1000 + 90 <= early.phone.last_seq
