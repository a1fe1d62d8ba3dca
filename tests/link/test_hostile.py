"""Whatever comes in at loomid's socket: counted, logged once a kind, never fatal."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import zmq
from hypothesis import given, strategies as st

from loomid import gateway, ipc, wire
from loomid.errors import ConfigError, StateError
from loomid.gateway import Gateways
from loomid.lmp.facts import GatewayDown
from tests.support.host import delta
from tests.support.link import daemon
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELLO = {
    "m": "hello",
    "wire": 1,
    "gateway_id": "gwx",
    "boot": "bx",
    "pid": 0,
    "name": "X",
    "hermes_version": "0",
    "shim_version": "0",
    "hooks": [],
}


class Peer:
    """A bare DEALER."""

    def __init__(self, path: Path) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(f"ipc://{path}")

    def send(self, *frames: Any) -> None:
        self.socket.send_multipart(
            [f if isinstance(f, bytes) else json.dumps(f).encode() for f in frames]
        )

    async def answer(self, tag: str) -> dict[str, Any]:
        async with asyncio.timeout(10):
            while True:
                try:
                    body = json.loads(self.socket.recv(zmq.NOBLOCK))
                except zmq.Again:
                    await asyncio.sleep(0.002)
                    continue
                if body["m"] == tag:
                    return body


@pytest.fixture
def peer(path: Path) -> Iterator[Peer]:
    it = Peer(path)
    yield it
    it.context.destroy(linger=0)


async def test_no_message_hurts(path, peer, shim_of, caplog):
    caplog.set_level(logging.WARNING, "loomid.gateway")
    shim = shim_of()
    shim.link.start()
    bad: list[Any] = [
        b"\xff\xfe garbage",
        b"{",
        b"[" * 100_000,
        b"null",
        b"[]",
        b"{}",
        b'{"m":null}',
        b'{"m":["hello"]}',
        {"m": "no such"},
        {"m": "welcome"},
        {"m": "hello"},
        {"m": "hello", "wire": "1"},
        {"m": "hello", "wire": True},
        {"m": "hello", "wire": None, "gateway_id": "gwx"},
        HELLO | {"hooks": "all"},
        HELLO | {"pid": "1"},
        HELLO | {"gateway_id": ""},
        HELLO | {"boot": "b" * 1000},
        HELLO | {"boot": "b:loomictl"},
        HELLO | {"gateway_id": "gw:x"},
        HELLO | {"name": "n" * 1000},
        HELLO | {"hooks": ["f"] * 1000},
        HELLO | {"wire": 10**400},
        {"m": "facts", "boot": 5, "facts": []},
        {"m": "result", "id": 5},
        {"m": "result", "id": "c", "value": []},
    ]
    async with daemon(path) as it:
        for message in bad:
            peer.send(message)
        peer.send(b"two", b"parts")
        peer.send({"m": "facts", "boot": "bx", "facts": [[1, 1.0, "delta", delta("early")]]})
        await peer.answer("who")
        peer.send(HELLO | {"more": 1})
        assert (await peer.answer("welcome"))["ack"] == 0
        for t in (10**30, 10**400, 1e308, -1.0, "1", None, True):
            peer.send({"m": "facts", "boot": "bx", "facts": [[1, t, "delta", delta("x")]]})
        for facts in ([5], [[1, 1.0, "delta", delta("x")], [True, 1.0, "delta", {}]], [[]]):
            peer.send({"m": "facts", "boot": "bx", "facts": facts})
        peer.send({"m": "facts", "boot": "other", "facts": []})
        for _ in range(3):
            peer.send({"m": "result", "id": "unasked", "error": "x"})
        peer.send({"m": "facts", "boot": "bx", "facts": [[9, 1.0, "a.new.kind\n", {}]]})
        for n in (3, 9, 10):
            peer.send({"m": "facts", "boot": "bx", "facts": [[n, 1.0, "delta", delta("y")]]})
        await until(lambda: any(a.n == 10 for a in it.take()))
        assert [a.n for a in it.taken if a.boot == "bx" and a.n] == [1, 10]
        assert it.gateways.figures().oddities["hello without ids"] == 2
        assert it.gateways.figures().oddities["hello with odd ids"] == 2
        assert it.gateways.figures().oddities["hello too long"] == 2
        assert it.gateways.figures().oddities["a result that nobody waits for"] == 3
        assert it.gateways.figures().oddities["unknown fact a.new.kind\n"] == 1
        await until(lambda: shim.link.state == "linked")
        peer.send(HELLO | {"gateway_id": "gwx", "wire": 7})
        assert (await peer.answer("refused"))["speaks"] == [wire.WIRE_VERSION]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == len(set(lines))
    assert not any("\n" in line for line in lines)


async def test_a_huge_message_costs_only_its_connection(path, peer, shim_of, monkeypatch):
    monkeypatch.setattr(ipc, "MESSAGE_MAX", 100_000)
    shim = shim_of()
    shim.link.start()
    async with daemon(path) as it:
        await until(lambda: shim.link.state == "linked")
        peer.send(b'{"m":"beat","x":"' + b"x" * 200_000 + b'"}')
        peer.send(HELLO)  # its connection is cut, made again and then good
        await peer.answer("welcome")
        await it.gateways.command("gw1", "running", {}, command_id="c1")


async def test_more_than_can_be_held_waits_outside(path, peer, monkeypatch):
    monkeypatch.setattr(gateway, "ARRIVALS_MAX", 100)
    async with daemon(path) as it:
        peer.send(HELLO)
        await peer.answer("welcome")
        for n in range(1, 401):
            peer.send({"m": "facts", "boot": "bx", "facts": [[n, 1.0, "delta", delta("y")]]})
        await until(lambda: len(it.gateways._roster.arrivals) >= 100)
        assert len(it.gateways._roster.arrivals) <= 101
        await until(lambda: len([a for a in it.take() if a.n]) == 400)


async def test_more_bytes_than_can_be_held_wait_outside(path, peer, monkeypatch):
    monkeypatch.setattr(gateway, "ARRIVED_BYTES_MAX", 100_000)
    async with daemon(path) as it:
        peer.send(HELLO)
        await peer.answer("welcome")
        for n in range(1, 41):
            text = delta("y" * 20_000)
            peer.send({"m": "facts", "boot": "bx", "facts": [[n, 1.0, "delta", text]]})
        await until(lambda: it.gateways._paused)
        assert len(it.gateways._roster.arrivals) <= 6
        await until(lambda: len([a for a in it.take() if a.n]) == 40)
        for _ in range(100):  # what is no fact cannot stop the reading
            peer.send({"m": "beat", "x": "x" * 20_000})
        peer.send({"m": "facts", "boot": "bx", "facts": [[41, 1.0, "delta", delta("z")]]})
        await until(lambda: any(a.n == 41 for a in it.take()))


async def test_what_the_dead_left_is_read_before_they_are_given_up(path, peer, monkeypatch):
    monkeypatch.setattr(gateway, "ARRIVALS_MAX", 100)
    monkeypatch.setattr(ipc, "MESSAGES_MAX", 1000)  # each of one fact only
    async with daemon(path) as it:
        peer.send(HELLO)
        await peer.answer("welcome")
        for n in range(1, 401):
            peer.send({"m": "facts", "boot": "bx", "facts": [[n, 1.0, "delta", delta("y")]]})
        await until(lambda: it.gateways._paused)
        peer.context.destroy(linger=1000)
        await until(lambda: it.gateways._unreachable)
        ticks = []
        tick = it.gateways._tick
        monkeypatch.setattr(it.gateways, "_tick", lambda: ticks.append(tick()))
        await until(lambda: len(ticks) > 10)
        await until(lambda: it.of(GatewayDown))
        assert [a.n for a in it.taken if a.n] == list(range(1, 401))


async def test_a_path_that_cannot_be_bound(tmp_path):
    def gateways(path: Path) -> Gateways:
        return Gateways(path, version="0", instance="i", clock=lambda: 0.0, acked={})

    with pytest.raises(ConfigError):
        await gateways(tmp_path / ("x" * 120)).run()
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError):
        await gateways(tmp_path / "file" / "hermes.sock").run()


def detached() -> Gateways:
    """Gateways that listen nowhere."""
    return Gateways(None, version="0", instance="i", clock=lambda: 0.0, acked={})  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_no_frames_are_fatal(frames):
    detached()._receive(frames)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(sorted({*HELLO, "stat", "facts", "id", "value", "error", "dropped"}))


@given(st.sampled_from(sorted(wire.MESSAGES)), st.dictionaries(FIELDS, JSON, max_size=6))
def test_no_fields_are_fatal(tag, body):
    it = detached()
    hello = json.dumps(HELLO).encode()
    it._receive([b"p", hello])
    for whole in (HELLO | body | {"m": tag}, body | {"m": tag, "boot": "bx"}):
        it._receive([b"p", json.dumps(whole).encode()])
    it.take()
