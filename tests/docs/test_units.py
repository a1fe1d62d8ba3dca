"""The systemd units: accepted by systemd, and as closed as the README says."""

import asyncio
import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.main_job import demo_agent, main_job

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


def confined(pid):
    return "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()


def test_the_socket_is_the_default_address():
    from loomid.config import DEFAULT_PORT

    assert settings(SOCKET)["Socket"]["ListenStream"] == f"127.0.0.1:{DEFAULT_PORT}"
