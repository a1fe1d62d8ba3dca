"""A real loomid process with directories of its own, for tests of every area."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from loomid.adminclient import AdminClient

ROOT = Path(__file__).parents[2]
START_S = 50.0
STOP_S = 5.0


def clean_environ(home: Path, **more: str) -> dict[str, str]:
    """An environment in which nothing of this machine's own loomid shows."""
    return {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        **more,
    }


class Daemon:
    """`python -m loomid` on a port of its own; use it with `with`, or start and close it.

    All calls block, for at most START_S or so: in a coroutine that must go on meanwhile,
    call them through asyncio.to_thread.
    """

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.runtime_dir = folder / "run"
        self.log_path = folder / "loomid.log"
        self.arguments = list(arguments)
        self.listen = "127.0.0.1:0"
        self.command = [sys.executable, "-m", "loomid"]
        self.wrap: list[str] = []
        self.pass_fds: tuple[int, ...] = ()
        self.process: subprocess.Popen[bytes] | None = None
        self.notified: list[str] = []
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(folder / "notify.sock"))
        self.environ = clean_environ(folder, NOTIFY_SOCKET=str(folder / "notify.sock"), **environ)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it without waiting; stderr goes to the end of the log file."""
        command = [*self.wrap, *self.command, "--listen", self.listen]
        command += ["--state-dir", str(self.state_dir), "--runtime-dir", str(self.runtime_dir)]
        self.notified.clear()
        self.wait_notified_nothing(0.0)  # by an earlier process
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.arguments],
                env=self.environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=self.pass_fds,
            )
        return self.process

    def start(self) -> Daemon:
        """Start it and wait until it says that it is ready; later starts keep the port."""
        self.spawn()
        self.wait_notified("READY=1")
        self.listen = self.status()["listen"][0]
        return self

    def wait_notified(self, field: str, timeout: float = START_S) -> None:
        """Wait until it has sent that field to the service manager."""
        process = self.process
        assert process is not None
        watched: list[Any] = [self._notify]
        if process.poll() is None:
            watched.append(os.pidfd_open(process.pid))
        end = time.monotonic() + timeout
        try:
            while field not in self.notified:
                left = max(0.0, end - time.monotonic()) if process.poll() is None else 0.0
                if self._notify in select.select(watched, [], [], left)[0]:
                    self.notified += self._notify.recv(4096).decode().split("\n")
                elif process.poll() is not None:
                    raise AssertionError(f"loomid ended: {process.returncode}\n{self.log()}")
                elif left == 0.0:
                    raise AssertionError(f"no {field} after {timeout} s\n{self.log()}")
        finally:
            for fd in watched[1:]:
                os.close(fd)

    def wait_notified_nothing(self, seconds: float) -> None:
        """Read away what was sent until now; after that it must send nothing for so long."""
        while select.select([self._notify], [], [], 0.0)[0]:
            self._notify.recv(4096)
        ready, _, _ = select.select([self._notify], [], [], seconds)
        assert not ready, self._notify.recv(4096)

    def wait(self, timeout: float = STOP_S) -> int:
        """Wait until it has ended; its exit status, negative for a signal."""
        assert self.process is not None
        return self.process.wait(timeout)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and wait; the exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

    def restart(self) -> Daemon:
        """Stop it in an orderly way if it runs, and start it again on the same port."""
        if self.process is not None and self.process.poll() is None:
            assert self.stop() == 0, self.log()
        return self.start()

    def log(self) -> str:
        """Everything that all its starts have written."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self.process is not None
        return self.process.pid

    @property
    def port(self) -> int:
        """Where phones connect."""
        return int(self.listen.rpartition(":")[2])

    @property
    def url(self) -> str:
        """Where phones connect, as in the pairing code."""
        return f"ws://127.0.0.1:{self.port}/ws"

    @property
    def hermes_endpoint(self) -> str:
        """Where shims connect."""
        return f"ipc://{self.runtime_dir / 'hermes.sock'}"

    def call(self, method: str, target: str, **options: Any) -> Any:
        """One call of the admin socket."""
        return AdminClient(self.runtime_dir / "admin.sock").call(method, target, **options)

    def status(self) -> dict[str, Any]:
        """What loomictl status shows."""
        return self.call("GET", "/status")

    def pair(self, **asked: Any) -> dict[str, Any]:
        """A new pairing code: qr, drawn, token_ref, expires_at."""
        return self.call("POST", "/pair", body=asked)

    def devices(self) -> list[dict[str, Any]]:
        """The paired devices."""
        return self.call("GET", "/devices")["devices"]

    def rss_mib(self) -> float:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_s(self) -> float:
        """Processor time it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._notify.close()

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
