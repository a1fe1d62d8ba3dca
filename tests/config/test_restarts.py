"""loomid and the gateway come and go in any order; what phones know of it stays true."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from tests.support.daemon import ROOT, Daemon, clean_environ
from tests.support.phone import Phone


@pytest.fixture
def agent(tmp_path):
    """Starts the demo's scripted agent: a process behind the shim's own link."""
    started: list[subprocess.Popen[bytes]] = []

    def start(daemon: Daemon) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "loomid.demo_agent", daemon.hermes_endpoint],
            env=clean_environ(tmp_path),
            cwd=ROOT,
            stdin=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def online(connection) -> bool | None:
    """What a phone takes the gateway for, from hello.ok and the events after it."""
    known = [one["online"] for one in connection.hello_ok.payload["gateways"]]
    known += [got.payload["online"] for got in connection.got if got.type == "gateway.status"]
    return known[-1] if known else None


async def test_phones_know_whether_the_gateway_is_there(tmp_path, agent):
    with Daemon(tmp_path) as daemon:
        gateway = agent(daemon)
        phone = Phone(daemon.url)
        token = (await asyncio.to_thread(daemon.pair))["qr"]["token"]
        async with phone.connect(token) as connection:
            await connection.wait_for(lambda: online(connection))
        # It stays while loomid is restarted: phones are told nothing, and need nothing.
        daemon.kill()
        daemon.start()
        async with phone.connect() as connection:
            assert online(connection) is True
            sent = await connection.request("session.send", text="hello", request_id="1")
            assert sent.type in {"session.send.result", "error"}
        # It goes while loomid is away: found out after three heartbeats.
        daemon.kill()
        gateway.kill()
        gateway.wait()
        daemon.start()
        async with phone.connect() as connection:
            await connection.wait_for(lambda: online(connection) is False, 15)
            # And comes back, as another process.
            agent(daemon)
            await connection.wait_for(lambda: online(connection), 15)
            await connection.request("session.send", text="hello", request_id="2")
            await connection.wait_type("run.completed")
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log()


async def test_a_kill_in_mid_run_loses_and_doubles_nothing(tmp_path, agent):
    """The whole way, kill -9 three times while text streams: each word arrives once."""
    with Daemon(tmp_path) as daemon:
        agent(daemon)
        phone = Phone(daemon.url)
        token = (await asyncio.to_thread(daemon.pair))["qr"]["token"]
        async with phone.connect(token) as connection:
            await connection.wait_for(lambda: online(connection))
            await connection.request("session.send", text="long", request_id="1")
            await connection.wait_type("run.delta", 2)
        for _ in range(3):
            wanted = len(phone.events("run.delta")) + 2
            await asyncio.to_thread(daemon.kill)
            await asyncio.to_thread(daemon.start)
            async with phone.connect() as connection:
                assert connection.hello_ok.payload["truncated"] is False
                await connection.wait_for(lambda n=wanted: _went_on(phone, n), 20)
        async with phone.connect() as connection:
            await connection.wait_for(lambda: phone.events("run.completed"), 30)
        [end] = phone.events("run.completed")
        [begun] = phone.events("run.started")
        text = "".join(
            got.payload["text"]
            for got in phone.events("run.delta")
            if got.payload["kind"] == "text"
        )
        assert begun.payload["run_id"] == end.payload["run_id"]
        assert text == end.payload["text"]


def _went_on(phone: Phone, deltas: int) -> bool:
    return len(phone.events("run.delta")) >= deltas or bool(phone.events("run.completed"))
