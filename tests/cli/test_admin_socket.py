"""The admin socket itself: who may reach it, and what it refuses."""

from __future__ import annotations

import asyncio
import http.client
import socket
import stat

import aiohttp
import pytest

from loomid.adminclient import Refused
from tests.support.daemon import Daemon
from tests.support.plain_phone import PlainPhone


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("d")) as running:
        yield running


def test_kept_by_its_directory_and_its_mode(daemon):
    path = daemon.runtime_dir / "admin.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(daemon.runtime_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((daemon.runtime_dir / "hermes.sock").stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((daemon.state_dir / "loomid.db").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "asked",
    [
        {"ttl": 0},
        {"ttl": 0.5},
        {"ttl": 10**9},
        {"ttl": True},
        {"ttl": "x"},
        {"ttl": float("nan")},
        {"name": ""},
        {"name": "x" * 65},
        {"name": "a\nb"},
        {"name": 3},
        {"name": "\ud800"},
        {"url": "http://h"},
        {"url": "wss://h/" + "x" * 3000},
        {"url": "wss://h/ws?token=1"},
        {"token": "x"},
        [],
        "x",
    ],
)
def test_pair_refuses_nonsense(daemon, asked):
    with pytest.raises(Refused, match=r"."):
        daemon.call("POST", "/pair", body=asked)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/pair"),
        ("GET", "/pair/zz/outcome"),
        ("DELETE", "/pair/zz"),
        ("DELETE", "/pair/" + "0" * 64),
        ("DELETE", "/devices/dev_none"),
        ("DELETE", "/devices"),
    ],
)
def test_what_is_not_there(daemon, method, target):
    with pytest.raises(Refused, match=r"not found|no such|not allowed"):
        daemon.call(method, target)


def test_renaming_what_is_not_there(daemon):
    with pytest.raises(Refused, match="no such device"):
        daemon.call("PATCH", "/devices/dev_none", body={"name": "x"})
    with pytest.raises(Refused, match="name"):
        daemon.call("PATCH", "/devices/dev_none", body={})


def raw(daemon, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(5)
        one.connect(str(daemon.runtime_dir / "admin.sock"))
        one.sendall(data)
        return one.recv(65536)


def test_bodies_that_are_not_json_or_too_large(daemon):
    for body in (b"{", b"\xff", b"[" * 5000, b'{"name": "' + b"x" * 20_000 + b'"}'):
        head = b"POST /pair HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        status = int(raw(daemon, head + body).split()[1])
        assert status in {http.client.BAD_REQUEST, http.client.REQUEST_ENTITY_TOO_LARGE}
    assert raw(daemon, b"nonsense\r\n\r\n").startswith(b"HTTP/1.")
    assert daemon.status()["pid"] == daemon.pid


def test_a_pairing_code(daemon):
    made = daemon.pair(name="x", ttl=60, url="wss://h.example:9/ws")
    assert made["qr"]["url"] == "wss://h.example:9/ws"
    assert made["qr"]["token"] not in made["token_ref"]
    assert len(made["qr"]["token"]) >= 43
    lines = made["drawn"].rstrip("\n").split("\n")
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80
    assert made["qr"]["token"] not in daemon.log()


async def test_a_code_is_withdrawn_unless_it_was_used(daemon):
    def withdraw(made):
        target = f"/pair/{made['token_ref']}"
        return daemon.call("DELETE", target)["withdrawn"], target

    made = await asyncio.to_thread(daemon.pair)
    done, target = await asyncio.to_thread(withdraw, made)
    assert done
    with pytest.raises(Refused, match="no such pairing code"):
        await asyncio.to_thread(daemon.call, "GET", f"{target}/outcome")
    made = await asyncio.to_thread(daemon.pair)
    async with aiohttp.ClientSession() as session:
        phone = await PlainPhone.connect(session, daemon.url, token=made["qr"]["token"])
        await phone.socket.close()
    done, target = await asyncio.to_thread(withdraw, made)
    assert not done
    outcome = await asyncio.to_thread(daemon.call, "GET", f"{target}/outcome")
    assert outcome["paired"]["device_id"] == phone.hello_ok["device_id"]
