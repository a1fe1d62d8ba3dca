"""The systemd units: accepted by systemd, and as closed as the README says."""

import asyncio
import configparser
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import samples
from tests.support.answering import Host, key_of
from tests.support.confined import behind
from tests.support.daemon import Daemon
from tests.support.handing import handed
from tests.support.hermes_home import Home
from tests.support.main_job import demo_agent, main_job
from tests.support.phone import Phone

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
SYSTEM, USER, SOCKET = (
    UNITS / "loomid.service",
    UNITS / "user/loomid.service",
    UNITS / "loomid.socket",
)
MAX_EXPOSURE = 1.5


@pytest.fixture(scope="module")
def analyze():
    """Runs systemd-analyze; returns its output, stdout and stderr together."""
    if shutil.which("systemd-analyze") is None:
        message = "systemd-analyze is not installed"
        if os.environ.get("LOOMI_REQUIRE_HERMES") == "1":
            pytest.fail(message)
        pytest.skip(message)

    def run(*args, **env):
        done = subprocess.run(
            ["systemd-analyze", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=50,
            check=False,
            env={**os.environ, **env},
        )
        return done.returncode, done.stdout

    return run


def copy(unit, directory):
    """A unit whose program and account exist here: verify looks for both."""
    text = unit.read_text()
    text = re.sub(r"^ExecStart=.*$", f"ExecStart={shutil.which('true')}", text, flags=re.M)
    text = re.sub(r"^User=.*$", "User=daemon", text, flags=re.M)
    path = directory / unit.name
    path.write_text(text)
    return path


def settings(unit):
    """The directives of a unit, those given twice as their last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(unit.read_text())
    return parser


def test_verify_system_units(analyze, tmp_path):
    paths = [copy(unit, tmp_path) for unit in (SYSTEM, SOCKET)]
    assert analyze("verify", *paths) == (0, "")


def test_verify_user_units(analyze, tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    paths = [copy(unit, tmp_path) for unit in (USER, SOCKET)]
    assert analyze("--user", "verify", *paths, XDG_RUNTIME_DIR=str(runtime)) == (0, "")


def test_exposure_of_the_system_unit(analyze):
    code, said = analyze(
        "security", "--offline=true", "--no-pager", f"--threshold={MAX_EXPOSURE * 10:.0f}", SYSTEM
    )
    assert code == 0, said
    found = re.search(r"Overall exposure level for loomid.service: ([\d.]+)", said)
    assert found is not None
    assert float(found[1]) <= MAX_EXPOSURE


@pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])
def test_both_services_agree_on_how_loomid_lives(unit):
    service = settings(unit)["Service"]
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 10
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "78"
    assert service["UMask"] == "0077"
    assert service["ExecStart"].endswith("bin/loomid")


def test_the_service_keeps_its_directories_to_itself():
    service = settings(SYSTEM)["Service"]
    assert service["StateDirectory"] == service["RuntimeDirectory"] == "loomid"
    assert service["StateDirectoryMode"] == service["RuntimeDirectoryMode"] == "0700"
    # The sockets' directory outlives a restart, so that the shim's watch on it does too.
    assert service["RuntimeDirectoryPreserve"] == "restart"
    # It would remove what Hermes, the same account, shares between its processes.
    assert "RemoveIPC" not in service


@pytest.mark.parametrize("unit", [SYSTEM, USER], ids=["system", "user"])
async def test_it_does_its_work_with_the_calls_that_the_unit_leaves(analyze, unit, tmp_path):
    """The real daemon under the unit's own filter: a phone pairs and sees a run's end."""
    daemon = Daemon(tmp_path)
    daemon.wrap = [sys.executable, "-m", "tests.support.confined", str(unit)]
    try:
        await asyncio.to_thread(daemon.start)
        assert confined(daemon.pid)
        async with demo_agent(daemon):
            await main_job(daemon, daemon.url)
        assert await asyncio.to_thread(daemon.stop) == 0
    finally:
        daemon.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
async def test_the_system_service_reads_hermes_home_and_gets_its_files(tmp_path):
    """Its history, also while Hermes is stopped, and what the agent hands over by a link."""
    hermes = Home(tmp_path / "hermes", "19", journal="wal")
    hermes.session("s1", key_of("c1"))
    hermes.say("hello", "hi there")
    (hermes.folder / "report.pdf").write_bytes(samples.PDF)
    daemon = Daemon(tmp_path)
    daemon.state_dir.mkdir(mode=0o700)
    daemon.wrap = behind(str(SYSTEM), hermes.folder, daemon.state_dir)
    host = Host(daemon.runtime_dir / "hermes.sock", home=str(hermes.folder))
    session = {"id": "s1", "session_key": key_of("c1"), "source": "loomi"}
    host.sessions = [session | {"started_at": 1_000.0, "last_active": 1_007.0}]
    try:
        with closing(sqlite3.connect(hermes.path)) as held:  # Hermes is at work
            held.execute("SELECT count(*) FROM messages").fetchone()
            await asyncio.to_thread(daemon.start)
            host.link.start()
            phone = Phone(daemon.url)
            code = (await asyncio.to_thread(daemon.pair))["qr"]
            async with phone.connect(code["token"]) as connection:
                status = await connection.wait_type("gateway.status")
                assert "history" in status.payload["capabilities"]
                (task,) = (await connection.request("task.list", request_id="r1")).payload["tasks"]
                asked = {"task_id": task["task_id"]}
                seen = await connection.request("task.history", request_id="r2", **asked)
                assert len(seen.payload["turns"]) == 1
                copy = daemon.state_dir / "inbox" / "out-1"
                copy.parent.mkdir(exist_ok=True)
                os.link(hermes.folder / "report.pdf", copy)
                host.link.emit("file.sent", handed("out-1", copy, ours=True))
                told = await connection.wait_type("run.attachment")
                assert told.payload["media_type"] == "application/pdf"
        assert not hermes.path.with_name("state.db-wal").exists()  # Hermes stopped
        async with phone.connect() as connection:
            again = await connection.request("task.history", request_id="r3", **asked)
            assert again.payload["turns"] == seen.payload["turns"]
        assert (await asyncio.to_thread(daemon.status))["gateways"][0]["unreadable"] is None
        assert not copy.exists()
        assert (hermes.folder / "report.pdf").exists()
    finally:
        host.link.stop(0.1)
        daemon.close()


def confined(pid):
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


def test_the_socket_is_the_default_address():
    from loomid.config import DEFAULT_PORT

    assert settings(SOCKET)["Socket"]["ListenStream"] == f"127.0.0.1:{DEFAULT_PORT}"
