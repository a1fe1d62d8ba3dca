"""loomictl against a running daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from loomid import paircode
from loomid.adminclient import Refused
from loomid.lmp import pairing
from loomid.terminal import count, span
from tests.support.daemon import Daemon
from tests.support.loomictl import begin, loomictl
from tests.support.main_job import demo_agent
from tests.support.plain_phone import PlainPhone

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("d"), LOOMI_NAME="Küche") as running:
        yield running
        assert running.stop() == 0


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as opened:
        yield opened


async def paired(session, daemon: Daemon, name: str) -> PlainPhone:
    code = (await asyncio.to_thread(daemon.pair, name=name))["qr"]
    return await PlainPhone.connect(session, code["url"], token=code["token"])


async def ctl(daemon: Daemon, *arguments: str):
    return await asyncio.to_thread(loomictl, daemon.runtime_dir, *arguments)


async def test_pair_with_json_says_the_code_then_who_came(daemon, session):
    waiting = begin(daemon.runtime_dir, "pair", "--json", "--name", "Ada's phone")
    with waiting:
        code = json.loads(await asyncio.to_thread(waiting.stdout.readline))
        assert set(code) == {"v", "url", "token", "name", "fp"}
        assert (code["v"], code["url"], code["name"], code["fp"]) == (1, daemon.url, "Küche", "")
        phone = await PlainPhone.connect(
            session, code["url"], token=code["token"], device_info={"model": "Pixel", "os": "16"}
        )
        out, err = await asyncio.to_thread(waiting.communicate, timeout=10)
    device = phone.hello_ok["device_id"]
    assert json.loads(out) == {"paired": {"device_id": device, "name": "Ada's phone"}}
    assert waiting.returncode == 0
    assert "no phone can reach it" in err
    assert code["token"] not in daemon.log()
    assert phone.hello_ok["credential"] not in daemon.log()
    listed = json.loads((await ctl(daemon, "devices", "--json")).stdout)["devices"]
    found = next(d for d in listed if d["device_id"] == device)
    assert (found["name"], found["connected"], found["model"]) == ("Ada's phone", True, "Pixel")
    await phone.socket.close()


async def test_pair_for_people(daemon, session):
    waiting = begin(daemon.runtime_dir, "pair", "--ttl", "30s", "--url", "wss://h.example")
    with waiting:
        line = await asyncio.to_thread(waiting.stdout.readline)
        assert set(line.strip("\n")) <= set(" ▀▄█\xa0")
        told = await asyncio.to_thread(
            lambda: waiting.stderr.readline() + waiting.stderr.readline()
        )
        assert "wss://h.example/ws" in told
        left = re.search(r"(\d+) seconds", told)
        assert left is not None, told
        assert 20 <= int(left[1]) <= 30  # what is left of the code's life
        waiting.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(waiting.communicate, timeout=10)
    assert waiting.returncode == 130
    assert err == "loomictl: The code is withdrawn.\n"
    assert "warning" not in told
    assert "Traceback" not in out


async def interrupted(waiting):
    """What it says after Ctrl-C, on stdout and on stderr."""
    waiting.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(waiting.communicate, timeout=10)
    assert waiting.returncode == 130
    assert "Aborted" not in err
    return out, err


async def test_a_withdrawn_code_pairs_nobody(daemon, session):
    with begin(daemon.runtime_dir, "pair", "--json") as waiting:
        code = json.loads(await asyncio.to_thread(waiting.stdout.readline))
        out, err = await interrupted(waiting)
        assert json.loads(out) == {"paired": None}
        assert "The code is withdrawn." in err
    with pytest.raises(AssertionError, match="unauthorized"):
        await PlainPhone.connect(session, code["url"], token=code["token"])


async def test_ctrl_c_when_a_phone_was_faster(daemon, session):
    with begin(daemon.runtime_dir, "pair", "--json", "--name", "Quick") as waiting:
        code = json.loads(await asyncio.to_thread(waiting.stdout.readline))
        waiting.send_signal(signal.SIGSTOP)
        phone = await PlainPhone.connect(session, code["url"], token=code["token"])
        waiting.send_signal(signal.SIGINT)  # it learns of both at once
        waiting.send_signal(signal.SIGCONT)
        out, err = await asyncio.to_thread(waiting.communicate, timeout=10)
    came = {"device_id": phone.hello_ok["device_id"], "name": "Quick"}
    assert (waiting.returncode, json.loads(out)) == (130, {"paired": came})
    assert "a phone has used the code already" in err
    await phone.socket.close()


async def test_a_code_that_cannot_be_withdrawn(tmp_path):
    with Daemon(tmp_path) as daemon, begin(daemon.runtime_dir, "pair", "--json") as waiting:
        await asyncio.to_thread(waiting.stdout.readline)
        (daemon.runtime_dir / "admin.sock").unlink()
        out, said = await interrupted(waiting)
    assert out == ""  # nobody can know
    assert re.search(r"valid until \d\d:\d\d:\d\d, if it is not withdrawn: loomid does", said)


@contextlib.contextmanager
def heeding_hangups():
    """For what is begun meanwhile: under nohup it would pay them no heed."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_a_code_does_not_outlive_whoever_waits_for_it(daemon, session, number):
    with contextlib.ExitStack() as ends:
        with heeding_hangups():
            waiting = ends.enter_context(begin(daemon.runtime_dir, "pair", "--json"))
        code = json.loads(await asyncio.to_thread(waiting.stdout.readline))
        waiting.send_signal(number)
        await asyncio.to_thread(waiting.communicate, timeout=10)
    target = f"/pair/{pairing.digest(code['token']).hex()}/outcome"
    with contextlib.suppress(Refused):  # there is no such code any more
        ended = await asyncio.to_thread(daemon.call, "GET", target)  # not by running out: too soon
        assert ended == {"paired": None}
    with pytest.raises(AssertionError, match="unauthorized"):
        await PlainPhone.connect(session, code["url"], token=code["token"])


@pytest.mark.parametrize(
    ("url", "said"),
    [("ws://h.example.com/ws", True), ("ws://8.8.8.8/ws", True), ("wss://h.example.com", False)]
    + [(f"ws://{host}:8770", False) for host in ("10.0.0.2", "100.64.1.1", "box", "box.lan")],
)
def test_a_warning_of_a_public_url_without_tls(url, said):
    warning = paircode.warning(url)
    assert (warning is not None and "no TLS" in warning) == said


async def test_pair_that_nobody_answers(daemon):
    done = await ctl(daemon, "pair", "--json", "--ttl", "1")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[1]) == {"paired": None}
    assert "ran out" in done.stderr


async def test_pair_when_loomid_stops_meanwhile(tmp_path):
    with Daemon(tmp_path) as daemon:
        with begin(daemon.runtime_dir, "pair", "--json") as waiting:
            await asyncio.to_thread(waiting.stdout.readline)
            assert await asyncio.to_thread(daemon.stop) == 0
            _, err = await asyncio.to_thread(waiting.communicate, timeout=10)
        assert waiting.returncode == 69
        assert "Traceback" not in err


async def test_devices_rename_revoke(daemon, session):
    phone = await paired(session, daemon, "old name")
    device = phone.hello_ok["device_id"]
    table = await ctl(daemon, "devices")
    assert any(device in line and "connected" in line for line in table.stdout.splitlines())
    renamed = await ctl(daemon, "rename", device[:12], "new name")
    assert (renamed.returncode, renamed.stderr) == (0, "")
    revoked = await ctl(daemon, "revoke", "new name")
    assert (revoked.returncode, device in revoked.stdout) == (0, True)
    assert await phone.closed() == 4003
    assert device not in (await ctl(daemon, "devices", "--json")).stdout


async def test_a_device_that_is_not_there_or_not_clear(daemon, session):
    one, two = await paired(session, daemon, "twin"), await paired(session, daemon, "twin")
    unknown = await ctl(daemon, "revoke", "nobody")
    assert (unknown.returncode, unknown.stdout, unknown.stderr.count("\n")) == (1, "", 1)
    unclear = await ctl(daemon, "rename", "twin", "x")
    assert unclear.returncode == 1
    assert one.hello_ok["device_id"] in unclear.stderr
    assert two.hello_ok["device_id"] in unclear.stderr
    await one.socket.close()
    await two.socket.close()


async def test_status(daemon):
    found = json.loads((await ctl(daemon, "status", "--json")).stdout)
    assert found["pid"] == daemon.pid
    assert found["listen"] == [f"127.0.0.1:{daemon.port}"]
    assert found["gateways"] == []
    assert found["log"]["failing"] is False
    assert found["hermes_endpoint"] == daemon.hermes_endpoint
    told = await ctl(daemon, "status")
    assert told.returncode == 0
    assert f"pid {daemon.pid}" in told.stdout
    assert str(found["log"]["position"]) not in told.stdout


async def test_since_when_a_gateway_is_offline(tmp_path):
    """Of one that went while loomid was away only that is known, whatever events say later."""
    with Daemon(tmp_path) as daemon:
        async with demo_agent(daemon):
            assert "online for" in (await ctl(daemon, "status")).stdout
            await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        assert "offline since before this start of loomid," in (await ctl(daemon, "status")).stdout
        async with demo_agent(daemon, home=tmp_path / "home"):
            pass
        gone = json.loads((await ctl(daemon, "status", "--json")).stdout)["gateways"][1]["since"]
        await asyncio.to_thread(daemon.restart)
        shown = (await ctl(daemon, "status")).stdout
        assert re.search(r"up \d+ seconds?, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)
        kept = json.loads((await ctl(daemon, "status", "--json")).stdout)["gateways"][1]["since"]
        assert kept == pytest.approx(gone, abs=5)


async def test_a_phone_that_must_come_back_is_shown_as_such(daemon, session):
    async def state_of(device):
        listed = (await ctl(daemon, "devices")).stdout.splitlines()
        return next(line for line in listed if device in line)

    phone = await paired(session, daemon, "newcomer")
    device = phone.hello_ok["device_id"]
    assert "connected, not confirmed yet" in await state_of(device)
    await phone.socket.close()
    async with asyncio.timeout(10):
        while "removed in 9 minutes unless it comes back" not in await state_of(device):
            pass
    again = await PlainPhone.connect(
        session, daemon.url, device_id=device, credential=phone.hello_ok["credential"]
    )
    assert "confirmed" not in await state_of(device)
    await again.socket.close()
    async with asyncio.timeout(10):
        while "ago" not in (line := await state_of(device)):
            pass
    assert "removed" not in line


def test_numbers_and_their_nouns(capsys):
    assert [span(s) for s in (0, 1, 2, 119, 120)] == [
        "0 seconds", "1 second", "2 seconds", "119 seconds", "2 minutes"
    ]  # fmt: skip
    assert [count(n, "device") for n in (0, 1, 2)] == ["0 devices", "1 device", "2 devices"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["pair", "--ttl", "soon"],
        ["pair", "--url", "https://h"],
        ["pair", "--name", ""],
        ["rename", "x", "\x07"],
        ["revoke"],
        ["unheard-of"],
    ],
)
def test_a_wrong_command_line(arguments):
    assert loomictl(None, *arguments).returncode == 2


def test_a_lifetime_that_the_daemon_refuses(daemon):
    """The command names the daemon's own limits, whichever of them is not kept."""
    for ttl in ("0", "8d"):
        done = loomictl(daemon.runtime_dir, "pair", "--ttl", ttl)
        assert (done.returncode, done.stdout) == (2, "")
        assert "'--ttl': between one second and one day" in done.stderr


@pytest.mark.parametrize("command", [["pair"], ["devices"], ["revoke", "x"], ["status"]])
def test_no_daemon(tmp_path: Path, command):
    done = loomictl(None, *command, home=tmp_path, XDG_RUNTIME_DIR=str(tmp_path / "x"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    for place in (tmp_path / "x" / "loomid", "/run/loomid", tmp_path / ".local/state/loomid/run"):
        assert str(place) in done.stderr
    assert "start" in done.stderr


def test_installing_with_a_setting_at_fault_is_one_line(tmp_path: Path):
    """Without a daemon to ask, the settings say where it would listen for Hermes."""
    (tmp_path / "l.toml").write_text("retension = 1\n")
    done = loomictl(
        None,
        "hermes",
        "install",
        "--home",
        str(tmp_path),
        home=tmp_path,
        LOOMI_CONFIG=str(tmp_path / "l.toml"),
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"{tmp_path / 'l.toml'}:1: retension" in done.stderr
    assert not (tmp_path / "plugins").exists()


def test_a_daemon_that_was_killed(tmp_path):
    with Daemon(tmp_path) as daemon:
        daemon.kill()
        assert (daemon.runtime_dir / "admin.sock").exists()
        assert loomictl(daemon.runtime_dir, "status").returncode == 69


def test_the_daemon_is_found_below_its_state_directory(tmp_path):
    daemon = Daemon(tmp_path)
    daemon.runtime_dir = tmp_path / "state" / "run"
    with daemon:
        done = loomictl(None, "--state-dir", str(daemon.state_dir), "status", home=tmp_path)
        assert done.returncode == 0, done.stderr


async def test_what_a_phone_calls_itself_moves_no_cursor(daemon, session):
    code = (await asyncio.to_thread(daemon.pair))["qr"]
    info = {"model": "\x1b[31mEvil\u202e\n", "os": "\x1b]0;x\x07", "app_version": "1"}
    phone = await PlainPhone.connect(session, code["url"], token=code["token"], device_info=info)
    for command in (("devices",), ("revoke", phone.hello_ok["device_id"])):
        shown = await ctl(daemon, *command)
        assert "?[31mEvil??" in shown.stdout
        assert shown.stdout.replace("\n", "").isprintable()
