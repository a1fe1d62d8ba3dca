"""What is not taken, and what has to go."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import aiohttp
import pytest

from loomid import fileindex, uploads, web_files
from loomid.fileindex import Use
from tests.support.carrying import MIB, carrying, left_behind
from tests.support.hub import serving
from tests.support.samples import Carrier, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.hub import Server


async def test_too_large_is_said_when_it_is_announced(server: Server, carrier: Carrier):
    asked = {"bytes": 200 * MIB, "sha256": sha256(b"")}
    status, error = await carrier.call("POST", "/upload", json=asked)
    assert (status, error["code"]) == (413, "too_large")
    assert error["params"] == {"max_file_bytes": 4 * MIB}
    assert left_behind(server) == []


async def test_200_mb_are_refused_before_they_are_read(server: Server, carrier: Carrier):
    """By a phone that sends whatever it is told: what is not taken stays in its own kernel."""
    _, begun = await carrier.begin(b"hello")
    head = (
        f"PATCH /upload/{begun['upload_id']} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\n"
        f"Authorization: {carrier.auth['Authorization']}\r\nContent-Length: {200 * MIB}\r\n\r\n"
    )
    assert await pushed(server, head) < 8 * MIB


async def test_of_a_stranger_nothing_is_read(server: Server, carrier: Carrier):
    _, begun = await carrier.begin(bytes(3 * MIB))
    head = (
        f"PATCH /upload/{begun['upload_id']} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\n"
        f"Authorization: Bearer {carrier.phone.device_id}.wrong\r\nContent-Length: 3000000\r\n\r\n"
    )
    assert await pushed(server, head, b"401") < 3_000_000
    assert left_behind(server) == []


async def pushed(server: Server, head: str, status: bytes = b"413") -> int:
    """How many bytes of a body the other side took until it answered and closed."""
    loop, sent = asyncio.get_running_loop(), 0
    with socket.create_connection((server.host, server.port)) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        one.setblocking(False)
        await loop.sock_sendall(one, head.encode())
        answer = b""

        async def push() -> None:
            nonlocal sent
            while True:
                await loop.sock_sendall(one, bytes(65536))
                sent += 65536

        async with asyncio.timeout(10):
            pushing = loop.create_task(push())
            try:
                while b"\r\n\r\n" not in answer:
                    answer += await loop.sock_recv(one, 4096)
                await asyncio.wait([pushing])
            except ConnectionError:
                pass
            finally:
                pushing.cancel()
                await asyncio.gather(pushing, return_exceptions=True)
        assert answer.split()[1] == status
    return sent


async def test_unfinished_uploads_are_few(server: Server, carrier: Carrier):
    """The oldest of a device makes room; those of others do not."""
    async with carrying(server) as other:
        _, theirs = await other.begin(b"theirs")
        begun = [
            (await carrier.begin(bytes([n])))[1]["upload_id"] for n in range(uploads.PER_DEVICE + 2)
        ]
        for upload_id in begun[:2]:
            assert (await carrier.append(upload_id, 0, b"\0"))[1]["code"] == "unknown_file"
        assert (await other.append(theirs["upload_id"], 0, b"theirs"))[0] == 200
        assert len(await server.files.index.uploads()) == uploads.PER_DEVICE


async def test_transfers_at_once_are_few(
    server: Server, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(web_files, "AT_ONCE", 2)
    go_on = asyncio.Event()
    begun = [(await carrier.begin(bytes([n, n])))[1]["upload_id"] for n in range(2)]

    async def slowly(n: int) -> AsyncIterator[bytes]:
        yield bytes([n])
        await go_on.wait()
        yield bytes([n])

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(carrier.append(name, 0, slowly(n))) for n, name in enumerate(begun)
        ]
        folder = server.files.folder.parent / "uploads"
        await until(lambda: len(list(folder.iterdir())) == 2)
        status, error = await carrier.begin(b"one more")
        assert (status, error["code"]) == (429, "rate_limited")
        go_on.set()
    assert [task.result()[0] for task in running] == [200, 200]
    assert (await carrier.begin(b"one more"))[0] == 201


async def test_room_is_made_by_what_was_used_longest_ago(tmp_path: Path):
    now = [1000.0]
    config = {"max_file_bytes": MIB, "max_bytes": 2 * MIB}
    async with (
        serving(tmp_path, clock=lambda: now[0], files_config=config) as server,
        carrying(server) as carrier,
    ):
        refs = []
        for n in range(3):
            now[0] += 100
            refs.append(await carrier.upload(bytes([n]) * (MIB * 2 // 3), name=f"{n}"))
        now[0] += 100
        assert (await carrier.call("GET", f"/files/{refs[0]['attachment_id']}"))[0] == 200
        now[0] += 100
        await carrier.upload(b"x" * MIB)
        got = [await carrier.call("GET", f"/files/{r['attachment_id']}") for r in refs]
        assert [status for status, _ in got] == [200, 404, 404]
        assert len(left_behind(server)) == 2


async def test_what_a_message_on_its_way_needs_stays(tmp_path: Path):
    now = [1000.0]
    config = {"max_file_bytes": MIB, "max_bytes": MIB}
    async with (
        serving(tmp_path, clock=lambda: now[0], files_config=config) as server,
        carrying(server) as carrier,
    ):
        ref = await carrier.upload(b"x" * (MIB // 2))
        kept = await server.files.find(ref["attachment_id"], str(carrier.phone.device_id))
        await server.files.send_with(kept, Use("x", message_id="m1"))
        status, error = await carrier.begin(b"y" * MIB)
        assert (status, error["params"]) == (422, {"reason": "no_room"})
        now[0] += fileindex.PENDING_S + 1
        assert (await carrier.begin(b"y" * MIB))[0] == 201
        assert (await carrier.call("GET", f"/files/{ref['attachment_id']}"))[0] == 404


async def test_a_crash_leaves_no_litter(tmp_path: Path):
    async with serving(tmp_path) as server, carrying(server) as carrier:
        ref = await carrier.upload(b"hello")
        _, begun = await carrier.begin(b"0123456789")
        await carrier.append(begun["upload_id"], 0, b"0123")
        phone = carrier.phone
    (tmp_path / "files" / ".new-abc").write_bytes(b"half")
    (tmp_path / "files" / sha256(b"unknown")).write_bytes(b"unknown")
    (tmp_path / "uploads" / "up_unknown").write_bytes(b"unknown")
    for folder in ("files", "uploads"):
        (tmp_path / folder / "lost+found").mkdir()
    async with serving(tmp_path) as server, aiohttp.ClientSession() as session:
        phone.url = server.url
        carrier = Carrier(phone, session)
        kept = [sha256(b"hello"), begun["upload_id"], "lost+found", "lost+found"]
        assert sorted(left_behind(server)) == sorted(kept)
        assert await carrier.call("GET", f"/files/{ref['attachment_id']}") == (200, b"hello")
        assert (await carrier.begin(b"0123456789"))[1]["offset"] == 4
        assert (await carrier.append(begun["upload_id"], 4, b"456789"))[0] == 200
        (server.files.folder / sha256(b"hello")).unlink()
        assert (await carrier.call("GET", f"/files/{ref['attachment_id']}"))[0] == 404
        assert (await carrier.begin(b"hello"))[0] == 201, "known no more, it can be sent again"
