"""`loomid --demo` as a person meets it: a process on a terminal, and another without one."""

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loomid import config, demo, demo_phone, demo_script
from tests.support.daemon import clean_environ

KEYS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """The demo under a pseudo-terminal: what it wrote, and a keyboard."""

    def __init__(self, folder, *arguments):
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "loomid", "--demo", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=clean_environ(folder, TMPDIR=str(folder)),
            cwd=folder,
            start_new_session=True,
        )
        os.close(slave)
        self.text = ""
        self._at = 0

    def expect(self, pattern, within=20.0):
        """Wait until the pattern comes, after what was expected before."""
        end = time.monotonic() + within
        while not (found := re.compile(pattern).search(self.text, self._at)):
            left = end - time.monotonic()
            ready = select.select([self.master], [], [], max(left, 0))[0]
            assert ready, f"no {pattern!r} in:\n{self.text[self._at :]}"
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                data = b""
            assert data, f"it ended before {pattern!r}:\n{self.text[self._at :]}"
            self.text += KEYS.sub("", data.decode("utf-8", "ignore")).replace("\r\n", "\n")
        self._at = found.end()
        return found

    def write(self, line):
        os.write(self.master, line.encode() + b"\n")

    def rest(self):
        """All it wrote, after its end."""
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self.text += data.decode("utf-8", "ignore")
        return self.text

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(folder):
    terminal = Terminal(folder)
    yield terminal
    terminal.close()


def gone(pid):
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def agent_of(pid):
    """The pid of the demo's agent, its only child."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert "loomid.demo_agent" in Path(f"/proc/{child}/cmdline").read_text()
    return int(child)


@pytest.mark.timeout(120)
def test_the_main_job_in_a_terminal(terminal, folder):
    terminal.expect("▀|█")
    terminal.expect("pairs one phone")
    terminal.expect("No phone can reach that")
    terminal.expect("This terminal is a phone too")
    terminal.expect("Paired with")
    terminal.expect("gateway Demo: online")
    terminal.write("hello there")
    terminal.expect(r"run run_\w+ started")
    terminal.expect("You wrote: hello there")
    terminal.expect("run completed")
    terminal.write("tool")
    terminal.expect("tool terminal: ls -l")
    terminal.expect("tool terminal done")
    terminal.expect("three files")
    terminal.expect("run completed")
    terminal.write("danger")
    terminal.expect(r"APPROVE\? rm -rf ./build .*: /once, /session, /deny")
    terminal.write("deny")  # no button, but a message for the agent
    terminal.expect("queued; to answer write /once")
    terminal.write("/deny")
    terminal.expect("decided: deny")
    terminal.expect("You said no")
    terminal.expect("run completed")
    terminal.expect("You wrote: deny")
    terminal.expect("run completed")
    for typed, said in (("/answer blue", "blue"), ("/answer 1", "red"), ("/answer pink!", "pink!")):
        terminal.write("/answer")
        terminal.expect("nothing to answer")
        terminal.write("/answer it")
        terminal.expect("nothing to answer")
        terminal.write("ask")
        terminal.expect(r"QUESTION Which colour\? \(1. red, 2. blue\): /answer")
        terminal.write("/answer")
        terminal.expect("/answer, and one of them")
        terminal.write("/answer 7")
        terminal.expect("no option 7: they are 1 to 2")
        terminal.write("/anser blue")
        terminal.expect("no button")
        terminal.write(typed)
        terminal.expect("question answered")
        terminal.expect(f"You chose {said}")
        terminal.expect("run completed")
    assert not re.search("You wrote: /|You added: /", terminal.text)
    terminal.write("fail")
    terminal.expect("run failed")
    terminal.write("long")
    terminal.expect("This answer is long")
    terminal.write("/stop")
    terminal.expect("run cancelled")
    terminal.write("file")
    terminal.expect(r"file demo-\w+\.png: image/png, \d+ bytes")
    terminal.write("notify")
    terminal.expect("NOTIFICATION .*backup")
    agent = agent_of(terminal.process.pid)
    terminal.write("/quit")
    assert terminal.process.wait(10) == 0
    assert gone(agent)
    assert not list(folder.glob("loomid-demo-*"))
    # It is a screen for a person: neither log lines nor what the end of a process says.
    assert not re.search("INFO|WARNING|Traceback|was closed", terminal.rest())


@pytest.mark.timeout(60)
def test_what_to_write_is_on_the_screen_at_the_start(terminal):
    terminal.expect("gateway Demo: online")
    lines = terminal.text.splitlines()
    screen = "\n".join(lines[-22:])  # of a terminal of 24 lines
    for word in (*demo_script.HELP, *demo_phone.HELP):
        assert f"  {word} " in screen, word
    assert max(len(line) for line in lines if "--" not in line) < 80
    terminal.write("/help")
    terminal.expect("/quit")


@pytest.mark.timeout(60)
def test_the_commands_it_names_can_be_run(terminal):
    again = terminal.expect(r"LOOMI_ALLOW_INSECURE_BIND=true (.*) --demo --listen [\d.]+:8770")[1]
    ctl = terminal.expect(r"  (.*loomi.* --runtime-dir .*) pair --json")[1]
    terminal.expect("gateway Demo: online")
    for command, said in ((f"{again} --version", "loomid"), (f"{ctl} devices", "Terminal")):
        done = subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=20, check=True
        )
        assert said in done.stdout


@pytest.mark.timeout(60)
def test_ctrl_c_ends_both_processes(terminal, folder):
    terminal.expect("Paired with")
    agent = agent_of(terminal.process.pid)
    os.killpg(terminal.process.pid, signal.SIGINT)  # as a terminal does
    assert terminal.process.wait(10) == 0
    assert gone(agent)
    assert "Traceback" not in terminal.text
    assert not list(folder.glob("loomid-demo-*"))


@pytest.mark.timeout(60)
def test_a_killed_demo_leaves_no_agent(terminal):
    terminal.expect("Paired with")
    agent = agent_of(terminal.process.pid)
    terminal.process.kill()
    end = time.monotonic() + 10
    while not gone(agent):
        assert time.monotonic() < end, "the agent still runs"
        select.select([], [], [], 0.02)


def test_directories_of_its_own_unless_named(tmp_path):
    with demo.directories({"listen": "x", "state_dir": None, "runtime_dir": None}, {}) as found:
        assert found["listen"] == "x"
        assert found["state_dir"] != found["runtime_dir"]
        assert all("loomid-demo-" in found[name] for name in ("state_dir", "runtime_dir"))
    named = {"state_dir": str(tmp_path), "runtime_dir": None, "config": "x.toml"}
    with demo.directories(named, {"LOOMI_RUNTIME_DIR": "/x"}) as found:
        assert found == named


def test_the_settings_of_a_real_loomid_are_not_the_demos(tmp_path):
    """Its code would lead to the real one."""
    path = tmp_path / ".config/loomid/loomid.toml"
    path.parent.mkdir(parents=True)
    path.write_text('public_url = "wss://real.example"\ntls_cert = "c"\ntls_key = "k"\n')
    environ = {"HOME": str(tmp_path)}
    for more, option, url in (
        ({}, None, None),
        ({}, str(path), "wss://real.example/ws"),
        ({"LOOMI_CONFIG": str(path)}, None, "wss://real.example/ws"),
        ({"LOOMI_PUBLIC_URL": "wss://x"}, None, "wss://x/ws"),
    ):
        with demo.directories({"config": option}, environ | more) as overrides:
            found = config.load(overrides, environ | more)
        assert (found.public_url, found.tls) == (url, "real" in (url or ""))
