"""Two versions that do not fit say so at every door, and name both."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from hermes_shim import link
from loomid import __version__, ctl
from loomid.database import FILE, MIGRATIONS
from loomid.lmp.frames import PROTOCOL_VERSION
from loomid.wire import WIRE_VERSION
from tests.support.daemon import Daemon
from tests.support.host import identity
from tests.support.loomictl import loomictl
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d")) as running:
        yield running


@pytest.mark.parametrize(
    ("v", "hello"),
    [
        (PROTOCOL_VERSION + 1, {"protocol_version": PROTOCOL_VERSION + 1, "token": "t"}),
        (PROTOCOL_VERSION, {"protocol_version": PROTOCOL_VERSION + 1, "token": "t"}),
        (PROTOCOL_VERSION + 1, {"secret": "of another shape"}),
        (0, {"protocol_version": 0}),
    ],
)
async def test_phones(daemon: Daemon, v: int, hello: dict[str, Any]) -> None:
    """Told which versions are spoken, and closed: a phone that comes back finds the same wall."""
    async with aiohttp.ClientSession() as session, session.ws_connect(daemon.url) as socket:
        await socket.send_str(json.dumps({"v": v, "type": "hello", "payload": hello}))
        said = json.loads(await socket.receive_str())
        assert said["payload"] == {
            "code": "unsupported_version",
            "message": "This server does not speak that protocol version.",
            "fatal": True,
            "params": {"speaks": [PROTOCOL_VERSION]},
        }
        assert (await socket.receive()).data == 4000


class Nobody:
    """Who takes no commands."""

    def ready(self) -> bool:
        return True


async def test_the_plugin(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "WIRE_VERSION", WIRE_VERSION + 1)
    shim = link.Link(identity("gw9"), [daemon.hermes_endpoint], Nobody)
    shim.start()
    try:
        await until(lambda: shim.state == "refused")
        done = await asyncio.to_thread(loomictl, daemon.runtime_dir, "status")
    finally:
        await asyncio.to_thread(shim.stop, 0.1)
    line = f"gw9 speaks wire version {WIRE_VERSION + 1}, this loomid {WIRE_VERSION}"
    assert line in done.stdout


def test_the_database(tmp_path: Path) -> None:
    newer, known = len(MIGRATIONS) + 1, len(MIGRATIONS)
    daemon = Daemon(tmp_path)
    try:
        daemon.start()
        assert daemon.stop(signal.SIGTERM) == 0
        path = daemon.state_dir / FILE
        with closing(sqlite3.connect(path)) as line:
            line.execute(f"PRAGMA user_version = {newer}")
        before = path.read_bytes()
        daemon.spawn()
        assert daemon.wait(30.0) == 73
        said = daemon.log().splitlines()[-1]
        assert f"schema {newer}, this one knows {known}" in said
        assert "install that version again" in said
        check = loomictl(None, "--state-dir", str(daemon.state_dir), "db", "check", home=tmp_path)
        assert (check.returncode, f"schema {newer}" in check.stdout + check.stderr) == (65, True)
        assert path.read_bytes() == before
    finally:
        daemon.close()


@pytest.mark.parametrize("says", [{}, {"Loomid-Version": "0.0.9"}])
async def test_loomictl(tmp_path: Path, says: dict[str, str]) -> None:
    """A daemon that runs on after an upgrade: said once, on stderr, before anything fails."""

    async def devices(_: web.Request) -> web.Response:
        return web.json_response({"devices": []}, headers=says)

    app = web.Application()
    app.router.add_get("/devices", devices)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, tmp_path / "admin.sock").start()
    try:
        done = await asyncio.to_thread(loomictl, tmp_path, "devices", "--json")
    finally:
        await runner.cleanup()
    assert (done.returncode, json.loads(done.stdout)) == (0, {"devices": []})
    other = says.get("Loomid-Version", "unknown")
    assert done.stderr.count(f"version {other}, this loomictl of {__version__}") == 1


def test_loomictl_of_the_same_version_says_nothing(daemon: Daemon) -> None:
    assert loomictl(daemon.runtime_dir, "devices", "--json").stderr == ""
    asked = ctl.Asked(str(daemon.runtime_dir), None)
    assert asked.call("GET", "/devices")["devices"] == []
