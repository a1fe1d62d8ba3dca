"""Both ends of the link in one process, over a real ipc socket."""

from __future__ import annotations

import asyncio
import logging
import stat
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_shim import wire
from hermes_shim.link import Link
from loomid.errors import GatewayOffline, OutcomeUnknown
from loomid.gateway import CommandFailed, Gateways
from loomid.lmp.facts import Arrival, GatewayDown, GatewayLost, GatewayUp
from tests.support.host import delta, identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

BEAT = 0.05


async def until(condition: Callable[[], Any], bound: float = 10.0) -> None:
    async with asyncio.timeout(bound):
        while not condition():  # noqa: ASYNC110 - what another thread does sets no event
            await asyncio.sleep(0.002)


class Shim:
    """A Link whose owner records what loomid asks."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.commands: list[wire.Command] = []
        self.answer = True
        self.link = Link(
            identity(**fields),
            [f"ipc://{path.parent}/absent.sock", f"ipc://{path}"],
            execute=self.execute,
            inventory=lambda: self.link.emit("inventory", {"keys": [], "approvals": []}),
            log=logging.getLogger("shim"),
            beat_s=BEAT,
        )

    def execute(self, command: wire.Command) -> None:
        self.commands.append(command)
        if command.args.get("raise"):
            raise KeyError("secret")
        if self.answer:
            error = command.args.get("error")
            self.link.reply(wire.Result(command.id, error, value={"echo": command.args}))


class Daemon:
    """Gateways with everything it took."""

    def __init__(self, path: Path, **options: Any) -> None:
        options = {"acked": {}, "instance": "i1", "deadline_s": 5.0} | options
        self.gateways = Gateways(path, version="0.1.0", clock=time.time, beat_s=BEAT, **options)
        self.taken: list[Arrival] = []

    def take(self) -> list[Arrival]:
        self.taken += self.gateways.take()
        return self.taken

    def ack(self) -> None:
        for arrival in self.taken:
            if arrival.n:
                self.gateways.ack(arrival.gateway_id, arrival.boot, arrival.n)

    def of(self, *types: type) -> list[Any]:
        return [a.fact for a in self.take() if isinstance(a.fact, types)]

    def texts(self) -> str:
        return "".join(fact.text for fact in self.of(wire.Delta))


@asynccontextmanager
async def daemon(path: Path, **options: Any) -> AsyncIterator[Daemon]:
    it = Daemon(path, **options)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(it.gateways.run())
        await it.gateways.ready.wait()
        yield it
        task.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "hermes.sock"


@pytest.fixture
def shim_of(path: Path) -> Iterator[Callable[..., Shim]]:
    shims: list[Shim] = []

    def make(**fields: Any) -> Shim:
        shims.append(Shim(path, **fields))
        return shims[-1]

    yield make
    for shim in shims:
        shim.link.stop(0.0)


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
        assert it.taken[0].fact == GatewayUp("Stand-in", "0.22.2", "0.1.0", ["stream"], None)
        it.ack()
        await until(lambda: len(shim.link._backlog) == 0)
        assert shim.link.state == "linked"
        (state,) = it.gateways.states()
        assert state.online
        assert state.boot == it.gateways.boot_of("gw1") == "boot1"


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
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "one"})
        shim.link.emit("turn.answered", {"turn_id": "t1", "text": "two"})
        await until(lambda: len(it.of(wire.TurnAnswered)) == 2)
        first = next(a for a in it.taken if getattr(a.fact, "text", "") == "one")
        it.gateways.ack("gw1", "boot1", first.n)
    shim.link.emit("turn.answered", {"turn_id": "t1", "text": "three"})
    async with daemon(path, acked={("gw1", "boot1"): first.n}, instance="i2") as again:
        await until(lambda: len(again.of(wire.TurnAnswered)) == 2)
        assert [fact.text for fact in again.of(wire.TurnAnswered)] == ["two", "three"]
        await until(lambda: len(again.of(wire.Inventory)) == 2 - (first.n > 1))


async def test_a_command_runs_once_and_its_result_is_kept(path, shim_of):
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: it.gateways.boot_of("gw1"))
        args = {"a": "\udc00"}
        value = await it.gateways.command("gw1", "running", args, command_id="c1")
        assert value == {"echo": {"a": "�"}}
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "cancel", {"error": "not_active"}, command_id="c2")
        assert failed.value.code == "not_active"
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "fly", {}, command_id="c3")
        assert failed.value.code == "unknown_op"
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "running", {"raise": 1}, command_id="c4")
        assert (failed.value.code, failed.value.detail) == ("failed", "KeyError")
        # The same id again: the stored result, and nothing runs.
        assert await it.gateways.command("gw1", "running", {}, command_id="c1") == value
        assert [c.id for c in shim.commands] == ["c1", "c2", "c4"]
        result = await it.gateways.recall("gw1", "boot1", "c1")
        assert result is not None
        assert result.value == value
        assert await it.gateways.recall("gw1", "boot1", "never") is None
        # What was told not to have run does not run later either.
        with pytest.raises(CommandFailed) as failed:
            await it.gateways.command("gw1", "running", {}, command_id="never")
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
        shim.link.reply(wire.Result("c1"))
        await until(lambda: "late result of command 'c1'" in caplog.text)


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
        assert len(shim.link._backlog) == 0


async def test_newer_process_wins_and_the_older_still_counts(path, shim_of, caplog):
    caplog.set_level(logging.INFO)
    old = shim_of(boot="old", pid_started=0.0)
    new = shim_of(boot="new", pid_started=0.0)
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


async def test_another_wire_version_is_refused_by_name_once(path, shim_of, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    shim = shim_of()
    async with daemon(path) as it:
        with monkeypatch.context() as patch:
            tomorrow = b'{"m":"hello","wire":2,"gateway_id":"gw1","shape":"other"}'
            patch.setattr(shim.link, "_hello", lambda: shim.link._send(tomorrow))
            shim.link.start()
            await until(lambda: shim.link.state == "refused")
            shim.link._hello()
            await until(lambda: it.gateways.incompatible())
            line = "gateway gw1 speaks wire version 2, this loomid 1"
            assert it.gateways.incompatible() == [line]
            assert it.gateways.states() == []
        await until(lambda: shim.link.state == "linked")  # by trying again
        assert it.gateways.incompatible() == []
    assert caplog.text.count("wire version 2") == 1
    assert caplog.text.count("loomid speaks wire version [1]") == 1
