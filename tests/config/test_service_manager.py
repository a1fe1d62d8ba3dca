"""systemd's side: readiness, watchdog, handed-over sockets, the journal."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loomid import journal, notify

ROOT = Path(__file__).parents[2]


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def test_notify(manager):
    notifier = notify.Notifier({"NOTIFY_SOCKET": manager.getsockname()})
    notifier.send("READY=1", "STATUS=well")
    assert manager.recv(4096) == b"READY=1\nSTATUS=well"
    notifier.close()
    notifier.send("STOPPING=1")


def test_notify_by_abstract_name():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0loomid-test-{os.getpid()}")
        receiver.settimeout(5)
        notifier = notify.Notifier({"NOTIFY_SOCKET": f"@loomid-test-{os.getpid()}"})
        notifier.send("READY=1")
        assert receiver.recv(4096) == b"READY=1"
        notifier.close()


def test_a_manager_that_is_gone_is_logged(tmp_path, caplog):
    notifier = notify.Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    notifier.send("READY=1")
    notifier.close()
    assert "cannot be told" in caplog.text


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "x"}, None),
    ],
)
def test_watchdog_interval(environ, seconds):
    assert notify.Notifier(environ).watchdog_s == seconds


def inherit(code: str, fd: int, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `code` with `fd` as descriptor 3 and LISTEN_PID its own."""
    start = f"import os; os.environ['LISTEN_PID'] = str(os.getpid()); {code}"
    shell = f'exec 3<&{fd}; exec {sys.executable} -c "$CODE"'
    return subprocess.run(
        ["bash", "-c", shell],
        env=os.environ | {"CODE": start, "LISTEN_FDS": "1"} | environ,
        pass_fds=[fd],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


TAKE = "from loomid.notify import inherited_sockets as take; s = take(os.environ); "


def test_socket_activation():
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = inherit(
            TAKE + "print(s[0].getsockname()[1], 'LISTEN_FDS' in os.environ, len(take(os.environ)))"
            "; s[0].close()",
            server.fileno(),
        )
        assert done.stdout.split() == [str(server.getsockname()[1]), "False", "0"], done.stderr


@pytest.mark.parametrize("kind", ["file", "not listening", "unix"])
def test_socket_activation_with_something_else(tmp_path, kind):
    with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as other:
        if kind == "unix":
            other.bind(str(tmp_path / "s"))
            other.listen()
        with (tmp_path / "f").open("w") as file:
            fd = file.fileno() if kind == "file" else other.fileno()
            done = inherit(TAKE, fd)
    assert "ConfigError: inherited descriptor 3" in done.stderr


def test_sockets_of_another_process_are_left_alone():
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
    assert notify.inherited_sockets(environ) == []
    assert environ == {}


def test_journal_stream():
    found = os.fstat(sys.__stderr__.fileno())
    fits = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
    check = "from loomid import journal; import os; print(journal.is_journal(os.environ))"

    def ask(environ: dict[str, str]) -> str:
        return subprocess.run(
            [sys.executable, "-c", check],
            env=os.environ | environ,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=sys.__stderr__.fileno(),
            text=True,
            timeout=30,
            check=True,
        ).stdout.strip()

    assert ask(fits) == "True"
    assert ask({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}) == "False"
    assert ask({"JOURNAL_STREAM": "nonsense"}) == "False"


def test_journal_priorities(manager, monkeypatch):
    """The journal's own protocol, received by a socket in its place."""
    journald = pytest.importorskip("logging_journald")
    monkeypatch.setattr(journald.JournaldLogHandler, "SOCKET_PATH", manager.getsockname())
    handler = journal._journal_handler()
    assert handler is not None
    logger = logging.Logger("loomid.web")
    logger.addHandler(handler)
    logger.warning("closed %s", 4003)
    fields = manager.recv(65536).split(b"\n")
    assert b"PRIORITY=4" in fields
    assert b"MESSAGE=loomid.web: closed 4003" in fields
    assert b"SYSLOG_IDENTIFIER=loomid" in fields
    handler.transport.socket.close()


def test_without_a_journal_socket_lines_are_plain(monkeypatch, tmp_path):
    journald = pytest.importorskip("logging_journald")
    monkeypatch.setattr(journald.JournaldLogHandler, "SOCKET_PATH", tmp_path / "none")
    assert journal._journal_handler() is None
