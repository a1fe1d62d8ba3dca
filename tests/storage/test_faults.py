"""The disk of a running loomid fails (docs/storage.md): phones stay, are told, and miss nothing."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import disk
from tests.support.answering import Host
from tests.support.daemon import Daemon
from tests.support.hub import serving
from tests.support.loomictl import loomictl
from tests.support.phone import Closed, Connection, Phone
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

FAILING_S = 30.0


class Stage:
    """A daemon, a gateway and a phone; what the gateway tells is compared with what comes."""

    def __init__(self, daemon: Daemon, host: Host, phone: Phone, away: Phone) -> None:
        self.daemon, self.host, self.phone, self.away = daemon, host, phone, away
        self.approval = ""
        self._said = 0

    def say(self, count: int) -> None:
        """The model says so many words more."""
        for _ in range(count):
            body = {"turn_id": "t1", "iteration": 1, "text": f"w{self._said} ", "channel": "text"}
            self.host.link.emit("delta", body)
            self._said += 1

    def words(self, phone: Phone) -> list[str]:
        """What a phone has been told of it."""
        return "".join(got.payload["text"] for got in phone.events("run.delta")).split()

    def heard(self) -> int:
        """How many words the phone has; each once, in order."""
        words = self.words(self.phone)
        assert words == [f"w{i}" for i in range(len(words))]
        return len(words)

    async def all_heard(self) -> None:
        await until(lambda: self.heard() == self._said, 20)

    async def told(self, c: Connection, storage: str, count: int = 1) -> dict[str, Any]:
        """Wait until the phone was told of the disk for the count-th time."""
        got = await c.wait_type("server.status", count, FAILING_S)
        assert got.payload["storage"] == storage
        return got.payload

    async def over(self, c: Connection) -> None:
        """The run ends; the phone has all of it, and nothing was sent twice to Hermes."""
        self.host.end_turn("t1")
        await c.wait_type("run.completed", timeout=20)
        await self.all_heard()
        sent = [command.id for command in self.host.commands]
        assert len(sent) == len(set(sent))


@asynccontextmanager
async def on_stage(daemon: Daemon) -> AsyncIterator[tuple[Stage, Connection]]:
    """A run has begun; a phone that has confirmed itself follows it, another is away."""
    await asyncio.to_thread(daemon.start)
    host = Host(daemon.runtime_dir / "hermes.sock")
    host.link.start()
    try:
        await linked(daemon)
        phone, away = await paired(daemon), await paired(daemon)
        async with phone.connect() as c:
            assert c.hello_ok is not None
            assert c.hello_ok.payload["storage"] == "ok"
            stage = Stage(daemon, host, phone, away)
            host.start_turn("t1")
            await c.wait_type("run.started")
            stage.say(3)
            host.ask("s1", "t1")
            stage.approval = (await c.wait_type("approval.required")).payload["approval_id"]
            await stage.all_heard()
            yield stage, c
    finally:
        host.link.stop(0.1)


async def linked(daemon: Daemon) -> None:
    await until(lambda: any(g["online"] for g in daemon.status()["gateways"]))


async def paired(daemon: Daemon) -> Phone:
    """A phone that has paired and come back."""
    phone = Phone(daemon.url)
    async with phone.connect(await token(daemon)):
        pass
    async with phone.connect():
        pass
    return phone


async def token(daemon: Daemon) -> str:
    made = await asyncio.to_thread(daemon.pair)
    return made["qr"]["token"]


async def refused_meanwhile(stage: Stage, c: Connection, unused: str) -> None:
    """While the disk fails: phones are told and answered, and nothing is begun."""
    stage.say(20)
    status = await stage.told(c, "failing")
    told = await asyncio.to_thread(loomictl, stage.daemon.runtime_dir, "status")
    log = (await asyncio.to_thread(stage.daemon.status))["log"]
    first, *rest = told.stdout.splitlines()
    assert first.startswith(f"STORAGE FAILS ({log['reason']}): ")
    assert not [line for line in rest if "STORAGE" in line]
    assert (log["failing"], log["failing_since"]) == (True, status["since"])
    asked = await c.request("session.send", text="hi", request_id="r1")
    assert (asked.type, asked.payload["code"]) == ("error", "storage_failing"), asked
    assert asked.payload["fatal"] is False
    body = {"approval_id": stage.approval, "choice": "once", "request_id": "r2"}
    asked = await c.request("approval.resolve", **body)
    assert (asked.type, asked.payload["code"]) == ("error", "storage_failing"), asked
    assert stage.host.commands == []
    await c.send("ping")
    await c.wait_type("pong")
    async with stage.away.connect() as other:
        assert other.hello_ok is not None
        assert other.hello_ok.payload["storage"] == "failing"
    async with Phone(stage.daemon.url).open() as new:
        with pytest.raises(Closed):
            await new.hello(unused)
        assert (new.errors, new.closed) == (["storage_failing"], 1011)
    made = await asyncio.to_thread(loomictl, stage.daemon.runtime_dir, "pair", "--json")
    assert (made.returncode, made.stdout) == (1, "")
    assert "cannot write to its disk" in made.stderr
    assert stage.heard() == 3


async def goes_on(stage: Stage, c: Connection, unused: str) -> None:
    """The disk works again: what was refused can be done, once, and no word is missing."""
    await c.send("session.send", {"text": "hi", "request_id": "r1"})
    await c.wait_type("session.send.result")
    body = {"approval_id": stage.approval, "choice": "once", "request_id": "r2"}
    await c.send("approval.resolve", body)
    await c.wait_type("approval.resolve.result")
    resolved = await c.wait_type("approval.resolved")
    assert resolved.payload["choice"] == "once"
    assert [command.op for command in stage.host.commands] == ["inject", "approve"]
    async with Phone(stage.daemon.url).connect(unused) as new:
        assert new.hello_ok is not None
        assert new.hello_ok.payload["storage"] == "ok"
    stage.say(3)
    await stage.over(c)
    async with stage.away.connect() as other:
        await other.wait_type("run.completed")
        assert other.hello_ok is not None
        assert other.hello_ok.payload["truncated"] is False
    assert stage.words(stage.away) == stage.words(stage.phone)


async def outlasted(daemon: Daemon, fault: Callable[[], AbstractContextManager[None]]) -> str:
    """The whole life of a fault that passes; the journal."""
    async with on_stage(daemon) as (stage, c):
        unused = await token(daemon)
        with fault():
            await refused_meanwhile(stage, c, unused)
        await stage.told(c, "ok", 2)
        await goes_on(stage, c, unused)
        assert c.closed is None
    assert await asyncio.to_thread(daemon.stop) == 0
    journal = daemon.log()
    assert journal.count("cannot store: ") == journal.count("stored again after ") >= 1
    assert "Traceback" not in journal
    return journal


async def test_a_full_disk(daemon: Daemon) -> None:
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        journal = await outlasted(daemon, lambda: disk.filled(daemon.state_dir))
    assert "database or disk is full" in journal


async def test_another_process_holds_the_database(daemon: Daemon) -> None:
    journal = await outlasted(daemon, lambda: disk.locked(daemon.state_dir / "loomid.db"))
    assert "database is locked" in journal


async def test_devices_that_cannot_be_stored_add_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as server:
        await server.paired()
        with disk.locked(tmp_path / "loomid.db"):
            await server.hub.close()
    lines = [record.getMessage() for record in caplog.records if "cannot" in record.getMessage()]
    assert lines == ["cannot store: database is locked; trying until it works"]


async def test_errors_of_input_and_output(daemon: Daemon) -> None:
    def fault() -> AbstractContextManager[None]:
        size = (daemon.state_dir / "loomid.db-wal").stat().st_size
        return disk.no_larger_files(daemon.pid, size)

    assert "disk I/O error" in await outlasted(daemon, fault)


async def test_a_disk_that_becomes_read_only(daemon: Daemon, tmp_path: Path) -> None:
    """It stays so until it is repaired; then loomid starts again, and nothing is missing."""
    ext4 = disk.Ext4(tmp_path / "image", daemon.state_dir)
    async with AsyncExitStack() as stack:
        with ext4.mounted():
            stage, c = await stack.enter_async_context(on_stage(daemon))
            unused = await token(daemon)
            ext4.fail()
            await refused_meanwhile(stage, c, unused)
            assert await asyncio.to_thread(daemon.stop) == 0
            assert await c.wait_closed() == 1001
            assert "cannot record a clean stop" in daemon.log()
            daemon.spawn()
            assert await asyncio.to_thread(daemon.wait, 30.0) == 73
            last = daemon.log().splitlines()[-1]
            assert last.startswith("loomid: ")
            assert "LOOMI_STATE_DIR" in last
        ext4.repair()
        with ext4.mounted():
            await asyncio.to_thread(daemon.start)
            await linked(daemon)
            async with stage.phone.connect() as again:
                assert again.hello_ok is not None
                assert again.hello_ok.payload["truncated"] is False
                await goes_on(stage, again, unused)
            daemon.close()
            await stack.aclose()


async def test_a_disk_that_hangs(daemon: Daemon, tmp_path: Path) -> None:
    """A request waits, as nobody knows whether it is written down; all else goes on."""
    ext4 = disk.Ext4(tmp_path / "image", daemon.state_dir)
    with ext4.mounted():
        async with on_stage(daemon) as (stage, c):
            with ext4.frozen():
                stage.say(20)
                await stage.told(c, "failing")
                body = {"text": "hi", "request_id": "r1"}
                await c.send("session.send", body)
                await c.send("ping")
                await c.wait_type("pong")
                assert c.errors == []
            await stage.told(c, "ok", 2)
            await c.wait_type("session.send.result")
            assert len(stage.host.ops("inject")) == 1
            stage.say(3)
            await stage.over(c)
        daemon.close()


async def test_an_answer_that_cannot_be_stored_yet(daemon: Daemon) -> None:
    """It is true, so it is told; it stays the same, and is stored in the end."""
    body = {"text": "hi", "request_id": "r1"}
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        async with on_stage(daemon) as (stage, c):
            stage.host.silent.add("inject")
            await c.send("session.send", body)
            await until(lambda: stage.host.ops("inject"))
            with disk.filled(daemon.state_dir):
                stage.say(1)
                await stage.told(c, "failing")
                stage.host.answer(stage.host.ops("inject")[0])
                first = await c.wait_type("session.send.result")
                await c.send("session.send", body)
                again = await c.wait_type("session.send.result", 2)
                assert again.payload == first.payload
            await stage.told(c, "ok", 2)
            stage.host.end_turn("t1")
            await c.wait_type("run.completed")
            await asyncio.to_thread(daemon.kill)
            await c.wait_closed()
            await asyncio.to_thread(daemon.start)
            async with stage.phone.connect() as later:
                told = await later.request("session.send", **body)
                assert told.payload == first.payload
            assert len(stage.host.ops("inject")) == 1
        daemon.close()


async def test_a_phone_that_has_yet_to_confirm_itself_is_let_in(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        phone = await server.paired()
        with disk.locked(tmp_path / "loomid.db"):
            async with phone.connect():
                pass
            assert [s.device.confirmed for s in server.hub.desk.devices()] == [False]
        async with phone.connect():
            assert [s.device.confirmed for s in server.hub.desk.devices()] == [True]
