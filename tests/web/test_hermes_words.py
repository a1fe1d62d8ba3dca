"""`hermes loomi …`: the shim's command, loomid's admin door and a phone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loomid import admin
from tests.support.hub import Server, serving
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
CODE = (
    "import argparse; from hermes_shim import cli; parser = argparse.ArgumentParser();"
    "cli.set_up(parser); cli.run(parser.parse_args())"
)


@asynccontextmanager
async def owned(folder: Path) -> AsyncIterator[Server]:
    """A server with its admin door."""
    async with serving(folder) as server:
        path = folder / "admin.sock"
        unused = {"status": dict, "metrics": bytes, "trace": dict, "owner": None}
        door = admin.Admin(path, server.hub, url=server.url, name="s", fp="", **unused)
        await door.start()
        try:
            yield server
        finally:
            await door.stop()


async def hermes(folder: Path, *words: str, **streams: int) -> asyncio.subprocess.Process:
    piped = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CODE, *words),
        cwd=ROOT,
        env={**os.environ, "LOOMI_RUNTIME_DIR": str(folder)},
        **piped | streams,
    )


async def said(folder: Path, *words: str) -> tuple[int | None, str, str]:
    process = await hermes(folder, *words)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_pair_list_and_revoke(tmp_path, monkeypatch):
    monkeypatch.setattr(admin, "draw", lambda text: text)
    async with owned(tmp_path) as server:
        pairing = await hermes(tmp_path, "pair", "--name", "My phone")
        assert pairing.stdout is not None
        code = json.loads(await pairing.stdout.readline())
        phone = server.phone()
        async with phone.connect(code["token"]):
            pass
        out, err = await pairing.communicate()
        assert pairing.returncode == 0
        assert out.decode() == f"Paired My phone ({phone.device_id}).\n"
        warned, scan, life = err.decode().splitlines()
        assert "no phone can reach it" in warned
        assert server.url in scan
        assert life == "It works once, for 5 minutes. Waiting …"
        line = f"{phone.device_id}  offline  view,send,approve  My phone\n"
        assert await said(tmp_path, "devices") == (0, line, "")
        revoked = f"Revoked My phone ({phone.device_id}).\n"
        assert await said(tmp_path, "revoke", "My phone") == (0, revoked, "")
        status, _, err = await said(tmp_path, "revoke", "My phone")
        assert (status, err.startswith("there is no device 'My phone'")) == (1, True)
        assert await said(tmp_path, "devices") == (0, "", "")


async def test_scopes(tmp_path, monkeypatch):
    monkeypatch.setattr(admin, "draw", lambda text: text)
    async with owned(tmp_path) as server:
        pairing = await hermes(tmp_path, "pair", "--scope", "admin", "--scope", "send,view")
        assert pairing.stdout is not None
        code = json.loads(await pairing.stdout.readline())
        phone = server.phone()
        async with phone.connect(code["token"]) as c:
            await pairing.communicate()
            assert c.hello_ok.payload["scopes"] == ["view", "send", "admin"]
            changed = await said(tmp_path, "devices", "scope", phone.device_id, "approve", "send")
            assert changed == (0, f"Pixel ({phone.device_id}) may view, send, approve.\n", "")
            told = await c.wait_type("device.updated")
            assert told.payload["scopes"] == ["view", "send", "approve"]
        status, _, err = await said(tmp_path, "devices", "scope", "dev_none", "view")
        assert (status, err.startswith("there is no device 'dev_none'")) == (1, True)
        status, _, err = await said(tmp_path, "devices", "scope", phone.device_id, "root")
        assert (status, "view, send, approve, admin" in err) == (1, True)
        status, _, err = await said(tmp_path, "pair", "--scope", "root")
        assert (status, "view, send, approve, admin" in err) == (1, True)


async def test_a_code_that_nobody_waits_for_any_more(tmp_path):
    async with owned(tmp_path) as server:
        pairing = await hermes(tmp_path, "pair")
        assert pairing.stdout is not None
        await pairing.stdout.readline()
        assert server.hub._devices._minted
        pairing.kill()
        await pairing.wait()
        await until(lambda: not server.hub._devices._minted)
        assert await server.vault.tokens() == []


async def waiting(folder: Path, *words: str) -> asyncio.subprocess.Process:
    """`hermes loomi pair`, once all is said and it waits."""
    pairing = await hermes(folder, "pair", *words)
    assert pairing.stderr is not None
    while not (line := await pairing.stderr.readline()).endswith("Waiting …\n".encode()):
        assert line
    return pairing


async def interrupted(pairing: asyncio.subprocess.Process) -> tuple[int | None, str]:
    """Its status and last line after Ctrl-C while it waits."""
    pairing.send_signal(signal.SIGINT)
    _, err = await pairing.communicate()
    return pairing.returncode, (err or b"").decode()


async def test_ctrl_c_withdraws_the_code_and_says_so(tmp_path):
    async with owned(tmp_path) as server:
        pairing = await waiting(tmp_path, "--ttl", "1h", "--url", "wss://h.example")
        assert await interrupted(pairing) == (130, "The code is withdrawn.\n")
        assert await server.vault.tokens() == []


async def test_ctrl_c_when_loomid_has_gone(tmp_path):
    async with owned(tmp_path):
        pairing = await waiting(tmp_path)
        (tmp_path / "admin.sock").unlink()
        status, err = await interrupted(pairing)
        assert (status, err.startswith("loomid does not run")) == (1, True)


async def test_loomid_stops_while_it_is_waited_for(tmp_path):
    async with owned(tmp_path):
        pairing = await waiting(tmp_path)
    _, err = await pairing.communicate()
    assert (pairing.returncode, err) == (1, b"loomid stopped before that was done\n")


async def test_what_a_phone_calls_itself_moves_no_cursor(tmp_path):
    async with owned(tmp_path) as server:
        token, _ = await server.hub.desk.mint("\x1b[31mEvil", 60.0)
        phone = server.phone()
        async with phone.connect(token.reveal()):
            pass
        _, out, _ = await said(tmp_path, "devices")
        assert out == f"{phone.device_id}  offline  view,send,approve  ?[31mEvil\n"


async def test_a_code_that_runs_out(tmp_path, monkeypatch):
    monkeypatch.setattr(admin.pairing, "TOKEN_TTL_S", 0.1)
    async with owned(tmp_path):
        status, out, err = await said(tmp_path, "pair")
        assert status == 1
        assert "█" in out
        assert err.endswith("\nthe pairing code ran out; nothing was paired\n")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["revoke"],
        ["devices", "x"],
        ["pair", "--name", "\x07"],
        ["pair", "--ttl", "2d"],
    ],
)
async def test_words_that_mean_nothing(tmp_path, words):
    async with owned(tmp_path):
        status, out, err = await said(tmp_path, *words)
        assert (status, out) == (1, "")
        assert "usage: hermes loomi" in err
        assert "withdraw" not in err  # which is for us alone


@pytest.mark.parametrize(("size", "fits"), [((24, 80), True), ((12, 80), False)])
async def test_a_code_is_as_large_as_the_terminal_allows(tmp_path, size, fits):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    async with owned(tmp_path):
        pairing = await hermes(tmp_path, "pair", stdout=slave, stderr=slave)
        os.close(slave)
        text = ""
        while text.count("\x1b[0m") < 23 or (not fits and "too small" not in text):
            text += (await asyncio.to_thread(os.read, master, 65536)).decode("utf-8", "replace")
        assert await interrupted(pairing) == (130, "")
    os.close(master)
    assert ("too small for the code (80x12)" in text) is not fits


def test_its_help_tells_all_words_and_options():
    code = f"{CODE.partition('cli.run')[0]}parser.print_help()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for word in ("pair", "--name", "--url", "--ttl", "--scope", "scope DEVICE SCOPES", "revoke"):
        assert word in done.stdout


async def test_without_a_daemon(tmp_path):
    status, out, err = await said(tmp_path / "nobody", "devices")
    assert (status, out) == (1, "")
    assert err.startswith("loomid does not run")
    assert str(tmp_path / "nobody/admin.sock") in err
