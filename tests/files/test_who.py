"""Who may bring and fetch files."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, BinaryIO

import aiohttp
import pytest

from loomid.errors import StorageFailing
from loomid.fileindex import Use
from loomid.lmp.scopes import DEFAULT
from tests.support import disk
from tests.support.carrying import MIB, carrying, cut_off, left_behind
from tests.support.daemon import Daemon
from tests.support.phone import Phone
from tests.support.samples import Carrier, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from loomid.files import Kept
    from loomid.lmp.scopes import Scopes
    from tests.support.hub import Server


async def test_without_a_credential_or_with_a_wrong_one(server: Server, carrier: Carrier):
    ref = await carrier.upload(b"mine")
    _, begun = await carrier.begin(b"hello")
    device_id, good = carrier.phone.device_id, carrier.phone.credential
    for auth in (
        "",
        "Bearer",
        f"Bearer {device_id}",
        f"Bearer {device_id}.",
        f"Bearer {device_id}.{good}x",
        f"Bearer dev_none.{good}",
        f"Basic {device_id}.{good}",
    ):
        for method, path in (
            ("POST", "/upload"),
            ("PATCH", f"/upload/{begun['upload_id']}"),
            ("GET", f"/files/{ref['attachment_id']}"),
        ):
            more = {"json": {"bytes": 5, "sha256": sha256(b"other")}} if method == "POST" else {}
            headers = {"Authorization": auth, "Upload-Offset": "0"}
            status, error = await carrier.call(method, path, headers=headers, **more)
            assert (status, error["code"]) == (401, "unauthorized"), (auth, method)
    query = f"?device_id={device_id}&credential={good}"
    status, _ = await carrier.call(
        "GET", f"/files/{ref['attachment_id']}{query}", headers={"Authorization": ""}
    )
    assert status == 401, "never in a URL"


@pytest.mark.parametrize(("held", "status"), [((), 401), (("view",), 403)])
async def test_an_upload_ends_when_its_device_may_do_it_no_more(
    server: Server, carrier: Carrier, held: Scopes, status: int
):
    """At once, although its phone sends nothing that would show it."""
    device_id = str(carrier.phone.device_id)
    _, begun = await carrier.begin(bytes(MIB))
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield bytes(1000)
        await never.wait()
        yield b""

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(cut_off(carrier.append(begun["upload_id"], 0, stuck())))
        part = server.files.folder.parent / "uploads" / begun["upload_id"]
        await until(lambda: part.exists() and part.stat().st_size == 1000)
        if held:
            await server.hub.desk.change(device_id, scopes=held)
        else:
            await server.hub.desk.revoke(device_id)
        assert await sending
        never.set()
    assert (await carrier.begin(b"hello"))[0] == status


async def test_a_download_ends_when_its_device_is_revoked(server: Server, carrier: Carrier):
    ref = await carrier.upload(bytes(4 * MIB))
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
    writer.write(
        f"GET /files/{ref['attachment_id']} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {carrier.auth['Authorization']}\r\n\r\n".encode()
    )
    got = await reader.read(1)
    await server.hub.desk.revoke(str(carrier.phone.device_id))
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65536):
                got += piece
    writer.close()
    assert len(got) < 4 * MIB


async def test_a_download_ends_before_it_begins(
    server: Server, carrier: Carrier, caplog: pytest.LogCaptureFixture
):
    """It is counted as one that broke off, and no error."""
    ref = await carrier.upload(b"hello")
    read = server.files.read

    async def revoked_meanwhile(kept: Kept) -> BinaryIO:
        await server.hub.desk.revoke(str(carrier.phone.device_id))
        return await read(kept)

    server.files.read = revoked_meanwhile  # type: ignore[method-assign] - it happens just then
    await cut_off(carrier.call("GET", f"/files/{ref['attachment_id']}"))
    await until(lambda: server.hub.tally.transfers["files", "broken_off"] == 1)
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_who_watches_devices_is_told_when_a_removal_is_stored(
    server: Server, carrier: Carrier, tmp_path: Path
):
    """What a device brought goes then; and when it could not be stored, it is there again."""
    told: list[tuple[Scopes, int]] = []

    def watcher(_: str, held: Scopes) -> None:
        with closing(sqlite3.connect(tmp_path / "loomid.db")) as other:
            told.append((held, *other.execute("SELECT count(*) FROM device").fetchone()))

    server.hub.watch_devices(watcher)
    device_id = str(carrier.phone.device_id)
    with disk.locked(tmp_path / "loomid.db"), pytest.raises(StorageFailing):
        await server.hub.desk.revoke(device_id)
    assert told == [((), 1), (DEFAULT, 1)]
    await server.hub.desk.revoke(device_id)
    assert told[2:] == [((), 1), ((), 0)]


async def test_what_a_revoked_device_brought_goes_with_it(server: Server, carrier: Carrier):
    """But not what a task has, another device too, or a message on its way needs."""

    async def kept(data: bytes) -> Kept:
        return await server.files.find(f"att_{sha256(data)}", str(carrier.phone.device_id))

    async with carrying(server) as other:
        for data in (b"unused", b"of a task", b"of both", b"on its way"):
            await carrier.upload(data)
        await other.upload(b"of both")
        _, theirs = await other.begin(b"theirs")
        await carrier.begin(b"unfinished")
        await server.files.send_with(await kept(b"of a task"), Use("b.txt", message_id="m1"))
        await server.files.settle("m1", "task_1")
        device_id = str(carrier.phone.device_id)
        pending = Use("b.txt", device_id=device_id, message_id="m2")
        await server.files.send_with(await kept(b"on its way"), pending)
        await server.hub.desk.revoke(device_id)
        await server.uploads.tend()
        await server.files.tend()
        stay = [sha256(data) for data in (b"of a task", b"of both", b"on its way")]
        assert sorted(left_behind(server)) == sorted(stay)
        assert [one.upload_id for one in await server.files.index.uploads()] == [
            theirs["upload_id"]
        ]
        assert server.files.removed == {"unused": 1}
        assert (await other.call("GET", f"/files/att_{stay[0]}"))[0] == 200


async def test_the_daemon_removes_it_at_once(tmp_path: Path):
    with Daemon(tmp_path) as daemon:
        phone = Phone(daemon.url)
        async with phone.connect(daemon.pair()["qr"]["token"]):
            pass
        async with aiohttp.ClientSession() as session:
            carrier = Carrier(phone, session)
            await carrier.upload(b"unused")
            _, begun = await carrier.begin(b"unfinished")
            await carrier.append(begun["upload_id"], 0, b"unf")

        def there() -> list[Path]:
            return [
                one for name in ("files", "uploads") for one in daemon.state_dir.glob(f"{name}/*")
            ]

        assert len(there()) == 2
        await asyncio.to_thread(daemon.call, "DELETE", f"/devices/{phone.device_id}")
        await until(lambda: not there())


async def test_files_of_another_device(server: Server, carrier: Carrier):
    """Until a task has them, they are nobody else's; an upload never is."""
    async with carrying(server) as other:
        ref = await carrier.upload(b"mine")
        _, begun = await carrier.begin(b"hello")
        path = f"/files/{ref['attachment_id']}"
        status, error = await other.call("GET", path)
        assert (status, error["code"]) == (404, "unknown_file")
        status, error = await other.append(begun["upload_id"], 0, b"hello")
        assert (status, error["code"]) == (404, "unknown_file")
        status, mine = await other.begin(b"mine")
        assert (status, mine["offset"]) == (201, 0), "to know a digest is not to have a file"
        kept = await server.files.find(ref["attachment_id"], str(carrier.phone.device_id))
        await server.files.send_with(kept, Use("b.txt", message_id="m1"))
        await server.files.settle("m1", "task_1")
        assert await other.call("GET", path) == (200, b"mine")
        assert (await other.call("GET", f"{path}?task_id=task_1"))[0] == 200
        assert (await other.call("GET", f"{path}?task_id=task_2"))[0] == 404


@pytest.mark.parametrize(
    "name", ["x", "att_", "att_" + "0" * 64, "..%2f..%2floomid.db", "%2e%2e", "att_%00", "' OR 1=1"]
)
async def test_unknown_files(carrier: Carrier, name: str):
    await carrier.upload(b"mine")
    status, error = await carrier.call("GET", f"/files/{name}")
    assert status == 404
    assert not isinstance(error, dict) or error["code"] == "unknown_file"
