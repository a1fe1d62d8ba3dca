"""The link between processes that are killed, stopped, forked and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loomid import processes
from tests.support.host import delta
from tests.support.sink import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BEAT = "0.1"


def wait_until(condition: Callable[[], Any], bound: float = 20.0) -> Any:
    end = time.monotonic() + bound
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)
    return value


class Process:
    """One stand-in; what it says is collected."""

    def __init__(self, module: str, *args: object) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", f"tests.support.{module}", *map(str, args), "--beat", BEAT],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        pipes = [(self.popen.stdout, self.lines), (self.popen.stderr, self.errors)]
        self.readers = [threading.Thread(target=self.read, args=pipe) for pipe in pipes]
        for reader in self.readers:
            reader.start()

    def read(self, pipe: Any, into: list[str]) -> None:
        with pipe:
            into += iter(pipe.readline, "")

    def do(self, **step: Any) -> None:
        self.popen.stdin.write(json.dumps(step) + "\n")
        self.popen.stdin.flush()

    def said(self, **what: Any) -> bool:
        return json.dumps(what) + "\n" in self.lines

    def kill(self, number: int) -> None:
        os.kill(self.popen.pid, number)

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.popen.poll() is None:
            self.kill(number)
        status = self.popen.wait(10)
        for reader in self.readers:
            reader.join(10)
        self.popen.stdin.close()
        return status


class Rig:
    """The stand-ins of one test, on one socket and one store."""

    def __init__(self, tmp_path: Path) -> None:
        self.socket = tmp_path / "run" / "hermes.sock"
        self.store = tmp_path / "store"
        self.processes: list[Process] = []

    def start(self, module: str, *args: object) -> Process:
        self.processes.append(Process(module, "--socket", self.socket, *args))
        return self.processes[-1]

    def host(self, *args: object) -> Process:
        return self.start("host", *args)

    def loomid(self) -> Process:
        process = self.start("sink", "--store", self.store)
        wait_until(lambda: process.lines == ["ready\n"])
        return process

    def kinds(self, boot: str = "boot1") -> list[str]:
        return [line[3] for line in stored(self.store) if line[1] == boot]

    def texts(self) -> str:
        return "".join(line[4]["text"] for line in stored(self.store) if line[3] == "delta")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    it = Rig(tmp_path)
    yield it
    for process in it.processes:
        process.end()
        print(process.popen.args, process.lines, process.errors)


def test_loomid_killed_at_any_time_loses_and_doubles_nothing(rig):
    host = rig.host()
    loomid = rig.loomid()
    host.do(emit="delta", body=delta("%d "), times=2000, every=0.0005)
    host.do(emit="turn.answered", body={"turn_id": "t1", "text": "end"})
    for count in (200, 900, 1600):  # words, not facts: what waits is joined
        wait_until(lambda count=count: rig.texts().count(" ") > count)
        loomid.end()
        loomid = rig.loomid()
    wait_until(lambda: "turn.answered" in rig.kinds())
    numbers = [line[2] for line in stored(rig.store) if line[2]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert rig.texts() == "".join(f"{i} " for i in range(2000))


def test_a_killed_gateway_is_down_and_lost_and_its_successor_is_not(rig):
    rig.loomid()
    host = rig.host()
    wait_until(lambda: "inventory" in rig.kinds())
    host.end()
    wait_until(lambda: rig.kinds()[-2:] == ["gateway.down", "gateway.lost"])
    rig.host("--boot", "boot2")
    wait_until(lambda: rig.kinds("boot2") == ["gateway.up", "inventory"])


def test_a_killed_gateway_that_is_back_at_once_was_lost(rig):
    rig.loomid()
    host = rig.host()
    wait_until(lambda: "inventory" in rig.kinds())
    host.end()
    rig.host("--boot", "boot2")
    wait_until(lambda: "inventory" in rig.kinds("boot2") and "gateway.lost" in rig.kinds())
    assert rig.kinds("boot2") == ["gateway.up", "inventory"]


def test_a_stopped_loomid_is_noticed_and_taken_up_again(rig):
    loomid = rig.loomid()
    host = rig.host()
    wait_until(lambda: host.said(state="linked"))
    loomid.kill(signal.SIGSTOP)
    wait_until(lambda: any("silent" in line for line in host.errors))
    host.do(emit="delta", body=delta("%d "), times=300)
    host.do(sleep=1.0)  # long enough for several tries to connect
    host.do(emit="turn.answered", body={"turn_id": "t1", "text": "end"})
    wait_until(lambda: sum(line.count("no loomid answers") for line in host.errors) >= 1)
    loomid.kill(signal.SIGCONT)
    wait_until(lambda: "turn.answered" in rig.kinds())
    assert rig.texts() == "".join(f"{i} " for i in range(300))
    assert rig.kinds()[-1] != "gateway.lost"


def test_a_stopped_gateway_is_down_and_comes_back(rig):
    rig.loomid()
    host = rig.host()
    wait_until(lambda: "inventory" in rig.kinds())
    host.kill(signal.SIGSTOP)
    wait_until(lambda: rig.kinds()[-1] == "gateway.down")
    host.kill(signal.SIGCONT)
    host.do(emit="turn.answered", body={"turn_id": "t1", "text": "end"})
    wait_until(lambda: "turn.answered" in rig.kinds())
    wait_until(lambda: rig.kinds().count("gateway.up") == 2)


def test_a_forked_child_leaves_the_link_to_its_parent(rig):
    rig.loomid()
    host = rig.host()
    host.do(**{"await": "linked"})
    host.do(fork=1)
    wait_until(lambda: host.said(forked=0))
    host.do(emit="delta", body=delta("from the parent"))
    wait_until(rig.texts)
    assert rig.texts() == "from the parent"


@pytest.mark.parametrize("loomid", ["running", "absent", "stopped"])
def test_a_host_that_ends_without_a_word_ends_quietly(rig, loomid):
    host = rig.host()
    if loomid != "absent":
        process = rig.loomid()
        host.do(**{"await": "linked"})
        wait_until(lambda: host.said(state="linked"))
    if loomid == "stopped":
        process.kill(signal.SIGSTOP)
    host.do(busy=1)
    host.do(emit="delta", body=delta("%d"), times=100)
    host.do(exit=0)
    wait_until(lambda: host.popen.poll() is not None)
    assert host.end() == 0
    assert [line for line in host.errors if not line.startswith("hermes_plugins.")] == []  # its log


def test_an_absent_loomid_is_told_once_with_all_places(rig):
    host = rig.host("--socket", "/nowhere/hermes.sock")
    wait_until(lambda: host.errors)
    host.do(sleep=0.5)
    host.do(exit=0)
    wait_until(lambda: host.popen.poll() is not None)
    host.end()
    (line,) = host.errors
    assert str(rig.socket) in line
    assert "/nowhere/hermes.sock" in line


def test_a_killed_process_that_nobody_waited_for_is_gone():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert processes.process_started(process.pid) > 0
    process.kill()
    wait_until(lambda: processes.process_started(process.pid) == 0)
    process.communicate()
    assert processes.process_started(process.pid) == 0
