"""A disk on which no file finds room any more: a small one, in truth."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support import disk, samples
from tests.support.answering import Host
from tests.support.carrying import MIB
from tests.support.daemon import Daemon
from tests.support.handing import handed
from tests.support.phone import Phone
from tests.support.samples import Carrier, b64, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PNG = {"data": b64(samples.png()), "name": "b.png"}
SEND = {"text": "look", "request_id": "r1", "attachments": [PNG]}
DATA = bytes(range(256)) * 4096 * 4


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    """Its state is on a disk of 40 MiB, of which files may use some 24."""
    daemon = Daemon(tmp_path)
    with disk.small_disk(daemon.state_dir, 40 * MIB):
        await asyncio.to_thread(daemon.start)
        yield daemon
        daemon.close()


@pytest.fixture
async def gateway(daemon: Daemon) -> AsyncIterator[Host]:
    host = Host(daemon.runtime_dir / "hermes.sock")
    host.link.start()
    await until(lambda: any(g["online"] for g in daemon.status()["gateways"]))
    yield host
    await asyncio.to_thread(host.link.stop, 0.1)


def lies_there(daemon: Daemon) -> list[str]:
    return [one.name for name in ("files", "uploads") for one in daemon.state_dir.glob(f"{name}/*")]


async def test_nothing_fits_in_any_more(daemon: Daemon, gateway: Host, tmp_path: Path):
    """Each way in says so and leaves nothing half; later it works, on the same connection."""
    report = tmp_path / "report.pdf"
    report.write_bytes(samples.PDF)
    phone = Phone(daemon.url)
    pairing = phone.connect(daemon.pair()["qr"]["token"])
    async with pairing as c, aiohttp.ClientSession() as session:
        carrier = Carrier(phone, session)
        _, begun = await carrier.begin(DATA)
        await carrier.append(begun["upload_id"], 0, DATA[:MIB])
        with disk.filled(daemon.state_dir):
            status, error = await carrier.append(begun["upload_id"], MIB, DATA[MIB:])
            assert (status, error["code"]) == (503, "storage_failing")
            status, error = await carrier.begin(b"another")
            assert (status, error["code"]) == (503, "storage_failing")
            asked = await c.request("session.send", **SEND)
            assert (asked.payload["code"], asked.payload["fatal"]) == ("storage_failing", False)
            gateway.link.emit("file.sent", handed("out-1", report))
            await until(lambda: daemon.log().count("the files cannot be read or written") >= 3)
            await c.send("ping")
            await c.wait_type("pong")
            assert lies_there(daemon) == [begun["upload_id"]]
            assert gateway.commands == []
        assert (await carrier.begin(DATA))[1]["offset"] == MIB
        status, done = await carrier.append(begun["upload_id"], MIB, DATA[MIB:])
        assert (status, done["attachment"]["bytes"]) == (200, len(DATA))
        sent = await c.wait_type("run.attachment", timeout=30)
        assert sent.payload["attachment_id"] == f"att_{sha256(samples.PDF)}"
        await c.send("session.send", SEND)
        await c.wait_type("session.send.result")
        assert len(gateway.ops("inject_files")) == 1
        assert c.closed is None
    kept = [sha256(data) for data in (DATA, samples.PDF, samples.png())]
    assert sorted(lies_there(daemon)) == sorted(kept)
    assert "Traceback" not in daemon.log()


async def test_what_would_fill_the_disk_is_refused_before_it_does(daemon: Daemon):
    """Else a phone could have the database fail: all goes on, and what is smaller is taken."""
    phone = Phone(daemon.url)
    pairing = phone.connect(daemon.pair()["qr"]["token"])
    async with pairing as c, aiohttp.ClientSession() as session:
        carrier = Carrier(phone, session)
        begun = [(await carrier.begin(bytes([n]) * 15 * MIB))[1]["upload_id"] for n in range(2)]
        assert (await carrier.append(begun[0], 0, bytes(14 * MIB)))[0] == 200
        status, error = await carrier.append(begun[1], 0, b"\1" * 15 * MIB)
        assert (status, error["code"]) == (503, "storage_failing")
        status, error = await carrier.begin(b"\2" * 30 * MIB)
        assert (status, error["code"]) == (503, "storage_failing")
        assert lies_there(daemon) == [begun[0]]
        await carrier.upload(b"small")
        assert not (await asyncio.to_thread(daemon.status))["log"]["failing"]
        assert c.closed is None


async def test_a_file_without_room_holds_up_no_other(daemon: Daemon, gateway: Host, tmp_path: Path):
    """It waits until there is room."""
    large, report = tmp_path / "large.bin", tmp_path / "report.pdf"
    large.write_bytes(bytes(30 * MIB))
    report.write_bytes(samples.PDF)
    async with Phone(daemon.url).connect(daemon.pair()["qr"]["token"]) as c:
        gateway.link.emit("file.sent", handed("out-1", large))
        gateway.link.emit("file.sent", handed("out-2", report))
        sent = await c.wait_type("run.attachment")
        assert sent.payload["attachment_id"] == f"att_{sha256(samples.PDF)}"
        assert lies_there(daemon) == [sha256(samples.PDF)]
        disk.resize(daemon.state_dir, 80 * MIB)
        sent = await c.wait_type("run.attachment", 2, timeout=30)
        assert sent.payload["bytes"] == 30 * MIB
    assert "Traceback" not in daemon.log()


async def test_it_fills_while_bytes_come(daemon: Daemon):
    """What has come stays; the phone goes on behind it."""
    phone = Phone(daemon.url)
    pairing = phone.connect(daemon.pair()["qr"]["token"])
    async with pairing as c, aiohttp.ClientSession() as session:
        carrier = Carrier(phone, session)
        _, begun = await carrier.begin(DATA)
        part = daemon.state_dir / "uploads" / begun["upload_id"]
        full = contextlib.ExitStack()

        async def meanwhile() -> AsyncIterator[bytes]:
            yield DATA[:MIB]
            await until(lambda: part.exists() and part.stat().st_size == MIB)
            full.enter_context(disk.filled(daemon.state_dir))
            yield DATA[MIB:]

        status, error = await carrier.append(begun["upload_id"], 0, meanwhile())
        assert (status, error["code"]) == (503, "storage_failing")
        full.close()
        offset = (await carrier.begin(DATA))[1]["offset"]
        assert MIB <= offset < len(DATA)
        status, done = await carrier.append(begun["upload_id"], offset, DATA[offset:])
        assert status == 200
        got = await carrier.call("GET", f"/files/{done['attachment']['attachment_id']}")
        assert got == (200, DATA)
        assert c.closed is None
    assert "Traceback" not in daemon.log()
