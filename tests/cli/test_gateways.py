"""loomictl and the Hermes gateways: which there are, and those that are no more."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.daemon import Daemon
from tests.support.link import Shim
from tests.support.loomictl import loomictl
from tests.support.main_job import demo_agent, main_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


async def ctl(daemon: Daemon, *arguments: str) -> Any:
    return await asyncio.to_thread(loomictl, daemon.runtime_dir, *arguments)


async def listed(daemon: Daemon) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((await ctl(daemon, "gateways", "--json")).stdout)[
        "gateways"
    ]
    return found


async def reach(daemon: Daemon, *, online: bool) -> str:
    """Wait until the one gateway is, or is not, online; its id."""
    async with asyncio.timeout(20):
        while True:
            found = (await asyncio.to_thread(daemon.status))["gateways"]
            if found and found[0]["online"] == online:
                return str(found[0]["gateway_id"])


async def test_forget(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        nothing = await ctl(daemon, "gateways")
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert "loomictl hermes install" in nothing.stderr
        async with demo_agent(daemon, home=tmp_path / "home"):
            phone = await main_job(daemon, daemon.url)
            refused = await ctl(daemon, "gateways", "forget", "Demo")
            assert (refused.returncode, "online" in refused.stderr) == (1, True)
        gateway_id = await reach(daemon, online=False)
        told = (await ctl(daemon, "gateways")).stdout
        assert gateway_id in told
        assert "offline for" in told
        async with phone.connect() as connection:
            assert connection.hello_ok.payload["gateways"][0]["gateway_id"] == gateway_id
            assert (
                len((await connection.request("task.list", request_id="l1")).payload["tasks"]) == 1
            )
            done = await ctl(daemon, "gateways", "forget", gateway_id[:6])
            assert (done.returncode, done.stdout) == (0, f"Forgot Demo ({gateway_id}).\n")
            event = await connection.wait_type("gateway.forgotten")
            assert event.payload == {"gateway_id": gateway_id, "name": "Demo"}
            assert (await connection.request("task.list", request_id="l2")).payload["tasks"] == []
        again = await ctl(daemon, "gateways", "forget", "Demo")
        assert (again.returncode, "there is no gateway 'Demo'" in again.stderr) == (1, True)
        audit = json.loads((await ctl(daemon, "audit", "--json")).stdout)["audit"]
        forgotten = [(row["who"], row["action"], row["about"]) for row in audit]
        assert ("loomictl", "gateway.forgotten", gateway_id) in forgotten
        daemon.kill()
        await asyncio.to_thread(daemon.start)
        assert await listed(daemon) == []
        async with phone.connect() as connection:
            assert connection.hello_ok.payload["gateways"] == []
        async with demo_agent(daemon, home=tmp_path / "home"), phone.connect() as connection:
            (one,) = connection.hello_ok.payload["gateways"]
            assert (one["gateway_id"], one["online"]) == (gateway_id, True)


@asynccontextmanager
async def at_home(daemon: Daemon, home: Path, **more: Any) -> AsyncIterator[None]:
    """A gateway of this machine with that home."""
    shim = Shim(daemon.runtime_dir / "hermes.sock", home=str(home), **more)
    shim.link.start()
    try:
        await reach(daemon, online=True)
        yield
    finally:
        await asyncio.to_thread(shim.link.stop)


async def test_status_tells_which_is_which(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "state.db").write_bytes(b"SQLite format 3\x00")
    with Daemon(tmp_path) as daemon:
        async with at_home(daemon, tmp_path / "work", gateway_id="0123456789abcdef"):
            told = (await ctl(daemon, "status")).stdout
            assert f", id 01234567, home {tmp_path}/work\n" in told
            assert "CANNOT READ" not in told
            assert str(tmp_path / "work") in (await ctl(daemon, "gateways")).stdout
        assert "cannot read" not in daemon.log()


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b"hello", "not a database")]
)
async def test_a_database_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    database = tmp_path / "state.db"
    if content is not None:
        database.write_bytes(content)
    with Daemon(tmp_path) as daemon:
        for boot in ("b1", "b2"):
            async with at_home(daemon, tmp_path, boot=boot):
                told = (await ctl(daemon, "status")).stdout
                assert f"CANNOT READ {database}: {why}; no history" in told
                assert "README, As a service" in told
        assert daemon.log().count(f"{database}: {why}") == 1
