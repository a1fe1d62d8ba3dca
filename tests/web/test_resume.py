"""Where a phone goes on: replay, truncation, snapshot, pending approvals (docs/protocol.md)."""

import asyncio
import shutil

import pytest

from loomid.positions import Exhausted
from tests.support.hub import approval, completed, delta, resolved, serving, started


def text_of(gots):
    return "".join(g.payload["text"] for g in gots if g.type == "run.delta")


async def test_resume_survives_a_restart(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        await server.publish(started(), delta("a"))
    async with serving(tmp_path) as server:
        phone.url = server.url
        await server.publish(delta("b"))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False
            await c.wait_type("run.delta", 2)
    assert text_of(phone.got) == "ab"


async def test_a_gap_beyond_the_window_is_told(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        before = phone.last_seq
        await server.publish(*(delta(f"{n} ") for n in range(513)))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            assert c.hello_ok.seq > before
            await server.publish(delta("live"))
            await c.wait_type("run.delta")
    assert text_of(phone.got) == "live"


async def test_exactly_the_window_is_replayed(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        await server.publish(*(delta(f"{n} ") for n in range(512)))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False
            await c.wait_type("run.delta", 512)


async def test_a_wider_window_than_the_default_ring(tmp_path):
    async with serving(tmp_path, window=6000) as server:
        phone = await server.paired()
        for _ in range(12):
            await server.publish(*(delta("x") for n in range(500)))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False
            await c.wait_type("run.delta", 6000)


async def test_a_known_device_without_last_seq_is_truncated(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        await server.publish(delta("old"))
        phone.last_seq = None
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            await server.publish(delta("new"))
            await c.wait_type("run.delta")
    assert text_of(phone.got) == "new"


@pytest.mark.parametrize("last_seq", [10**6, 2**50, 2**51])
async def test_an_impossible_last_seq_moves_the_base_on_disk_first(tmp_path, last_seq):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        phone.last_seq = last_seq
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            assert c.hello_ok.seq >= last_seq
            (device,) = await server.vault.devices()
            assert server.log.visible - device.base >= last_seq
            await server.publish(delta("a"))
            await c.wait_type("run.delta")
        seen = phone.last_seq
        assert seen > last_seq
        await server.publish(delta("b"))
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False
            await c.wait_type("run.delta")
    assert text_of(phone.got) == "ab"


async def test_who_did_not_get_the_hello_ok_is_told_again(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        phone.last_seq = 2**50
        for _ in range(2):
            async with phone.connect() as c:
                assert c.hello_ok.payload["truncated"] is True
            phone.last_seq = 2**50  # that never reached it
    async with serving(tmp_path) as server:
        phone.url = server.url
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True


async def test_a_database_from_a_backup_reuses_no_number(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path, backup, ignore=shutil.ignore_patterns("backup"))
    async with serving(tmp_path) as server:
        phone.url = server.url
        async with phone.connect() as c:
            await server.publish(delta("lost"), *(delta("x") for _ in range(20)))
            await c.wait_type("run.delta", 21)
    async with serving(backup) as server:
        phone.url = server.url
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            await server.publish(delta("new"))
            await c.wait_type("run.delta")
    seqs = [g.seq for g in phone.got]
    assert seqs == sorted(set(seqs))


async def test_pending_approvals_come_again_on_every_connect(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        await server.publish(approval("apr_1"), approval("apr_2"), resolved("apr_2"))
        async with phone.connect() as c:
            await c.wait_type("approval.resolved")
            assert [g.frame.replay for g in c.got if g.type == "approval.required"] == [False] * 2
        for _ in range(2):
            async with phone.connect() as c:
                again = await c.wait_type("approval.required")
                assert again.frame.replay is True
                assert again.payload["approval_id"] == "apr_1"
                assert again.payload["deadline_ts"] == 99.0
        late = server.phone()
        async with late.connect(await server.token()) as c:
            await c.wait_type("approval.required")
        await server.publish(resolved("apr_1"))
        async with phone.connect() as c:
            await c.wait_type("approval.resolved")
            await c.send("ping")
            await c.wait_type("pong")
            assert [g.type for g in c.got[1:]] == ["approval.resolved", "pong"]


async def test_a_snapshot_for_who_can_take_it(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired("snapshot")
        await server.publish(started("run_0"), delta("old", "run_0"), completed("old", "run_0"))
        await server.publish(*(delta("x", "run_9") for _ in range(600)))
        await server.publish(started(), delta("so "), delta("far"), approval())
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            await c.wait_type("snapshot.done")
            await server.publish(delta(", and on"))
            await c.wait_type("run.delta", 2)
        shown = [(g.type, g.frame.replay) for g in phone.got]
        assert shown[-6:] == [
            ("run.started", True),
            ("run.delta", True),
            ("run.completed", True),
            ("approval.required", True),
            ("snapshot.done", True),
            ("run.delta", False),
        ]
        assert text_of(phone.got) == "so far, and on"


async def test_a_new_phone_with_snapshot_sees_what_runs_but_no_history(tmp_path):
    async with serving(tmp_path) as server:
        await server.publish(started("run_0"), completed("old", "run_0"), started(), delta("now"))
        phone = server.phone("snapshot")
        async with phone.connect(await server.token()) as c:
            assert c.hello_ok.payload["truncated"] is False
            assert c.hello_ok.seq == 0
            await c.wait_type("snapshot.done")
    assert [g.type for g in phone.got] == ["run.started", "run.delta", "snapshot.done"]


@pytest.mark.parametrize("seen", [0, 1, 2, 3])
async def test_a_snapshot_that_was_cut_off_is_told_anew(tmp_path, seen):
    """The connection broke amid it, and the phone noted what it had got so far."""
    async with serving(tmp_path) as server:
        await server.publish(started(), delta("so far"), approval())
        phone = server.phone("snapshot")
        async with phone.connect(await server.token()) as c:
            await c.wait_type("snapshot.done")
        whole = [g.type for g in phone.got]
        assert len(whole) == 4
        phone.last_seq = [c.hello_ok, *phone.got][seen].seq
        phone.got.clear()
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is True
            await c.wait_type("snapshot.done")
        assert [g.type for g in phone.got] == whole
        phone.got.clear()
        async with phone.connect() as c:
            assert c.hello_ok.payload["truncated"] is False


async def test_a_plain_client_gets_no_snapshot(tmp_path):
    async with serving(tmp_path) as server:
        await server.publish(started(), delta("now"))
        phone = server.phone()
        async with phone.connect(await server.token()) as c:
            await c.send("ping")
            await c.wait_type("pong")
    assert [g.type for g in phone.got] == ["pong"]


async def test_snapshot_and_live_join_without_loss_under_load(tmp_path):
    """Text so far plus what follows is the whole text, whenever one connects."""
    async with serving(tmp_path) as server:
        await server.publish(started())
        count, joined = 1500, []

        async def stream():
            for n in range(0, count, 3):
                await server.publish(*(delta(f"{n + i} ") for i in range(3)))

        async def join(delay):
            phone = server.phone("snapshot")
            await server.log_reached(delay)
            async with phone.connect(await server.token()) as c:
                whole = "".join(f"{n} " for n in range(count))
                await c.wait_for(lambda: text_of(c.got) == whole)
                joined.append(c)

        async with asyncio.TaskGroup() as tasks:
            for n in range(10):
                tasks.create_task(join(n * 100))
            tasks.create_task(stream())
        assert len(joined) == 10
        for c in joined:
            assert [g.type for g in c.got[1:]].index("run.started") == 0


async def test_reconnecting_again_and_again_loses_and_doubles_nothing(tmp_path):
    async with serving(tmp_path) as server:
        phone = await server.paired()
        count = 1200

        async def stream():
            for n in range(0, count, 2):
                await server.publish(delta(f"{n} "), delta(f"{n + 1} "))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stream())
            got = 0
            while got < count:
                async with phone.connect() as c:
                    assert c.hello_ok.payload["truncated"] is False
                    await c.send("ping")
                    want = min(count, got + 100)
                    await c.wait_for(lambda w=want: len(phone.events("run.delta")) >= w)
                got = len(phone.events("run.delta"))
        assert text_of(phone.got) == "".join(f"{n} " for n in range(count))


async def test_two_hellos_at_once_of_a_device_whose_base_moves(tmp_path):
    """Whichever is let in last counts from the base that is on disk."""
    async with serving(tmp_path) as server:
        phone = await server.paired()
        set_base, slow = server.vault.set_base, asyncio.Event()

        async def stalls(device_id, base):
            if not slow.is_set():
                slow.set()
                await asyncio.sleep(0.2)
                await server.publish(delta("meanwhile"))
            await set_base(device_id, base)

        server.vault.set_base = stalls
        phone.last_seq = 2**50
        async with phone.open() as one, phone.open() as two, asyncio.TaskGroup() as tasks:
            first = tasks.create_task(one.hello())
            await slow.wait()
            assert (await two.hello()).payload["truncated"] is True
            assert (await first).payload["truncated"] is True
            assert await one.wait_closed() == 4004
            (device,) = await server.vault.devices()
            assert [status.device.base for status in server.hub.desk.devices()] == [device.base]
            await server.publish(delta("live"))
            got = await two.wait_type("run.delta")
            assert got.seq == server.log.visible - device.base


async def test_a_hello_without_a_position_left_does_not_break_the_commit_it_waits_for(tmp_path):
    def no_position():
        raise Exhausted

    async with serving(tmp_path) as server, asyncio.TaskGroup() as tasks:
        tasks.create_task(server.publish(delta("a")))
        await asyncio.sleep(0)  # now it is on its way
        with pytest.raises(Exhausted):
            await server.log.at_rest(no_position)
