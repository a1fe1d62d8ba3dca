"""POST and PATCH /upload, GET /files, on a real server."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from loomid import fileindex, uploads, web_files
from loomid.fileindex import Use
from tests.support import samples
from tests.support.hub import serving
from tests.support.samples import Carrier, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.hub import Server

MIB = 2**20


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path, files_config={"max_file_bytes": 4 * MIB}) as server:
        yield server


@asynccontextmanager
async def carrying(server: Server) -> AsyncIterator[Carrier]:
    async with aiohttp.ClientSession() as session:
        yield Carrier(await server.paired(), session)


@pytest.fixture
async def carrier(server: Server) -> AsyncIterator[Carrier]:
    async with carrying(server) as carrier:
        yield carrier


def left_behind(server: Server) -> list[str]:
    """What lies in the two directories."""
    folder = server.files.folder
    return [one.name for place in (folder, folder.parent / "uploads") for one in place.iterdir()]


async def test_up_and_down(server: Server, carrier: Carrier):
    data = samples.png()
    ref = await carrier.upload(data, media_type="image/png", name="IMG 1.png")
    assert ref == {
        "attachment_id": f"att_{sha256(data)}",
        "media_type": "image/png",
        "bytes": len(data),
        "name": "IMG 1.png",
        "width": 3,
        "height": 2,
    }
    path = server.files.folder / sha256(data)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    async with carrier.session.get(
        f"{carrier.base}/files/{ref['attachment_id']}", headers=carrier.auth
    ) as answer:
        assert answer.status == 200
        assert await answer.read() == data
        said = answer.headers
    assert said["Content-Type"] == "image/png"
    assert said["X-Content-Type-Options"] == "nosniff"
    assert said["Content-Disposition"] == "attachment; filename*=UTF-8''IMG%201.png"
    assert said["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert said["Cache-Control"] == "private, max-age=31536000, immutable"
    assert said["ETag"] == f'"{sha256(data)}"'
    assert said["Accept-Ranges"] == "bytes"


async def test_the_same_again_is_done_at_once(carrier: Carrier):
    first = await carrier.upload(b"hello", name="a.txt")
    assert await carrier.begin(b"hello") == (200, {"attachment": first})


async def test_an_upload_goes_on_where_it_was(carrier: Carrier):
    data = bytes(range(256)) * 4096
    status, begun = await carrier.begin(data)
    upload_id = begun["upload_id"]
    assert (status, begun["offset"]) == (201, 0)
    assert await carrier.append(upload_id, 0, data[:1000]) == (
        200,
        {"upload_id": upload_id, "offset": 1000},
    )
    assert await carrier.begin(data) == (201, {"upload_id": upload_id, "offset": 1000})
    status, done = await carrier.append(upload_id, 1000, data[1000:])
    assert (status, done["attachment"]["bytes"]) == (200, len(data))
    assert (await carrier.call("GET", f"/files/{done['attachment']['attachment_id']}"))[1] == data


async def test_another_offset_is_told_the_right_one(carrier: Carrier):
    _, begun = await carrier.begin(b"0123456789")
    await carrier.append(begun["upload_id"], 0, b"0123")
    for offset in (0, 5, 8):
        status, error = await carrier.append(begun["upload_id"], offset, b"45")
        assert (status, error["code"], error["params"]) == (409, "bad_range", {"offset": 4})
    for odd in ("", "-1", "x", "1e1", "²", "9" * 20):
        status, error = await carrier.append(begun["upload_id"], odd, b"45")  # type: ignore[arg-type]
        assert (status, error["code"]) == (400, "bad_frame"), odd


async def test_a_wrong_digest_leaves_nothing(server: Server, carrier: Carrier):
    asked = {"bytes": 5, "sha256": sha256(b"other")}
    _, begun = await carrier.call("POST", "/upload", json=asked)
    status, error = await carrier.append(begun["upload_id"], 0, b"hello")
    assert (status, error["code"], error["params"]) == (422, "bad_file", {"reason": "digest"})
    assert left_behind(server) == []
    assert (await carrier.append(begun["upload_id"], 0, b"other"))[1]["code"] == "unknown_file"


async def test_a_lying_type_leaves_nothing(server: Server, carrier: Carrier):
    for data, said in ((samples.PDF, "image/png"), (samples.png(30_000, 30_000), "image/png")):
        _, begun = await carrier.begin(data, media_type=said)
        status, error = await carrier.append(begun["upload_id"], 0, data)
        assert (status, error["code"]) == (422, "bad_file")
        assert left_behind(server) == []


async def test_more_than_was_announced(server: Server, carrier: Carrier):
    _, begun = await carrier.begin(b"hello")
    status, error = await carrier.append(begun["upload_id"], 0, b"hello, and more")
    assert (status, error["code"], error["params"]) == (413, "too_large", {"max_bytes": 5})

    async def unannounced() -> AsyncIterator[bytes]:
        yield b"hello, and"
        yield b" more"

    status, error = await carrier.append(begun["upload_id"], 0, unannounced())
    assert (status, error["code"]) == (409, "bad_range")


async def test_a_truncated_upload_is_no_file(server: Server, carrier: Carrier):
    _, begun = await carrier.begin(b"hello")
    await carrier.append(begun["upload_id"], 0, b"hel")
    status, error = await carrier.call("GET", f"/files/att_{sha256(b'hello')}")
    assert (status, error["code"]) == (404, "unknown_file")
    assert left_behind(server) == [begun["upload_id"]]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"bytes": 5},
        {"bytes": 0, "sha256": sha256(b"")},
        {"bytes": -1, "sha256": sha256(b"")},
        {"bytes": "5", "sha256": sha256(b"")},
        {"bytes": 5, "sha256": "../../etc/passwd"},
        {"bytes": 5, "sha256": sha256(b"").upper()},
        {"bytes": 5, "sha256": sha256(b""), "name": "x" * 2000},
        [],
    ],
)
async def test_an_upload_must_be_described(carrier: Carrier, asked: Any):
    status, error = await carrier.call("POST", "/upload", json=asked)
    assert (status, error["code"]) == (400, "bad_frame")


async def test_what_is_not_json(carrier: Carrier):
    for body in (b"", b"{", b"\xff\xfe", b"[" * 3000):
        assert (await carrier.call("POST", "/upload", data=body))[0] == 400
    assert (await carrier.call("POST", "/upload", data=b" " * 5000))[0] == 413


# ── who ─────────────────────────────────────────────────────────────────────


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


async def test_a_revoked_device_is_let_go(server: Server, carrier: Carrier):
    data = bytes(MIB)
    _, begun = await carrier.begin(data)
    held = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield data[:1000]
        held.set()
        await until(lambda: part.exists() and part.stat().st_size == 1000)
        await server.hub.desk.revoke(str(carrier.phone.device_id))
        yield data[1000:]

    part = server.files.folder.parent / "uploads" / begun["upload_id"]
    part.touch()
    status, _ = await carrier.append(begun["upload_id"], 0, slowly())
    assert status == 401
    assert part.stat().st_size < len(data)
    assert (await carrier.begin(b"hello"))[0] == 401


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


# ── parts ───────────────────────────────────────────────────────────────────


async def test_ranges(carrier: Carrier):
    data = bytes(range(100))
    ref = await carrier.upload(data)
    url = f"{carrier.base}/files/{ref['attachment_id']}"

    async def part(header: str, **more: str) -> tuple[int, bytes, str | None]:
        headers = {**carrier.auth, "Range": header, **more}
        async with carrier.session.get(url, headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("Content-Range")

    assert await part("bytes=0-9") == (206, data[:10], "bytes 0-9/100")
    assert await part("bytes=90-") == (206, data[90:], "bytes 90-99/100")
    assert await part("bytes=90-500") == (206, data[90:], "bytes 90-99/100")
    assert await part("bytes=-5") == (206, data[95:], "bytes 95-99/100")
    assert await part("bytes=-500") == (206, data, "bytes 0-99/100")
    assert await part("bytes=0-0") == (206, data[:1], "bytes 0-0/100")
    assert await part("bytes=50-", **{"If-Range": '"other"'}) == (200, data, None)
    assert await part("bytes=50-", **{"If-Range": f'"{sha256(data)}"'}) == (
        206,
        data[50:],
        "bytes 50-99/100",
    )
    for nonsense in (
        "bytes=100-",
        "bytes=9-5",
        "bytes=-0",
        "bytes=-",
        "bytes=",
        "bytes=a-b",
        "bytes=0-1,5-6",
        "chars=0-1",
        "bytes=1-2-3",
        "bytes=99999999999999999999-",
        "bytes=٣-",
        "0-1",
    ):
        status, body, where = await part(nonsense)
        assert (status, where) == (416, "bytes */100"), nonsense
        assert b'"bad_range"' in body


async def test_a_phone_that_has_it_need_not_load_it(carrier: Carrier):
    ref = await carrier.upload(b"hello")
    headers = {"If-None-Match": f'"{sha256(b"hello")}"'}
    path = f"/files/{ref['attachment_id']}"
    assert await carrier.call("GET", path, headers=headers) == (304, b"")
    assert await carrier.call("HEAD", path) == (200, b"")


# ── limits ──────────────────────────────────────────────────────────────────


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
    assert left_behind(server) == [] or server.files.folder.exists()


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


async def test_a_phone_may_wait_until_it_is_told_to_go_on(server: Server, carrier: Carrier):
    _, begun = await carrier.begin(b"hello")

    async def ask(length: int, auth: str) -> bytes:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(
            f"PATCH /upload/{begun['upload_id']} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\n"
            f"Authorization: {auth}\r\nContent-Length: {length}\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        said = await reader.readuntil(b"\r\n\r\n")
        if b" 100 " in said:
            writer.write(b"hello")
            said = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        return said.split()[1]

    good = carrier.auth["Authorization"]
    assert await ask(5, "Bearer x.y") == b"401"
    assert await ask(6, good) == b"413"
    assert await ask(5, good) == b"200"


async def test_a_body_that_comes_with_its_head(server: Server, carrier: Carrier):
    """More than a stranger may send is in the first packet; it waits, and nothing is lost."""
    data = bytes(range(256)) * 1024
    _, begun = await carrier.begin(data)
    reader, writer = await asyncio.open_connection(server.host, server.port)
    head = (
        f"PATCH /upload/{begun['upload_id']} HTTP/1.1\r\nHost: x\r\nUpload-Offset: 0\r\n"
        f"Authorization: {carrier.auth['Authorization']}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"200"
    writer.close()
    assert (await carrier.call("GET", f"/files/att_{sha256(data)}"))[1] == data
    assert server.hub.tally.refused == {}


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


async def test_a_newer_connection_ends_the_older(server: Server, carrier: Carrier):
    """A phone that changed networks need not wait for its old connection to time out."""
    _, begun = await carrier.begin(b"hello")
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"he"
        await never.wait()
        yield b""

    async with asyncio.TaskGroup() as tasks:
        older = tasks.create_task(_failing(carrier.append(begun["upload_id"], 0, stuck())))
        part = server.files.folder.parent / "uploads" / begun["upload_id"]
        await until(part.exists)
        status, error = await carrier.append(begun["upload_id"], 0, b"hello")
        if status == 409:
            status, _ = await carrier.append(begun["upload_id"], error["params"]["offset"], b"llo")
        assert status == 200
        assert await older
        never.set()


async def _failing(work: Any) -> bool:
    try:
        await work
    except aiohttp.ClientError:
        return True
    return False


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
    async with serving(tmp_path) as server, aiohttp.ClientSession() as session:
        phone.url = server.url
        carrier = Carrier(phone, session)
        assert sorted(left_behind(server)) == sorted([sha256(b"hello"), begun["upload_id"]])
        assert await carrier.call("GET", f"/files/{ref['attachment_id']}") == (200, b"hello")
        assert (await carrier.begin(b"0123456789"))[1]["offset"] == 4
        assert (await carrier.append(begun["upload_id"], 4, b"456789"))[0] == 200
        (server.files.folder / sha256(b"hello")).unlink()
        assert (await carrier.call("GET", f"/files/{ref['attachment_id']}"))[0] == 404
        assert (await carrier.begin(b"hello"))[0] == 201, "known no more, it can be sent again"


async def test_the_same_upload_announced_at_once_is_one(carrier: Carrier):
    """Also of others no more are open than a device may have."""
    begun = await asyncio.gather(*(carrier.begin(b"hello there") for _ in range(6)))
    assert len({told["upload_id"] for _, told in begun}) == 1
    others = await asyncio.gather(*(carrier.begin(b"%d" % n) for n in range(8)))
    going_on = await asyncio.gather(
        *(carrier.append(told["upload_id"], 0, b"") for _, told in others)
    )
    assert sum(status == 200 for status, _ in going_on) == uploads.PER_DEVICE
