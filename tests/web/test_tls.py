"""The same over TLS, as the daemon gives it a context: its transports end in ways of their own."""

import logging
import re
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from loomid.reception import Stranger
from tests.support import certificates
from tests.support.hub import SERVER, delta, serving
from tests.support.waiting import until


@pytest.fixture
def contexts(tmp_path):
    certificates.make(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client


@pytest.fixture
def secure(tmp_path, contexts, caplog):
    """Begins a server with TLS; at its end all phones have left and nothing has failed."""
    caplog.set_level(logging.INFO)

    @asynccontextmanager
    async def begin(**options):
        async with serving(tmp_path, ssl_context=contexts[0], **options) as server:
            yield server
        assert not server.hub._phones
        assert not server.hub._live
        assert not len(server.web.reception.places)

    yield begin
    assert [r.getMessage() for r in caplog.records if r.levelno > logging.INFO] == []


@pytest.fixture
def closes(caplog):
    """How many connections ended, by code and cause, as the log has it."""

    def found():
        texts = [r.getMessage() for r in caplog.records]
        return [m[1] for m in (re.match(r"closed dev_\w+: code (.*), age", t) for t in texts) if m]

    return found


@asynccontextmanager
async def connected(server, contexts):
    """A phone that has paired over TLS, and its connection."""
    phone = server.phone("snapshot")
    phone.ssl = contexts[1]
    async with phone.connect(await server.token()) as connection:
        yield phone, connection


def cut(connection):
    """End the connection as a phone that loses its network for good: with a reset."""
    transport = connection.ws._conn.transport
    linger = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()


async def test_a_phone_over_tls(secure, contexts, closes):
    async with secure() as server, connected(server, contexts) as (phone, c):
        for n in range(10):
            await server.publish(*(delta(f"{n}".ljust(1000)) for _ in range(100)))
        await c.wait_type("run.delta", 1000)
        await server.hub.desk.revoke(phone.device_id)
        assert await c.wait_closed() == 4003
    assert closes() == ["4003, revoked"]


async def test_closed_by_the_phone(secure, contexts, closes):
    async with secure() as server:
        async with connected(server, contexts) as (phone, c):
            await c.wait_type("snapshot.done")
        await until(lambda: not server.hub._live)
        assert closes() == ["1000, closed by the phone"]
        assert server.hub.desk.devices()[0].device.last_seen is not None
        async with phone.connect() as c:  # it has missed nothing
            assert c.hello_ok.payload["truncated"] is False


async def test_a_reset(secure, contexts, closes):
    async with secure() as server:
        async with connected(server, contexts) as (_, c):
            cut(c)
            await until(lambda: not server.hub._live)
        assert closes() == ["1006, connection lost"]


async def test_a_reset_while_it_lags_behind(secure, contexts, closes):
    """The task that waits for it asks a transport that is lost how much is unsent."""
    async with secure(config=replace(SERVER, stall_s=0.05)) as server:
        async with connected(server, contexts) as (phone, c):
            c.ws._conn.transport.pause_reading()
            lagging = server.hub._live[phone.device_id]._writer
            while not lagging._lagging:
                await server.publish(*(delta("x" * 10_000) for _ in range(50)))
            cut(c)
            await until(lambda: not server.hub._live)
        assert len(closes()) == 1


async def test_closing_tls_without_a_word(secure, contexts, closes):
    """TLS's own end, with no close frame before it."""
    async with secure() as server:
        async with connected(server, contexts) as (_, c):
            c.ws._conn.transport.close()
            await until(lambda: not server.hub._live)
        assert closes() == ["1006, connection lost"]


async def test_replaced(secure, contexts, closes):
    async with secure() as server:
        async with connected(server, contexts) as (phone, old), phone.connect() as new:
            assert await old.wait_closed() == 4004
            await until(closes)
            await server.publish(delta("x"))
            await new.wait_type("run.delta")
            assert server.hub.desk.devices()[0].connected
        await until(lambda: len(closes()) == 2)
    assert closes()[0] == "4004, replaced by a newer connection"


async def test_the_server_stops(secure, contexts, closes):
    async with secure() as server, connected(server, contexts) as (_, c):
        await server.web.stop()
        assert await c.wait_closed() == 1001
        assert closes() == ["1001, server going down"]


async def test_one_that_answers_no_close_frame_is_not_waited_for(tmp_path, contexts, caplog):
    """Nor for its end of TLS."""
    caplog.set_level(logging.INFO)
    server_context, _ = contexts
    async with (
        serving(tmp_path, ssl_context=server_context) as server,
        connected(server, contexts) as (_, c),
    ):
        c.ws._conn.transport.pause_reading()
        await server.web.stop()
        assert not server.hub._phones
        assert "1 connections did not close in time" in caplog.text
        assert "closed dev_" in caplog.text
        assert "ERROR" not in caplog.text
        cut(c)


async def test_a_step_that_fails_skips_no_other(tmp_path, contexts, closes, caplog, monkeypatch):
    """The end of a connection is told and noted, whatever else fails at it."""
    caplog.set_level(logging.INFO)
    leave = Stranger.leave

    def fails_at_the_end(stranger):
        known = stranger._places is None
        leave(stranger)
        if known:
            raise RuntimeError("a bug")

    monkeypatch.setattr(Stranger, "leave", fails_at_the_end)
    async with serving(tmp_path, ssl_context=contexts[0]) as server:
        async with connected(server, contexts):
            pass
        await until(lambda: not server.hub._phones)
        assert closes() == ["1000, closed by the phone"]
        assert not server.hub._live
        await server.web.stop()
    assert "did not close in time" not in caplog.text
    assert "a bug" in caplog.text  # it is seen
