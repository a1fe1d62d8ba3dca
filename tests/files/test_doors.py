"""POST and PATCH /upload, GET /files, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import samples
from tests.support.carrying import left_behind
from tests.support.samples import Carrier, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.hub import Server


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
    """What had a place stays; where to go on is told."""
    _, begun = await carrier.begin(b"hello")
    status, error = await carrier.append(begun["upload_id"], 0, b"hello, and more")
    assert (status, error["code"], error["params"]) == (413, "too_large", {"max_bytes": 5})
    part = server.files.folder.parent / "uploads" / begun["upload_id"]

    async def unannounced() -> AsyncIterator[bytes]:
        yield b"he"
        await until(lambda: part.exists() and part.stat().st_size == 2)
        yield b"llo, and more"

    status, error = await carrier.append(begun["upload_id"], 0, unannounced())
    assert (status, error["code"]) == (409, "bad_range")
    assert error["params"] == {"offset": 2, "reason": "too_long"}
    assert (await carrier.append(begun["upload_id"], 2, b"llo"))[0] == 200


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
        {"bytes": 5, "sha256": sha256(b"") + "\n"},
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


async def test_a_disk_that_fails_is_told_and_logged(
    server: Server, carrier: Carrier, caplog: pytest.LogCaptureFixture
):
    ref = await carrier.upload(b"hello")
    place = server.files.folder / sha256(b"hello")
    place.unlink()
    place.mkdir()
    status, error = await carrier.call("GET", f"/files/{ref['attachment_id']}")
    assert (status, error["code"]) == (503, "storage_failing")
    assert "the files cannot be read or written: Is a directory" in caplog.text


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
