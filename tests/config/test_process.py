"""The life of the process: ready, signals, systemd, restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress

import aiohttp
import pytest

from tests.support import certificates
from tests.support.daemon import Daemon
from tests.support.plain_phone import PlainPhone


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as opened:
        yield opened


async def paired(session, daemon: Daemon) -> PlainPhone:
    code = (await asyncio.to_thread(daemon.pair))["qr"]
    return await PlainPhone.connect(session, code["url"], token=code["token"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_in_order(tmp_path, session, number):
    with Daemon(tmp_path) as daemon:
        phone = await paired(session, daemon)
        daemon.process.send_signal(number)
        assert await phone.closed() == 1001
        assert await asyncio.to_thread(daemon.wait) == 0
        daemon.wait_notified("STOPPING=1")
        assert "Traceback" not in daemon.log()
        assert f"stopping on {number.name}" in daemon.log()


async def test_a_signal_while_a_phone_takes_nothing(tmp_path, session):
    """A peer that never says hello nor answers a close holds nothing up."""
    with Daemon(tmp_path) as daemon, socket.create_connection(("127.0.0.1", daemon.port)) as mute:
        mute.sendall(b"GET /ws HTTP/1.1\r\n")
        assert daemon.stop() == 0
        with suppress(ConnectionResetError):  # it was not accepted yet
            assert mute.recv(1) == b""


async def test_a_phone_comes_back_after_each_kind_of_end(tmp_path, session):
    with Daemon(tmp_path) as daemon:
        phone = await paired(session, daemon)
        who = {key: phone.hello_ok[key] for key in ("device_id", "credential")}
        seen = phone.hello_ok["last_seq"]
        for end in (daemon.stop, daemon.kill):
            await asyncio.to_thread(end)
            await phone.closed()
            await asyncio.to_thread(daemon.start)
            phone = await PlainPhone.connect(session, daemon.url, **who, last_seq=seen)
            assert phone.hello_ok["truncated"] is False
            assert phone.hello_ok["last_seq"] == seen
        assert "Traceback" not in daemon.log()
        await phone.socket.close()


async def test_health(tmp_path, session):
    with Daemon(tmp_path) as daemon:
        async with session.get(f"http://127.0.0.1:{daemon.port}/health") as answer:
            assert await answer.json() == {"ok": True, "v": 1}


async def test_tls(tmp_path, session):
    """The code's fingerprint is all that a phone needs to trust its own server."""
    certificates.make(tmp_path)
    pems = {
        "LOOMI_TLS_CERT": str(tmp_path / "cert.pem"),
        "LOOMI_TLS_KEY": str(tmp_path / "key.pem"),
    }
    with Daemon(tmp_path, **pems) as daemon:
        code = (await asyncio.to_thread(daemon.pair))["qr"]
        assert code["url"] == f"wss://127.0.0.1:{daemon.port}/ws"
        pinned = aiohttp.Fingerprint(bytes.fromhex(code["fp"]))
        phone = await PlainPhone.connect(session, code["url"], ssl=pinned, token=code["token"])
        daemon.process.terminate()
        assert await phone.closed() == 1001
        assert await asyncio.to_thread(daemon.wait) == 0


async def test_beyond_this_host_when_that_was_allowed(tmp_path, session):
    daemon = Daemon(tmp_path, LOOMI_ALLOW_INSECURE_BIND="true")
    daemon.listen = "0.0.0.0:0"
    with daemon:
        assert daemon.status()["listen"] == [f"0.0.0.0:{daemon.port}"]
        code = (await asyncio.to_thread(daemon.pair))["qr"]
        assert "0.0.0.0" not in code["url"]
        phone = await PlainPhone.connect(session, daemon.url, token=code["token"])
        await phone.socket.close()


def test_the_log_says_where_it_listens(tmp_path):
    with Daemon(tmp_path) as daemon:
        assert f"listening on 127.0.0.1:{daemon.port}" in daemon.log()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /ws HTTP/1.1\r\nHost: x\r\nAuthorization Bearer: hidden\r\n\r\n",
        b"GET /hidden\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /internal/pair/new HTTP/1.1\r\nContent-Length: hidden\r\n\r\n",
        b"\x16\x03\x01hidden",
    ],
)
def test_what_strangers_send_is_not_logged(tmp_path, sent):
    with Daemon(tmp_path) as daemon:
        with socket.create_connection(("127.0.0.1", daemon.port)) as stranger:
            stranger.settimeout(5)
            stranger.sendall(sent + b"\r\n\r\n")
            assert stranger.recv(100).startswith(b"HTTP/1.0 400")
        assert daemon.stop() == 0
        assert "hidden" not in daemon.log()
        assert "Traceback" not in daemon.log()


def test_the_watchdog_is_fed(tmp_path):
    with Daemon(tmp_path, WATCHDOG_USEC="200000") as daemon:
        daemon.notified.clear()
        daemon.wait_notified("WATCHDOG=1")


def test_the_watchdog_is_not_fed_by_a_stuck_loop(tmp_path):
    with Daemon(tmp_path, WATCHDOG_USEC="200000") as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        daemon.wait_notified_nothing(1.0)
        os.kill(daemon.pid, signal.SIGCONT)
        daemon.notified.clear()
        daemon.wait_notified("WATCHDOG=1")


async def test_socket_activation(tmp_path, session):
    """The port stays open while loomid restarts: systemd holds it."""
    daemon = Daemon(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        daemon.wrap = [
            *("bash", "-c"),
            f'exec 3<&{server.fileno()}; LISTEN_PID=$BASHPID LISTEN_FDS=1 exec "$@"',
            "bash",
        ]
        daemon.pass_fds = (server.fileno(),)
        with daemon:
            assert daemon.status()["listen"] == [f"127.0.0.1:{port}"]
            phone = await paired(session, daemon)
            assert daemon.stop() == 0
            assert await phone.closed() == 1001
            with socket.create_connection(("127.0.0.1", port)) as waiting:
                waiting.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                daemon.start()
                waiting.settimeout(5)
                assert waiting.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_crash_of_a_part_ends_the_process(tmp_path):
    """The end of any part is a bug; systemd starts the whole anew."""
    (tmp_path / "broken.py").write_text(
        "from loomid.pump import Pump\n"
        "async def run(self):\n    raise RuntimeError('a bug')\n"
        "Pump.run = run\n"
        "from loomid.__main__ import main\n"
        "main(prog_name='loomid')\n"
    )
    daemon = Daemon(tmp_path)
    daemon.command = [sys.executable, str(tmp_path / "broken.py")]
    daemon.spawn()
    try:
        assert daemon.wait(15) == 1
        assert "RuntimeError: a bug" in daemon.log()
    finally:
        daemon.close()


@pytest.mark.parametrize("line", ["GET /ws", "POST /health"])
def test_a_body_that_cannot_be_unpacked_leaves_no_traceback(tmp_path, line):
    """Else any stranger could fill the log."""
    head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"
    with Daemon(tmp_path) as daemon:
        with socket.create_connection(("127.0.0.1", daemon.port)) as stranger:
            stranger.sendall(head.encode())
            assert stranger.recv(12).startswith(b"HTTP/1.1 40")
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log()
