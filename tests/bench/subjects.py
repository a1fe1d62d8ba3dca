"""The servers that are compared, and how each is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.messages import Order

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
RESUME = ('{"last_seq":0}', '{"last_seq":?}')


@dataclass
class Running:
    """A server that runs, and who publishes to it (perhaps itself)."""

    protocol: str
    port: int
    words: Sequence[Sequence[str]]
    publisher: subprocess.Popen[str]
    pids: list[int] = field(default_factory=list)

    def begin(self, order: Order) -> None:
        """Have events published."""
        assert self.publisher.stdin is not None
        self.publisher.stdin.write(order.line())
        self.publisher.stdin.flush()

    def published(self) -> dict[str, int]:
        """Wait until they are; when it began, and the last number."""
        return answered(self.publisher)

    def publish(self, order: Order) -> dict[str, int]:
        """Have events published, and wait for that."""
        self.begin(order)
        return self.published()

    def cpu_s(self) -> float:
        """Processor time of the server so far."""
        return sum(cpu_s(pid) for pid in self.pids)


@dataclass(frozen=True)
class Subject:
    """A server to be measured; `missing` says why it cannot run here."""

    name: str
    start: Callable[[Path, int], Any]
    missing: Callable[[], str | None] = lambda: None


def answered(process: subprocess.Popen[str]) -> Any:
    """The next line a process tells, decoded."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended: {process.wait()}")
    return json.loads(line)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def spoken(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is told orders by lines and answers by lines."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _own(module: str, folder: Path, phones: int) -> Iterator[Running]:
    """A server of this package that speaks WebSocket and publishes itself."""
    command = [sys.executable, "-m", f"tests.bench.{module}", str(folder), str(phones)]
    with spoken(command) as process:
        said = answered(process)
        words = said.get("words", [RESUME] * phones)
        yield Running("ws", said["port"], words, process, [process.pid])


def _module(name: str) -> Callable[[Path, int], Any]:
    return lambda folder, phones: _own(name, folder, phones)


LOOMID = Subject("loomid", _module("server_loomid"))
AIOHTTP = Subject("aiohttp send_str", _module("server_aiohttp"))
SUBJECTS = (LOOMID, AIOHTTP)
