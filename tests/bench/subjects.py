"""The servers that are compared, and how each is started."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loomid
from tests.bench import messages
from tests.bench.devices import WINDOW, pair
from tests.bench.swarm import cache
from tests.support.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.bench.messages import Order

ROOT = Path(__file__).parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
MOSQUITTO = """
listener {port} 127.0.0.1
allow_anonymous true
user root
log_dest none
persistence true
persistence_location {folder}/
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""
NATS = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}" }}
"""
RESUME = ('{"last_seq":0}', '{"last_seq":?}')


@dataclass
class Running:
    """A server that runs, and who publishes to it (perhaps itself)."""

    protocol: str
    port: int
    words: Sequence[Sequence[str]]
    publisher: subprocess.Popen[str]
    pids: list[int] = field(default_factory=list)

    def publish(self, order: Order) -> dict[str, int]:
        """Have events published, and wait for that; what `Order.done` says."""
        assert self.publisher.stdin is not None
        self.publisher.stdin.write(order.line())
        self.publisher.stdin.flush()
        done: dict[str, int] = answered(self.publisher)
        return done

    def cpu_s(self) -> float:
        """Processor time of the server so far."""
        return sum(cpu_s(pid) for pid in self.pids)


@dataclass(frozen=True)
class Subject:
    """A server to be measured; `missing` says why it cannot run here."""

    name: str
    start: Callable[[Path, int], Any]
    version: Callable[[], str]
    missing: Callable[[], str | None] = lambda: None
    most: int | None = None
    """It is given no more events than this at once."""


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


@contextmanager
def _path_from_hook(folder: Path, phones: int) -> Iterator[Running]:
    """The daemon, and a host process with the shim's link that publishes through it."""
    daemon = Daemon(folder, LOOMI_REPLAY_WINDOW=str(WINDOW))
    daemon.state_dir.mkdir(mode=0o700)
    words = asyncio.run(pair(daemon.state_dir / "loomid.db", phones))
    command = [sys.executable, "-m", "tests.bench.host", str(daemon.runtime_dir / "hermes.sock")]
    with daemon, spoken(command) as host:
        answered(host)
        yield Running("ws", daemon.port, words, host, [daemon.pid])


@contextmanager
def _node(folder: Path, phones: int) -> Iterator[Running]:
    pieces = {"rest": messages.REST, "filling": messages.FILLING, "end": messages.END}
    command = ["node", str(ROOT / "tests/bench/server_ws.js"), json.dumps(pieces)]
    environ = os.environ | {"NODE_PATH": str(node_modules())}
    with spoken(command, env=environ) as process:
        said = answered(process)
        yield Running("ws", said["port"], [RESUME] * phones, process, [process.pid])


@contextmanager
def _broker(
    kind: str, command: Sequence[str], config: str, words: Sequence[str], folder: Path, phones: int
) -> Iterator[Running]:
    """A broker, and a publisher in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = folder / "broker.conf"
    file.write_text(config.format(port=port, folder=folder))
    process = subprocess.Popen([*command, str(file)], stderr=subprocess.DEVNULL)
    try:
        _wait(port, process)
        publisher = [sys.executable, "-m", "tests.bench.brokers", kind, str(port), str(phones)]
        with spoken(publisher) as talking:
            answered(talking)
            yield Running(kind, port, [(word, "") for word in words], talking, [process.pid])
    finally:
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    raise RuntimeError(f"{process.args!r} ended: {process.returncode}")


def _mosquitto(folder: Path, phones: int) -> Any:
    words = [f"p{i}" for i in range(phones)]
    return _broker("mqtt", [_found("mosquitto") or "", "-c"], MOSQUITTO, words, folder, phones)


def _jetstream(kind: str, folder: Path, phones: int) -> Any:
    words = [f"d.{i}" for i in range(phones)]
    return _broker(kind, [_found("nats-server") or "", "-c"], NATS, words, folder, phones)


def _found(program: str) -> str | None:
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def node_modules() -> Path:
    """Where `ws` is looked for."""
    return cache() / "node_modules"


def _no_ws() -> str | None:
    if shutil.which("node") is None:
        return "node is not installed"
    if not (node_modules() / "ws").is_dir():
        return f"ws is not in {node_modules()}"
    return None


def _needs(program: str) -> Callable[[], str | None]:
    return lambda: None if _found(program) else f"{program} is not installed"


def _says(program: str, option: str) -> str:
    """The version that a program tells in the first line of what it says."""
    run = subprocess.run(
        [_found(program) or program, option], capture_output=True, text=True, check=False
    )
    return run.stdout.partition("\n")[0]


def _ws_version() -> str:
    package = json.loads((node_modules() / "ws/package.json").read_text())
    return f"ws {package['version']}, Node {_says('node', '--version')}"


def _loomid() -> str:
    return f"loomid {loomid.__version__}"


LOOMID = Subject("loomid", partial(_own, "server_loomid"), _loomid)
PATH = Subject("loomid from the hook", _path_from_hook, _loomid, most=3000)
"""The publisher is not told what the phones can take: more would leave the ring (4,096)."""
AIOHTTP = Subject(
    "aiohttp send_str",
    partial(_own, "server_aiohttp"),
    lambda: f"aiohttp {version('aiohttp')}, Python {platform.python_version()}",
)
_JETSTREAM: Any = (partial(_says, "nats-server", "--version"), _needs("nats-server"))
SUBJECTS = (
    LOOMID,
    PATH,
    AIOHTTP,
    Subject("Node ws", _node, _ws_version, _no_ws),
    Subject("JetStream", partial(_jetstream, "jetstream"), *_JETSTREAM),
    Subject("JetStream AckNone", partial(_jetstream, "jetstream-none"), *_JETSTREAM),
    Subject("mosquitto QoS 1", _mosquitto, partial(_says, "mosquitto", "-h"), _needs("mosquitto")),
)
