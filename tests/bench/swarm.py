"""Builds and drives the load client: swarm.c."""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = [Path(__file__).with_name(name) for name in ("swarm.c", "speech.c", "swarm.h")]
PATIENCE_S = 90.0


class Failed(Exception):
    """A phone was closed, got something wrong or did not get everything."""


def cache() -> Path:
    """Where what is not in the repository is kept: the compiled client, Node's `ws`."""
    return Path(os.environ.get("LOOMI_BENCH_CACHE") or "~/.cache/loomid/bench").expanduser()


def missing() -> str | None:
    """Why the client cannot be built."""
    try:
        program()
    except FileNotFoundError:
        return "gcc is not installed"
    except subprocess.CalledProcessError:
        return "gcc cannot compile it (is libc6-dev installed?)"
    return None


def program() -> Path:
    """The compiled client; it is compiled once for each version of its source."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()
    path = cache() / f"swarm-{digest[:16]}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", new, *SOURCES[:2]], check=True)
        new.rename(path)
    return path


class Swarm:
    """A client process; `words` says what each phone says first, and when it comes back.

    The first `apart` phones have their latencies counted apart.
    """

    def __init__(
        self, protocol: str, port: int, words: Sequence[Sequence[str]], apart: int = 0
    ) -> None:
        self.count = len(words)
        with tempfile.NamedTemporaryFile("w", suffix=".plan") as plan:
            for i, (first, again) in enumerate(words):
                plan.write(f"{1 if i < apart else 0}\t{first}\t{again}\n")
            plan.flush()
            self._process = subprocess.Popen(
                [program(), protocol, str(port), plan.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._ask("clear 1")  # it has read the plan then

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def open(self, first: int = 0, end: int | None = None) -> None:
        """Connect phones, all at once, and wait until they are served."""
        said = self._ask(f"open {first} {self.count if end is None else end}")
        if not said["open"]:
            raise Failed(f"not all connected: {said['trouble']}")

    def shut(self, first: int, end: int) -> None:
        """Close connections."""
        self._ask(f"shut {first} {end}")

    def clear(self, every: int = 1) -> None:
        """Begin to count anew; of each `every`-th message the latency is kept."""
        self._ask(f"clear {every}")

    def ask(self, command: str) -> None:
        """Send a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def has_told(self) -> bool:
        """Whether an answer is there."""
        return bool(select.select([self._process.stdout], [], [], 0.0)[0])

    def told(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the load client ended: {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def until(self, number: int, first: int = 0, end: int | None = None) -> dict[str, Any]:
        """Wait until phones have this event, with all before it; the figures."""
        last = self.count if end is None else end
        return self.checked(self._ask(f"until {first} {last} {number} {PATIENCE_S}"))

    def checked(self, said: dict[str, Any]) -> dict[str, Any]:
        """What was told, when it is that all came in order."""
        if not said["until"] or said["wrong"]:
            raise Failed(
                f"{said['messages']} messages, {said['wrong']} out of order; {said['trouble']}"
            )
        return said

    def _ask(self, command: str) -> dict[str, Any]:
        self.ask(command)
        return self.told()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
