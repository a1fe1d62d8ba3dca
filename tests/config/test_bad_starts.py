"""Every start that cannot be: the documented exit status and exactly one line."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, clean_environ


@pytest.fixture
def start(folder):
    """Run loomid until it ends; returns its exit status and its one line."""

    def run(*arguments: str, **environ: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "loomid", "--listen", "127.0.0.1:0"]
        done = subprocess.run(
            [*command, *arguments],
            env=clean_environ(folder, **environ),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("loomid: ")
        return done.returncode, lines[0]

    return run


def test_port_in_use(start):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, line = start("--listen", f"127.0.0.1:{port}")
    assert (code, f"127.0.0.1:{port}" in line) == (75, True)


@pytest.mark.parametrize("option", ["--state-dir", "--runtime-dir"])
def test_a_directory_that_cannot_be(start, tmp_path, option):
    (tmp_path / "file").write_text("")
    code, line = start(option, str(tmp_path / "file" / "below"))
    assert (code, "Not a directory" in line) == (73, True)


def test_a_read_only_directory(start):
    """Not even root can make files in /proc."""
    code, line = start("--state-dir", "/proc/1")
    assert (code, "/proc/1" in line) == (73, True)


def test_a_newer_database(start, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with sqlite3.connect(state / "loomid.db") as database:
        database.execute("PRAGMA user_version = 9999")
        database.execute("CREATE TABLE later (x)")
    database.close()
    code, line = start("--state-dir", str(state))
    assert (code, "newer" in line) == (73, True)


def test_a_damaged_database(start, tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "loomid.db").write_bytes(b"not a database at all" * 1000)
    code, line = start("--state-dir", str(state))
    assert (code, "loomid.db" in line) == (73, True)


@pytest.mark.parametrize("shared", ["state", "runtime"])
def test_a_second_loomid(start, tmp_path, shared):
    (tmp_path / "first").mkdir()
    with Daemon(tmp_path / "first") as first:
        directories = {"state": first.state_dir, "runtime": first.runtime_dir}
        directory = directories[shared]
        code, line = start(f"--{shared}-dir", str(directory))
        assert (code, f"pid {first.pid}" in line, str(directory) in line) == (75, True, True)
        assert first.status()["pid"] == first.pid
        assert first.stop() == 0


def test_an_over_long_socket_path(start, tmp_path):
    code, line = start("--runtime-dir", str(tmp_path / ("x" * 100)))
    assert (code, "LOOMI_RUNTIME_DIR" in line) == (78, True)


def test_an_unknown_key(start, tmp_path):
    (tmp_path / "l.toml").write_text('name = "a"\nlisten_on = "x"\n')
    code, line = start("--config", str(tmp_path / "l.toml"))
    assert (code, f"{tmp_path}/l.toml:2: " in line) == (78, True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LOOMI_REPLAY_WINDOW", "12"),
        ("LOOMI_RETENTION", "soon"),
        ("LOOMI_PUBLIC_URL", "https://h"),
        ("LOOMI_ALLOW_INSECURE_BIND", "perhaps"),
        ("LOOMI_UNHEARD_OF", "1"),
    ],
)
def test_a_bad_variable(start, variable, value):
    code, line = start(**{variable: value})
    assert (code, variable in line) == (78, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_beyond_this_host_without_tls(start, host):
    code, line = start("--listen", f"{host}:0")
    assert (code, "LOOMI_ALLOW_INSECURE_BIND" in line) == (78, True)


def test_an_inherited_socket_beyond_this_host_without_tls(folder):
    with socket.create_server(("0.0.0.0", 0)) as server:
        shell = f"exec 3<&{server.fileno()}; LISTEN_PID=$BASHPID exec {sys.executable} -m loomid"
        done = subprocess.run(
            ["bash", "-c", shell],
            env=clean_environ(folder, LISTEN_FDS="1"),
            pass_fds=[server.fileno()],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1


def test_a_certificate_without_its_key(start):
    code, line = start(LOOMI_TLS_CERT="/x.pem")
    assert (code, "LOOMI_TLS_KEY" in line) == (78, True)


def test_a_certificate_that_cannot_be_read(start, tmp_path):
    code, line = start(LOOMI_TLS_CERT=str(tmp_path), LOOMI_TLS_KEY="/x.pem")
    assert (code, f"tls_cert {tmp_path}: Is a directory" in line) == (78, True)


def test_the_line_of_a_failed_start_has_a_priority_in_the_journal(tmp_path):
    log = Path(tmp_path / "log")
    with log.open("wb") as file:
        found = log.stat()
        environ = clean_environ(tmp_path, JOURNAL_STREAM=f"{found.st_dev}:{found.st_ino}")
        done = subprocess.run(
            [sys.executable, "-m", "loomid", "--listen", "nowhere"],
            env=environ,
            stderr=file,
            timeout=30,
            check=False,
        )
    assert done.returncode == 78
    assert log.read_text().startswith("<3>loomid: option --listen")
