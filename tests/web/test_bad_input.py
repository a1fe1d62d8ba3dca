"""Whatever a phone sends: the documented code, and nobody else is harmed."""

import asyncio
import contextlib
import json

import pytest

from loomid.lmp.session import Timing
from tests.support.hub import SERVER, delta, serving

HELLO = {"protocol_version": 1}


@pytest.fixture
async def server(tmp_path):
    async with serving(tmp_path) as server, _witness(server) as witness:
        yield server
        # Another phone has noticed nothing.
        await server.publish(delta("still here"))
        await witness.wait_type("run.delta")
        assert witness.errors == []


def _witness(server):
    return _Witness(server)


class _Witness:
    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        self.opened = self.server.phone().connect(await self.server.token())
        return await self.opened.__aenter__()

    async def __aexit__(self, *error):
        return await self.opened.__aexit__(*error)


def frame(type_, payload=None):
    return json.dumps({"v": 1, "type": type_, "payload": payload or {}})


async def refused(server, first):
    """What the server says to a first message, and the code it closes with."""
    async with server.phone().open() as c:
        if isinstance(first, bytes):
            await c.ws.send_bytes(first)
        else:
            await c.ws.send_str(first)
        code = await c.wait_closed()
        assert all(g.payload["fatal"] and g.seq == 0 for g in c.got)
        return c.errors, code


@pytest.mark.parametrize(
    ("first", "error", "code"),
    [
        ("not json", "bad_json", 4000),
        ("[1]", "bad_frame", 4000),
        ('{"v":2,"type":"hello","payload":{}}', "unsupported_version", 4000),
        (frame("task.list"), "bad_frame", 4000),
        (frame("no.such"), "bad_frame", 4000),
        (frame("hello", {"protocol_version": 9, "token": "t"}), "unsupported_version", 4000),
        (frame("hello", {**HELLO, "token": "t", "device_id": "d"}), "bad_frame", 4000),
        (frame("hello", {**HELLO, "device_id": "d", "credential": 5}), "bad_frame", 4000),
        (frame("hello", {**HELLO, "token": "no such token"}), "unauthorized", 4001),
        (frame("hello", {**HELLO, "token": "\ud800\x00"}), "unauthorized", 4001),
        (frame("hello", {**HELLO, "device_id": "d", "credential": "c"}), "unauthorized", 4001),
        (b"binary", "bad_frame", 4000),
        (" " * 4097, "too_large", 1009),
        ("ü" * 2049, "too_large", 1009),
    ],
)
async def test_a_wrong_first_message(server, first, error, code):
    assert await refused(server, first) == ([error], code)


@pytest.mark.parametrize(
    "last_seq", [-1, 2**51 + 1, 2**52, 2**52 + 1, 10**30, "5", 5.0, True, [], {}]
)
async def test_a_wrong_last_seq(server, last_seq):
    phone = await server.paired()
    async with phone.open() as c:
        await c.send(
            "hello",
            {
                **HELLO,
                "device_id": phone.device_id,
                "credential": phone.credential,
                "last_seq": last_seq,
            },
        )
        assert await c.wait_closed() == 4000
        assert c.errors == ["bad_frame"]
    async with phone.connect() as c:
        assert c.hello_ok.payload["truncated"] is False


async def test_a_token_beside_a_device_id_is_not_consumed(server):
    token = await server.token()
    first = frame("hello", {**HELLO, "token": token, "device_id": "d", "credential": "c"})
    assert await refused(server, first) == (["bad_frame"], 4000)
    async with server.phone().connect(token):
        pass


async def test_a_used_token(server):
    token = await server.token()
    async with server.phone().connect(token):
        pass
    first = frame("hello", {**HELLO, "token": token})
    assert await refused(server, first) == (["token_used"], 4001)


async def test_an_expired_token(tmp_path):
    now = [1000.0]
    async with serving(tmp_path, clock=lambda: now[0]) as server:
        token = await server.token(ttl=300)
        now[0] += 301
        first = frame("hello", {**HELLO, "token": token})
        assert await refused(server, first) == (["token_expired"], 4001)


async def test_a_clock_that_is_set_back_keeps_no_token_alive(tmp_path):
    now = [100_000.0]
    async with serving(tmp_path, clock=lambda: now[0]) as server:
        token = await server.token(ttl=300)
        now[0] -= 3600
        first = frame("hello", {**HELLO, "token": token})
        assert await refused(server, first) == (["token_expired"], 4001)
        now[0] += 3600 - 30  # a small correction does no harm
        async with server.phone().connect(token):
            pass


async def test_no_hello(tmp_path):
    config = SERVER.__class__("s", "0", timing=Timing(hello_s=0.2))
    async with serving(tmp_path, config=config) as server, server.phone().open() as c:
        assert await c.wait_closed() == 4002
        assert c.errors == ["hello_timeout"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("not json", "bad_json"),
        ("7", "bad_frame"),
        (frame("hello", {**HELLO, "token": "t"}), "bad_frame"),
        (frame("no.such"), "unknown_type"),
        (frame("session.send", {"request_id": "r", "text": 7}), "bad_frame"),
        (frame("approval.resolve", {"request_id": "", "approval_id": "a", "choice": "c"}),
         "bad_frame"),
        ('{"v":1,"type":"session.send","payload":"\\ud800"}', "bad_frame"),
    ],
)  # fmt: skip
async def test_a_wrong_frame_after_hello_ends_nothing(server, text, error):
    async with server.phone().connect(await server.token()) as c:
        await c.send_text(text)
        await c.wait_type("error")
        assert c.errors == [error]
        await c.send("ping")
        await c.wait_type("pong")


async def test_a_binary_frame_after_hello_ends_nothing(server):
    async with server.phone().connect(await server.token()) as c:
        await c.ws.send_bytes(b"\x00")
        await c.wait_type("error")
        await c.send("ping")
        await c.wait_type("pong")
        assert c.errors == ["bad_frame"]


async def test_another_version_after_hello_is_fatal(server):
    async with server.phone().connect(await server.token()) as c:
        await c.send_text('{"v":2,"type":"ping"}')
        assert await c.wait_closed() == 4000
        assert c.errors == ["unsupported_version"]
        assert c.got[-1].payload["params"] == {"speaks": [1]}


async def test_ten_megabytes(server):
    async with server.phone().connect(await server.token()) as c:
        with contextlib.suppress(ConnectionError):  # it may be closed while we still send
            await c.send_text("x" * 10_000_000)
        assert await c.wait_closed() == 1009


async def test_why_a_frame_was_too_large_can_be_read(server):
    """By a phone that sends all of it before it looks for an answer."""
    head = (
        f"GET /ws HTTP/1.1\r\nHost: {server.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(head.encode())
        await reader.readuntil(b"\r\n\r\n")
        size = 10_000_000
        writer.write(b"\x81\xff" + size.to_bytes(8, "big") + bytes(4 + size))
        await writer.drain()
        assert await reader.readexactly(2) == b"\x81~"
        error = json.loads(await reader.readexactly(int.from_bytes(await reader.readexactly(2))))
        assert error["payload"]["code"] == "too_large"
        assert await reader.readexactly(4) == b"\x88\x0b\x03\xf1"
        writer.close()
    assert server.hub.tally.refused == {"too_much": 1}


async def test_the_largest_frame_is_taken(server):
    async with server.phone().connect(await server.token()) as c:
        limit = c.hello_ok.payload["limits"]["max_frame_bytes"]
        text = frame("ping", {"x": ""})
        await c.send_text(text.replace('""', f'"{"x" * (limit - len(text))}"'))
        await c.wait_type("pong")


async def test_not_utf8(server):
    async with server.phone().connect(await server.token()) as c:
        await c.ws._writer.send_frame(b"\xff\xfe", 1)
        assert await c.wait_closed() == 1007


async def test_rubbish_instead_of_frames(server):
    async with server.phone().connect(await server.token()) as c:
        c.ws._writer.transport.write(b"\xff" * 100)
        assert await c.wait_closed() in (1002, 1006)


async def test_surrogates_and_nul_come_back_harmless(server):
    async with server.phone().connect(await server.token()) as c:
        await c.send_text(
            '{"v":1,"type":"task.list","payload":{"request_id":"a\\ud800b\\u0000c\x00"}}'
        )
        got = await c.wait_type("task.list.result")
        assert got.payload["request_id"] == "a\ufffdb\ufffdc\ufffd"


async def test_a_flood_of_requests_is_refused(server):
    async with server.phone().connect(await server.token()) as c:
        for n in range(150):
            await c.send("task.list", {"request_id": f"r{n}"})
        await c.wait_for(lambda: sum(g.type != "hello.ok" for g in c.got) >= 150)
        assert set(c.errors) == {"rate_limited"}
        assert {g.payload["request_id"] for g in c.got[1:]} == {f"r{n}" for n in range(150)}
