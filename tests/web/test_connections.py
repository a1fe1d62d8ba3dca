"""How connections live and end: pairing races, replacement, revocation, heartbeat, shutdown."""

import asyncio
import logging
import re
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from loomid.daemon import STOP_S
from loomid.errors import StorageFailing
from loomid.lmp.session import Timing
from loomid.phone import Phone
from tests.support.hub import SERVER, answer, delta, serving, started
from tests.support.phone import Closed
from tests.support.waiting import until

CLOSES = re.compile(r"closed (\S+(?: \S+)?): code (\d+), (.+), age [\d.]+ s, lag \d+ events")


def config(**changes):
    return replace(SERVER, **changes)


def closes(caplog):
    """(code, cause) of each close that was logged."""
    return [(int(m[2]), m[3]) for r in caplog.records if (m := CLOSES.fullmatch(r.getMessage()))]


async def test_two_phones_redeem_one_token_and_one_wins(tmp_path):
    async with serving(tmp_path) as server:
        for _ in range(50):
            token = await server.token()

            async def redeem(token=token):
                async with server.phone().open() as c:
                    try:
                        await c.hello(token)
                    except Closed as closed:
                        return closed.code, c.errors
                    return 0, c.errors

            async with asyncio.TaskGroup() as tasks:
                both = [tasks.create_task(redeem()) for _ in range(2)]
            assert sorted(t.result() for t in both) == [(0, []), (4001, ["token_used"])]
        assert len(await server.vault.devices()) == 50


async def test_a_newer_connection_replaces_the_older(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as server:
        phone = await server.paired()
        async with phone.connect() as old, phone.connect() as new:
            assert await old.wait_closed() == 4004
            await server.publish(delta("x"))
            await new.wait_type("run.delta")
            (status,) = server.hub.desk.devices()
            assert status.connected
    assert (4004, "replaced by a newer connection") in closes(caplog)


async def test_revoking_closes(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as server:
        phone, other = await server.paired(), await server.paired()
        async with phone.connect() as c, other.connect() as witness:
            assert await server.hub.desk.revoke(phone.device_id)
            assert await c.wait_closed() == 4003
            await witness.send("ping")
            await witness.wait_type("pong")
        async with phone.open() as c:
            with pytest.raises(Closed, match="4001"):
                await c.hello()
            assert c.errors == ["unauthorized"]
        assert not await server.hub.desk.revoke(phone.device_id)
    assert closes(caplog).count((4003, "revoked")) == 1


async def test_renaming(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        assert await server.hub.desk.change(phone.device_id, name="Ann's")
        assert not await server.hub.desk.change("dev_none", name="x")
    async with serving(tmp_path) as server:
        assert [s.device.name for s in server.hub.desk.devices()] == ["Ann's"]


async def test_unknown_devices_and_wrong_credentials_look_the_same(tmp_path, monkeypatch):
    waits, hold = [], Phone.hold

    async def held(phone, seconds):
        waits.append(seconds)
        await hold(phone, seconds)

    monkeypatch.setattr(Phone, "hold", held)
    async with serving(tmp_path) as server:
        phone = await server.paired()
        right, said = phone.credential, []
        for device_id in (phone.device_id, "dev_0000000000000000"):
            waits.clear()
            for _ in range(4):
                async with phone.open() as c:
                    with pytest.raises(Closed, match="4001"):
                        await c.hello(device_id=device_id, credential="wrong")
                    (error,) = c.got
            said.append(({k: v for k, v in error.payload.items() if k != "ts"}, list(waits)))
            assert sorted(set(waits)) == waits
        assert said[0] == said[1]
        # Wrong ones slow neither the right one nor another device.
        phone.credential = right
        waits.clear()
        async with phone.connect():
            assert waits == []


async def test_a_device_that_never_comes_back_is_removed(tmp_path, caplog):
    async with serving(tmp_path, config=config(claim_within_s=0.3)) as server:
        claimed = await server.paired()
        async with claimed.connect():
            pass
        stays = server.phone()
        async with stays.connect(await server.token()):
            await server.paired()
            assert len(server.hub.desk.devices()) == 3
            await until(lambda: len(server.hub.desk.devices()) == 2)
            assert len(await server.vault.devices()) == 2
            assert {s.device.device_id for s in server.hub.desk.devices()} == {
                claimed.device_id,
                stays.device_id,
            }
    assert any("never came back" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize(
    ("later", "least", "most"),
    [(300.0, 200.0, 300.0), (5000.0, 30.0, 60.0), (-500.0, 500.0, 600.0)],
)
async def test_its_time_does_not_begin_anew_with_a_start(tmp_path, later, least, most):
    """But for a minute to come back in, as it could not while loomid was away."""
    async with serving(tmp_path) as server:
        await server.paired()
    async with serving(tmp_path, clock=lambda: time.time() + later) as server:
        (status,) = server.hub.desk.devices()
        assert least < status.removed_in_s <= most


async def test_what_a_device_says_of_itself_is_kept(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        async with phone.connect():
            pass
    async with serving(tmp_path) as server:
        (device,) = await server.vault.devices()
        assert (device.model, device.os, device.app_version) == ("Pixel", "Android 16", "1.0")
        assert device.confirmed
        assert device.last_seen == pytest.approx(time.time(), abs=10)


async def test_heartbeat(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    timing = Timing(ping_s=0.1, pong_s=0.05)
    async with serving(tmp_path, config=config(timing=timing)) as server:
        alive, dead = server.phone(), server.phone()
        dead.answer_pings = False
        async with alive.connect(await server.token()) as a:
            async with dead.connect(await server.token()) as d:
                assert await d.wait_closed() == 4006
                assert [g.type for g in d.got[1:]] == ["ping"] * 3
            await a.wait_type("ping", 3)
            assert a.closed is None
    assert (4006, "heartbeat lost") in closes(caplog)


async def test_the_oldest_without_hello_yields(tmp_path):
    async with serving(tmp_path, strangers=8) as server:
        paired = await server.paired()
        waiting = []
        async with asyncio.TaskGroup() as tasks:
            done = asyncio.Event()

            async def lurk():
                async with server.phone().open() as c:
                    waiting.append(c)
                    await done.wait()

            for _ in range(8):
                tasks.create_task(lurk())
            await until(lambda: len(waiting) == 8)
            async with paired.connect():  # the ninth
                await until(lambda: any(c.closed for c in waiting))
                (gone,) = (c for c in waiting if c.closed)
                assert (gone.errors, gone.closed) == (["rate_limited"], 4000)
                assert server.hub.tally.refused == {"yielded": 1}
            done.set()


async def test_phones_that_said_hello_take_no_place_at_the_door(tmp_path):
    async with serving(tmp_path, strangers=8) as server, AsyncExitStack() as connected:
        for _ in range(17):
            c = await connected.enter_async_context(server.phone().connect(await server.token()))
            assert c.errors == []
        assert len(server.hub.desk.devices()) == 17
        assert len(server.web.reception.places) == 0
        assert not server.hub.tally.refused


async def test_requests_run_in_order_while_pings_are_answered(tmp_path):
    release, ran = asyncio.Event(), []

    async def execute(device, frame):
        if frame.request_id == "r0":
            await release.wait()
        ran.append(frame.request_id)
        return await answer(device, frame)

    async with (
        serving(tmp_path, execute=execute) as server,
        server.phone().connect(await server.token()) as c,
    ):
        for n in range(18):
            await c.send("task.list", {"request_id": f"r{n}"})
        await c.send("ping")
        await c.wait_type("pong")
        assert c.errors == ["rate_limited"] * 2
        assert ran == []
        release.set()
        await c.wait_type("task.list.result", 16)
        assert ran == [f"r{n}" for n in range(16)]


async def test_who_has_gone_is_not_kept_for_an_answer(tmp_path):
    asked, gone = [], asyncio.Event()

    async def execute(_, frame):
        asked.append(frame.request_id)
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with serving(tmp_path, execute=execute) as server:
        async with server.phone().connect(await server.token()) as c:
            await c.send("task.list", {"request_id": "first"})
            await c.send("task.list", {"request_id": "second"})
            await until(lambda: asked)
        async with asyncio.timeout(2):
            await gone.wait()
        await until(lambda: not server.hub._phones)
        assert asked == ["first"]


async def test_a_bug_harms_one_phone_only(tmp_path, caplog):
    caplog.set_level(logging.INFO)

    async def execute(_, frame):
        raise RuntimeError(f"what the phone wrote: {frame.body!r}")

    async with (
        serving(tmp_path, execute=execute) as server,
        server.phone().connect(await server.token()) as other,
        server.phone().connect(await server.token()) as c,
    ):
        await c.send("task.list", {"request_id": "private words"})
        assert await c.wait_closed() == 1011
        assert c.errors == ["internal"]
        await other.send("ping")
        await other.wait_type("pong")
    (error,) = (r for r in caplog.records if r.levelno == logging.ERROR)
    assert "RuntimeError" in error.getMessage()
    assert "test_connections.py" in error.getMessage()
    assert "private words" not in caplog.text
    assert closes(caplog).count((1011, "internal")) == 1


async def test_stopping_tells_the_phones(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with (
        serving(tmp_path) as server,
        server.phone().connect(await server.token()) as one,
        server.phone().open() as stranger,
    ):
        await server.web.stop()
        assert await one.wait_closed() == 1001
        assert await stranger.wait_closed() == 1001
    assert closes(caplog).count((1001, "server going down")) == 2
    assert "did not close in time" not in caplog.text


async def test_stopping_waits_for_no_phone_that_does_not_answer(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    began, never = asyncio.Event(), asyncio.Event()

    async def execute(*_):
        began.set()
        await never.wait()

    async with serving(tmp_path, execute=execute) as server:
        phone, asking = server.phone(), server.phone()
        async with (
            phone.connect(await server.token()) as c,
            asking.connect(await server.token()) as waits,
        ):
            c.ws._writer.transport.pause_reading()
            await waits.send("task.list", {"request_id": "r"})
            await began.wait()
            async with asyncio.timeout(STOP_S):  # as the daemon has it
                await server.web.stop()
            assert {code for code, _ in closes(caplog)} == {1001}
            assert len(closes(caplog)) == 2
            known = {s.device.device_id: s.device.last_seen for s in server.hub.desk.devices()}
            stored = {d.device_id: d.last_seen for d in await server.vault.devices()}
            assert stored[phone.device_id] == known[phone.device_id]


async def test_each_close_is_logged_once_and_nothing_secret_is(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(tmp_path) as server:
        token = await server.token()
        phone = server.phone()
        async with phone.connect(token) as c:
            await server.publish(delta("private words"))
            await c.wait_type("run.delta")
        async with phone.open() as c:
            with pytest.raises(Closed):
                await c.hello(token)
    logged = closes(caplog)
    assert len(logged) == 2
    assert [code for code, _ in logged] == [1000, 4001]
    for secret in (token, phone.credential, "private words"):
        assert secret not in caplog.text


async def test_a_new_name_outlives_a_hello_that_is_under_way(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        confirm = server.vault.confirm_device

        async def meanwhile(device_id):
            await server.hub.desk.change(device_id, name="Ann's")
            await confirm(device_id)

        server.vault.confirm_device = meanwhile
        async with phone.connect():
            assert [s.device.name for s in server.hub.desk.devices()] == ["Ann's"]


async def test_a_disk_that_fails_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("loomid.hub.HOUSEKEEPING_S", 0.02)
    asked = []

    async def fails(*what):
        asked.append(what)
        raise StorageFailing

    async with serving(tmp_path) as server:
        phone = await server.paired()
        with monkeypatch.context() as broken:
            for name in ("seen", "remove_device"):
                broken.setattr(server.vault, name, fails)
            async with phone.connect() as c:
                await until(lambda: len(asked) > 2)
                await c.send("ping")
                await c.wait_type("pong")
                # A phone is cut off before that is stored; then it can be tried again.
                with pytest.raises(StorageFailing):
                    await server.hub.desk.revoke(phone.device_id)
                assert await c.wait_closed() == 4003
            assert [s.device.device_id for s in server.hub.desk.devices()] == [phone.device_id]
        assert await server.hub.desk.revoke(phone.device_id)
        assert await server.vault.devices() == []


async def test_a_stop_without_a_disk_is_a_stop(tmp_path, monkeypatch):
    async def fails(*_):
        raise StorageFailing

    async with serving(tmp_path) as server:
        await server.paired()
        monkeypatch.setattr(server.vault, "seen", fails)


async def test_a_connection_that_failed_is_written_to_no_more(tmp_path, caplog):
    async with serving(tmp_path) as server, server.phone().connect(await server.token()) as c:
        (phone,) = server.hub._live.values()
        c.ws._writer.transport.pause_reading()  # it does not answer the close frame for a while
        phone.outbox._seq = 2**60  # as if a number had gone back
        await server.publish(started())
        await until(lambda: phone.ended)
        await server.publish(delta("a"), delta("b"))
        c.ws._writer.transport.resume_reading()
        assert await c.wait_closed() == 1011
    (error,) = (r for r in caplog.records if r.levelno == logging.ERROR)
    assert "AssertionError" in error.getMessage()
