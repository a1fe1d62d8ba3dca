"""Floods against a real loomid: who is paired comes in, and others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from hermes_shim.link import Link
from loomid.lmp.session import BURST, FRAMES_PER_S
from loomid.reception import CALM_S
from tests.support import certificates
from tests.support.daemon import ROOT, Daemon
from tests.support.host import identity
from tests.support.measured import measured
from tests.support.phone import Closed, Phone
from tests.support.plain_phone import PlainPhone
from tests.support.pumping import delta, stream_started, turn_started
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.phone import Connection

Attack = dict[str, Any]
TIMES = 2
WITHIN_S = 10.0
"""For one visit of a paired device during a flood; it takes some hundredths."""


@contextmanager
def attacking(daemon: Daemon, module: str, *arguments: str, says: str = "") -> Iterator[Attack]:
    """Another process that does its worst until the block ends; then what it says it did."""
    command = [sys.executable, "-m", f"tests.support.{module}", "--port", str(daemon.port)]
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        attack: Attack = {}
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{says}\n" * bool(says))
            process.stdin.flush()
            assert process.stdout.readline().endswith("ing\n")
            yield attack
            out, _ = process.communicate(timeout=20)
            attack |= json.loads(out)
            print(module, *arguments[:1], attack)
        finally:
            process.kill()


async def paired(daemon: Daemon) -> Phone:
    phone = Phone(daemon.url)
    async with phone.connect(daemon.pair()["qr"]["token"]):
        pass
    return phone


async def visit(phone: Phone) -> float:
    """Connect, ask something, leave; a phone that is cut off tries again. Seconds it took."""
    began = time.monotonic()
    async with asyncio.timeout(WITHIN_S):
        while True:
            with contextlib.suppress(OSError, Closed, ExceptionGroup):
                async with phone.connect() as c:
                    await c.request("task.list", request_id=f"r{began}")
                    return time.monotonic() - began


async def visits(phone: Phone) -> None:
    took = [await visit(phone) for _ in range(TIMES)]
    print(f"median {sorted(took)[TIMES // 2]:.3f} s, worst {max(took):.3f} s")


@pytest.mark.parametrize("kind", ["silent", "wrong", "mixed"])
async def test_a_paired_device_gets_in_during_a_flood(tmp_path: Path, kind: str):
    with Daemon(tmp_path) as daemon:
        phone, stays = await paired(daemon), await paired(daemon)
        async with stays.connect() as witness:
            before = daemon.rss_mib()
            with attacking(daemon, "flood", kind):
                await visits(phone)
                await witness.request("task.list", request_id="r")
                grown = daemon.rss_mib() - before
            assert daemon.status()["devices"]
            assert witness.errors == []
        print(f"{grown:.1f} MiB")
        assert grown < 150
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()


@pytest.mark.timeout(120)
async def test_a_flood_of_tls_leaves_little_behind(tmp_path: Path):
    """What was freed is given back to the system, once all is calm."""
    certificates.make(tmp_path)
    pem = {"LOOMI_TLS_CERT": "cert.pem", "LOOMI_TLS_KEY": "key.pem"}
    with Daemon(tmp_path, **{name: str(tmp_path / file) for name, file in pem.items()}) as daemon:
        before = daemon.rss_mib()
        with attacking(daemon, "flood", "tls"):
            await measured(
                daemon,
                lambda seen: seen("connections_refused_total", reason="yielded") > 1_000,
                within_s=60,
            )
            highest = daemon.rss_mib() - before
        print(f"{highest:.1f} MiB")
        await until(lambda: daemon.rss_mib() - before < min(40, highest * 2 / 3), 3 * CALM_S)
        print(f"{daemon.rss_mib() - before:.1f} MiB left")
    assert "Traceback" not in daemon.log()


async def test_where_descriptors_are_short_some_are_left(tmp_path: Path):
    """For the paired, for the admin socket, for the database."""
    daemon = Daemon(tmp_path)
    daemon.wrap = ["prlimit", "--nofile=200:200"]
    with daemon:
        phone, stays = await paired(daemon), await paired(daemon)
        async with stays.connect() as witness:
            with attacking(daemon, "flood", "mixed", "--hold", "1000"):
                assert daemon.pair()["qr"]["token"]
                await visits(phone)
                await witness.request("task.list", request_id="r")
        assert daemon.stop() == 0
    assert daemon.log().count("cannot accept") <= 1
    assert "Traceback" not in daemon.log()


async def test_a_phone_that_asks_too_much_is_slowed_and_told(tmp_path: Path):
    """10,000 requests a second; another phone has its answers meanwhile."""
    with Daemon(tmp_path) as daemon:
        greedy, phone = await paired(daemon), await paired(daemon)
        async with phone.connect() as c:
            before = daemon.rss_mib()
            who = ("--device", str(greedy.device_id))
            with attacking(daemon, "chatter", *who, says=str(greedy.credential)) as did:
                for n in range(60):
                    got = await c.request("task.list", request_id=f"r{n}")
                    assert got.type == "task.list.result"
                    await asyncio.sleep(0.03)  # below the rate that it may have
                grown = daemon.rss_mib() - before
        assert did["told"]["rate_limited"] > 10
        assert sum(did["told"].values()) <= BURST + 2 * FRAMES_PER_S * (did["seconds"] + 1)
        assert did["sent"] > sum(did["told"].values())
        assert all(did["in_order"].values())
        assert c.errors == []
        assert grown < 20


STALLED = 50


@pytest.mark.timeout(90)
async def test_phones_that_stop_reading_cost_nobody_else(tmp_path: Path):
    """Fifty of them, until they are let go; then they come back."""
    with Daemon(tmp_path) as daemon, closing(Shim(daemon)) as shim:
        healthy = await paired(daemon)
        phones = [await paired(daemon) for _ in range(STALLED)]
        async with healthy.connect() as witness, aiohttp.ClientSession() as session:
            stuck = [await stop_reading(session, phone) for phone in phones]
            await shim.say(witness, 20)
            before = daemon.rss_mib()
            await shim.say(witness, 900)
            assert daemon.rss_mib() - before < 20
            await until(lambda: sum(d["connected"] for d in daemon.devices()) == 1, 50)
            for one in stuck:
                one.socket._writer.transport.resume_reading()
            assert {await one.closed() for one in stuck} == {4005}
            assert witness.errors == []
            assert daemon.rss_mib() - before < 20
            print(f"{daemon.rss_mib() - before:.1f} MiB")
        text = said(healthy)
        for phone in phones:
            async with phone.connect() as c:
                assert c.hello_ok.payload["truncated"] is False
                await c.wait_for(lambda phone=phone: len(said(phone)) >= len(text))
                assert said(phone) == text
        assert daemon.log().count("code 4005, takes nothing") == STALLED


async def stop_reading(session: aiohttp.ClientSession, phone: Phone) -> PlainPhone:
    one = await PlainPhone.connect(
        session,
        phone.url,
        device_id=phone.device_id,
        credential=phone.credential,
        last_seq=phone.last_seq,
    )
    one.socket._writer.transport.pause_reading()
    return one


def said(phone: Phone) -> str:
    return "".join(g.payload["text"] for g in phone.events("run.delta"))


class Shim:
    """A gateway with one run that says much."""

    def __init__(self, daemon: Daemon) -> None:
        self.link = Link(identity(), [daemon.hermes_endpoint], lambda: self)
        self.said = 0
        self.link.start()
        self.link.emit("turn.started", turn_started())
        self.link.emit("stream.started", stream_started())
        self.close = self.link.stop

    def ready(self) -> bool:
        return True

    def execute(self, _: object) -> None:
        pass

    async def say(self, witness: Connection, count: int) -> None:
        """So many times a kilobyte, and wait until the phone was told of it."""
        for _ in range(count):
            self.said += 1
            self.link.emit("delta", delta(f"{self.said} ".ljust(1_000, "x")))
            await asyncio.sleep(0.001)
        last = f"{self.said} "
        await witness.wait_for(lambda: last in witness.got[-1].payload.get("text", ""), 30)
