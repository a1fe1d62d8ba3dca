"""Both ends of the link in one process, over a real ipc socket."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import threading
from dataclasses import asdict

import pytest

from hermes_shim import link
from hermes_shim.ledger import Backlog
from loomid import hermesdb, processes, wire
from loomid.errors import GatewayOffline, OutcomeUnknown
from loomid.gateway import CommandFailed
from loomid.lmp.facts import GatewayDown, GatewayLost, GatewayUp
from tests.support.hermes_home import Home
from tests.support.host import delta, identity
from tests.support.link import daemon
from tests.support.waiting import until


async def test_a_shim_is_told_where_files_go_and_how_large_they_may_be(path, shim_of, tmp_path):
    shim = shim_of()
    shim.link.start()
    async with daemon(path, inbox=tmp_path, max_file_bytes=1000):
        await until(lambda: shim.commands)
    told = {"fact": "inventory", "inbox": str(tmp_path), "max_file_bytes": 1000}
    assert shim.commands[0].args == told


async def test_facts_come_in_order_and_are_acknowledged(path, shim_of):
    shim = shim_of()
    shim.link.emit("delta", delta("before start "))
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.of(wire.Inventory))
        for i in range(50):
            shim.link.emit("delta", delta(f"{i} "))
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "done"})
        await until(lambda: it.of(wire.TurnAnswered))
        numbers = [a.n for a in it.taken if a.n]
        assert numbers == list(range(1, len(numbers) + 1))
        assert it.texts() == "before start " + "".join(f"{i} " for i in range(50))
        pid = os.getpid()
        assert it.taken[0].fact == GatewayUp(
            *("Stand-in", "0.22.2", "0.1.0", ["stream", *wire.FEATURES], None),
            *(pid, processes.process_started(pid), True),
        )
        it.ack()
        await until(lambda: not shim.link._backlog.facts)
        assert shim.link.state == "linked"
        (state,) = it.gateways.states()
        assert state.online
        assert state.boot == it.gateways.boot_of("gw1") == "boot1"


async def test_a_disk_that_hangs_holds_up_its_own_gateway_alone(
    path, shim_of, tmp_path, monkeypatch
):
    """Whether its database can be read is looked at in a thread, once however often it calls."""
    looked, goes_on, obstacle = [], threading.Event(), hermesdb.obstacle

    def slow(home):
        looked.append(home)
        goes_on.wait(20.0)
        return obstacle(home)

    monkeypatch.setattr(hermesdb, "obstacle", slow)
    Home(tmp_path / "home")
    slow_one = shim_of(home=str(tmp_path / "home"))
    async with daemon(path) as it:
        try:
            slow_one.link.start()
            await until(lambda: looked)
            other = shim_of(gateway_id="gw2", boot="boot2")
            other.link.start()
            await until(lambda: other.link.state == "linked")
            peers = {*it.gateways._looked_at.values()}
            await until(lambda: {*it.gateways._looked_at.values()} != peers)  # it called again
            assert (len(looked), it.gateways.boot_of("gw1")) == (1, None)
        finally:
            goes_on.set()
        await until(lambda: slow_one.link.state == "linked")
        ups = [a for a in it.take() if isinstance(a.fact, GatewayUp)]
        assert {(a.gateway_id, a.fact.readable) for a in ups} == {("gw1", True), ("gw2", False)}


async def test_the_socket_is_private_and_a_stale_file_no_obstacle(path, shim_of):
    path.parent.mkdir(mode=0o700)
    path.write_text("stale")
    shim = shim_of()
    shim.link.start()
    async with daemon(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await until(lambda: shim.link.state == "linked")


async def test_a_new_loomid_gets_what_was_not_acknowledged(path, shim_of):
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.of(wire.Inventory))
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "one"})
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "two"})
        await until(lambda: len(it.of(wire.TurnAnswered)) == 2)
        first = next(a for a in it.taken if getattr(a.fact, "text", "") == "one")
        it.gateways.ack("gw1", "boot1", first.n)
    shim.link.emit("turn.answered", {"turn_id": "t1", "text": "three"})
    async with daemon(path, acked={("gw1", "boot1"): first.n}, instance="i2") as again:
        await until(lambda: len(again.of(wire.TurnAnswered)) == 2)
        assert [fact.text for fact in again.of(wire.TurnAnswered)] == ["two", "three"]
        await until(lambda: len(again.of(wire.Inventory)) == 1)  # the new one


async def test_what_found_no_room_is_told(path, shim_of, caplog):
    shim = shim_of()
    shim.link._backlog = Backlog("boot1", most_bytes=40_000)
    shim.link.emit("interim", {"text": object()})
    shim.link.start()
    await until(lambda: shim.link._backlog.dropped)
    for i in range(50):
        shim.link.emit("delta", delta(f"{i}", iteration=i))
    shim.link.emit("turn.answered", {"turn_id": "t1", "text": "x"})
    await until(shim.link._queue.empty)
    async with daemon(path) as it:
        await until(lambda: it.of(wire.TurnAnswered))
        await until(lambda: it.gateways.states()[0].dropped)
        counts = it.gateways.states()[0].dropped
        assert counts["unsendable"] == 1
        assert counts["overflow_delta"] + len(it.of(wire.Delta)) == 50
        assert counts["overflow_delta"] >= 10
        numbers = [a.n for a in it.taken if a.n]
        assert numbers == sorted(set(numbers))
        lost = [line for line in caplog.messages if "lost facts" in line]
        assert len(lost) == 1


async def test_before_start_and_after_stop_the_queue_is_bounded(path, shim_of, monkeypatch):
    monkeypatch.setattr(link, "QUEUE_MAX", 20)
    shim = shim_of()
    for _ in range(200):
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "x"})
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.gateways.states() and it.gateways.states()[0].dropped)
        assert it.gateways.states()[0].dropped == {"queue": 180}
        await until(lambda: len(it.of(wire.TurnAnswered)) == 20)


async def test_an_owner_that_raises_does_not_end_the_link(path, shim_of, caplog):
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.of(wire.Inventory))
        with pytest.raises(OutcomeUnknown):
            await it.gateways.command("gw1", "running", {"raise": 1}, command_id="c1")
        await until(lambda: it.gateways.boot_of("gw1"))
        assert await it.gateways.command("gw1", "running", {}, command_id="c2")
    assert caplog.text.count("met an error and starts anew: KeyError") == 1


async def test_it_connects_only_when_its_owner_is_ready(path, shim_of):
    shim = shim_of()
    shim.is_ready = False
    asked = []
    shim.ready = lambda: asked.append(1) or shim.is_ready
    shim.link.emit("turn.answered", {"turn_id": "t1", "text": "before"})
    async with daemon(path) as it:
        shim.link.start()
        await until(lambda: len(asked) > 3)
        assert it.gateways.boot_of("gw1") is None
        shim.is_ready = True
        await until(lambda: it.of(wire.TurnAnswered))


async def test_a_stop_that_comes_twice_does_not_end_the_next_start(path, shim_of):
    shim = shim_of()
    async with daemon(path):
        shim.link.start()
        await until(lambda: shim.link.state == "linked")
        await asyncio.gather(*(asyncio.to_thread(shim.link.stop, 0.2) for _ in range(3)))
        shim.link.start()
        await until(lambda: shim.link.state == "linked")


def test_only_files_are_endpoints():
    for endpoints in ([], ["tcp://127.0.0.1:1"], ["ipc:///a", "/b"]):
        with pytest.raises(ValueError, match="ipc"):
            link.Link(identity(), endpoints, lambda: None)


async def test_a_command_runs_once_and_its_result_is_kept(path, shim_of):
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.gateways.boot_of("gw1"))
        args = {"a": "\udc00"}
        value = await it.gateways.command("gw1", "cancel", args, command_id="c1")
        assert value == {"echo": {"a": "�"}}
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "cancel", {"error": "not_active"}, command_id="c2")
        assert failed.value.code == "not_active"
        # The same id again: the stored result, and nothing runs.
        assert await it.gateways.command("gw1", "cancel", {}, command_id="c1") == value
        assert [c.id for c in shim.commands] == ["c1", "c2"]
        result = await it.gateways.recall("gw1", "boot1", "c1")
        assert result is not None
        assert result.value == value
        assert await it.gateways.recall("gw1", "boot1", "never") is None
        # What was told not to have run does not run later either.
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "cancel", {}, command_id="never")
        assert failed.value.code == "unknown_command"
        with pytest.raises(OutcomeUnknown):
            await it.gateways.recall("gw1", "boot0", "c1")


async def test_a_stale_command_is_refused(path, shim_of):
    shim = shim_of()
    shim.link.start()
    async with daemon(path, deadline_s=-1.0) as it:
        await until(lambda: it.gateways.boot_of("gw1"))
        with pytest.raises(OutcomeUnknown):  # its deadline had passed before it was sent
            await it.gateways.command("gw1", "running", {}, command_id="c1")
        it.gateways._calls._deadline_s = 5.0
        result = await it.gateways.recall("gw1", "boot1", "c1")
        assert result is not None
        assert result.error == "stale"
        assert shim.commands == []


async def test_without_a_gateway_a_command_fails_at_once(path, shim_of):
    async with daemon(path) as it:
        with pytest.raises(GatewayOffline):
            await it.gateways.command("gw1", "running", {}, command_id="c1")
        with pytest.raises(GatewayOffline):
            await it.gateways.recall("gw1", "boot1", "c1")
        shim = shim_of()
        shim.link.start()
        await until(lambda: it.gateways.boot_of("gw1"))
        await asyncio.to_thread(shim.link.stop, 0.1)
        await until(lambda: it.gateways.boot_of("gw1") is None)
        with pytest.raises(GatewayOffline):
            await it.gateways.command("gw1", "running", {}, command_id="c2")
        assert shim.commands == []


async def test_a_link_lost_after_sending_leaves_the_outcome_unknown(path, shim_of):
    shim = shim_of()
    shim.answer = False
    shim.link.start()
    async with daemon(path) as it, asyncio.TaskGroup() as tasks:
        await until(lambda: it.gateways.boot_of("gw1"))

        async def command() -> None:
            with pytest.raises(OutcomeUnknown):
                await it.gateways.command("gw1", "running", {}, command_id="c1")

        task = tasks.create_task(command())
        await until(lambda: shim.commands)
        await asyncio.to_thread(shim.link.stop, 0.0)
        await task


async def test_no_answer_by_the_deadline_and_a_late_result(path, shim_of, caplog):
    caplog.set_level(logging.INFO, "loomid.gateway")
    shim = shim_of()
    shim.answer = False
    shim.link.start()
    async with daemon(path, deadline_s=0.1) as it:
        await until(lambda: it.gateways.boot_of("gw1"))
        with pytest.raises(OutcomeUnknown):
            await it.gateways.command("gw1", "running", {}, command_id="c1")
        shim.link.reply(asdict(wire.Result("c1")))
        await until(lambda: "a result that nobody waits for" in caplog.text)


async def test_stop_says_bye_and_start_goes_on(path, shim_of):
    shim = shim_of()
    async with daemon(path) as it:
        for turn in ("t1", "t2"):
            shim.link.start()
            shim.link.start()
            await until(lambda: shim.link.state == "linked")
            shim.link.emit("turn.answered", {"turn_id": turn, "text": "x"})
            await asyncio.to_thread(shim.link.stop, 0.3)
            shim.link.stop()
            assert shim.link.state == "stopped"
            await until(lambda t=turn: any(f.turn_id == t for f in it.of(wire.TurnAnswered)))
        await until(lambda: len(it.of(GatewayDown)) == 2)
        numbers = [a.n for a in it.taken if a.n]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_stop_waits_for_acknowledgements_only_so_long(path, shim_of):
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.of(wire.Inventory))
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "x"})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(shim.link.stop, 5.0))
            await until(lambda: it.of(wire.TurnAnswered))
            assert shim.link.state == "linked"
            it.ack()
        assert not shim.link._backlog.facts


async def test_newer_process_wins_and_the_older_still_counts(path, shim_of, caplog):
    caplog.set_level(logging.INFO)
    old = shim_of(boot="old", stat="")
    new = shim_of(boot="new", stat="")
    async with daemon(path) as it:
        old.link.start()
        await until(lambda: old.link.state == "linked" and it.of(wire.Inventory))
        new.link.start()
        await until(lambda: old.link.state == "replaced")
        await until(lambda: it.gateways.boot_of("gw1") == "new")
        assert await it.gateways.command("gw1", "running", {}, command_id="c1")
        assert [len(s.commands) for s in (old, new)] == [0, 1]
        old.link.emit("turn.answered", {"turn_id": "t1", "text": "still"})
        await until(lambda: it.of(wire.TurnAnswered))
        await until(lambda: len(it.of(wire.Inventory)) == 2)
        assert not it.of(GatewayLost)
        await asyncio.to_thread(old.link.stop, 0.1)
        await until(lambda: it.of(GatewayLost))
        (lost,) = [a for a in it.taken if isinstance(a.fact, GatewayLost)]
        assert lost.boot == "old"
        assert it.gateways.boot_of("gw1") == "new"
        assert not it.of(GatewayDown)
    assert caplog.text.count("another process is this gateway now") == 1


async def test_the_older_process_speaks_again_when_the_newer_is_gone(path, shim_of):
    old = shim_of(boot="old", stat="")
    new = shim_of(boot="new", stat="")
    async with daemon(path) as it:
        old.link.start()
        await until(lambda: old.link.state == "linked")
        new.link.start()
        await until(lambda: old.link.state == "replaced")
        await asyncio.to_thread(new.link.stop, 0.1)
        await until(lambda: it.gateways.boot_of("gw1") == "old")
        assert await it.gateways.command("gw1", "running", {}, command_id="c1")
        assert [len(s.commands) for s in (old, new)] == [1, 0]


async def test_another_wire_version_is_refused_by_name_once(path, shim_of, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    shim = shim_of()
    async with daemon(path) as it:
        with monkeypatch.context() as patch:
            tomorrow = {"gateway_id": "gw1", "pid": shim.link._identity["pid"], "shape": "other"}
            patch.setattr(link, "WIRE_VERSION", 2)
            patch.setattr(link, "RETRY_BEATS", 4)
            patch.setattr(shim.link, "_identity", tomorrow)
            shim.link.start()
            await until(lambda: shim.link.state == "refused")
            await until(lambda: shim.link.state != "refused")  # it tries again
            await until(lambda: shim.link.state == "refused")
            line = "gateway gw1 speaks wire version 2, this loomid 1"
            assert it.gateways.incompatible() == [line]
            assert it.gateways.states() == []
        await until(lambda: shim.link.state == "linked")  # by trying again
        assert it.gateways.incompatible() == []
    assert caplog.text.count("wire version 2") == 1
    assert caplog.text.count("loomid speaks wire version 1, this shim 2") == 1
