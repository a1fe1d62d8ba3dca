"""loomid and the host as processes, and what is done to them and to their files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from loomid.database import FILE as DATABASE
from tests.chaos import power
from tests.support.daemon import ROOT, Daemon, clean_environ

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from tests.chaos.device import Oracle
    from tests.chaos.judge import Judge
    from tests.chaos.real import RealHost
    from tests.chaos.trace import Violated

STOP_S = 15.0
WINDOW = 2_048
LEAST_ODDS = 0.6
"""How often a power loss leaves no more than it must."""
ODD = ("Traceback", "broke the fold", "failed with an error of our own", "CRITICAL")


class Loomid:
    """The daemon process. Its faults come one after the other."""

    def __init__(self, folder: Path, oracle: Oracle, rng: Random, violated: Violated) -> None:
        self.kills = self.stops = self.swaps = self.power_losses = 0
        self.restored_at: list[int] = []
        """Lines of the host's journal at which an earlier database came."""
        self.cut = 0
        """Bytes of the log that power losses took."""
        self._boot_file = folder / "boot_id"
        self._boot_file.write_text("boot-0\n")
        self._notes = folder / "syncs"
        self._yesterday = folder / "yesterday"
        self._oracle, self._rng, self._violated = oracle, rng, violated
        environ = {"LOOMI_REPLAY_WINDOW": str(WINDOW)}
        library = power.library(folder)
        self.can_lose_power = library is not None
        if library is not None:
            environ |= {"LD_PRELOAD": str(library), "SYNC_NOTES": str(self._notes)}
        self.daemon = Daemon(folder, **environ)
        self.daemon.command = [sys.executable, "-m", "tests.chaos.launch", str(self._boot_file)]
        self._scanned = 0
        self._stopped = False

    @property
    def database(self) -> Path:
        """The file that it writes."""
        return self.daemon.state_dir / DATABASE

    async def start(self) -> None:
        """Start it and wait until it serves."""
        self.daemon.wait_notified_nothing(0.0)  # one that was killed may have been ready
        await asyncio.to_thread(self.daemon.start)

    async def kill(
        self, down: float, again: tuple[float, ...] = (), *, backup: bool = False
    ) -> None:
        """SIGKILL, and as often again after so many seconds of starting; then start it."""
        self._kill()
        if backup:
            self._copy(self.database.parent, self._yesterday)
        await asyncio.sleep(down)
        for delay in again:
            self.daemon.spawn()
            await asyncio.sleep(delay)
            self._kill()
        await self.start()

    async def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        self.stops += 1
        self._signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._signal(signal.SIGCONT)

    async def restart(self, hurry: float | None) -> None:
        """An orderly stop, which is cut off after `hurry` seconds, and a new start."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.daemon.wait, STOP_S if hurry is None else hurry)
        except subprocess.TimeoutExpired:
            if hurry is None:
                self._violated("loomid does not stop")
            self._kill()
        await self.start()

    async def swap(self, down: float) -> bool:
        """Put yesterday's database in place while it does not run; False: there is none."""
        if not self._yesterday.exists():
            return False
        self._kill()
        await asyncio.sleep(down)
        shutil.rmtree(self.database.parent)
        self._copy(self._yesterday, self.database.parent)
        self.swaps += 1
        self._oracle.new_era()
        self.restored_at.append(self._oracle.judge.truth.lines)
        await self.start()
        return True

    async def lose_power(self, down: float, host: Host | RealHost) -> bool:
        """Both processes die, and what was not synced may be gone; False: not possible now."""
        if not self.can_lose_power:
            return False
        self._kill()
        host.kill()
        ends = power.ends(self.database, self._notes)
        if ends:
            end = ends[0] if self._rng.random() < LEAST_ODDS else self._rng.choice(ends)
            power.cut(self.database, end)
            self.power_losses += 1
            self.cut += ends[-1] - end
            self._boot_file.write_text(f"boot-{self.power_losses}\n")
            self._oracle.new_era()
        await asyncio.sleep(down)
        await self.start()
        await host.start()
        return bool(ends)

    def _copy(self, source: Path, target: Path) -> None:
        """The files of a database that nobody has open; a copy has no mark of the original."""
        target.mkdir(exist_ok=True)
        for name in (DATABASE, f"{DATABASE}-wal"):
            there = target / name
            there.unlink(missing_ok=True)
            if (source / name).exists():
                shutil.copyfile(source / name, there)
        for other in source.iterdir():
            if not other.name.startswith(DATABASE) and other.is_file():
                shutil.copy2(other, target / other.name)

    def _kill(self) -> None:
        self._alive()
        self.kills += 1
        self.daemon.kill()

    def _alive(self) -> None:
        """It ends by our hand only."""
        process = self.daemon.process
        if process is not None and process.poll() is not None:
            self._violated("loomid ended", status=process.returncode)

    def _signal(self, number: int) -> None:
        self._alive()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.daemon.pid, number)

    def scan(self) -> None:
        """Look for what must not be in its log."""
        if not self.daemon.log_path.exists():
            return
        with self.daemon.log_path.open("rb") as log:
            log.seek(self._scanned)
            data = log.read()
        self._scanned += len(data)
        for line in data.decode(errors="replace").splitlines():
            if any(word in line for word in ODD):
                self._violated("log", line=line)


class Host:
    """The stand-in for the gateway process."""

    def __init__(self, folder: Path, judge: Judge, seed: int) -> None:
        self.kills = self.stops = 0
        self.endpoint = ""
        """Where loomid listens."""
        self._folder, self._judge, self._seed = folder, judge, seed
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    async def start(self) -> None:
        """Begin another process, with a boot of its own."""
        self._starts += 1
        seed = str(self._seed * 10_000 + self._starts)
        journal = str(self._judge.truth.path)
        command = [sys.executable, "-m", "tests.chaos.host", self.endpoint, journal, seed]
        with (self._folder / "host.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                command,
                env=clean_environ(self._folder),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """SIGKILL: what it had not told loomid is gone."""
        self._alive()
        assert self._process is not None
        self.kills += 1
        self._process.kill()
        self._process.wait()
        self._judge.truth.read()
        if self._judge.truth.boot:
            self._judge.dead.add(self._judge.truth.boot)

    async def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        self.stops += 1
        self._signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._signal(signal.SIGCONT)

    def rest(self) -> None:
        """Have it begin nothing more."""
        self._alive()
        truth = self._judge.truth
        truth.read()
        if self._process is not None and truth.pid == self._process.pid:  # else it would die of it
            self._signal(signal.SIGUSR1)

    @staticmethod
    def text(_device_id: str, request_id: str, _rng: Random) -> str:
        """What a phone writes to it."""
        return f"do {request_id}"

    def _alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            log = (self._folder / "host.log").read_text()
            raise AssertionError(f"the stand-in host ended by itself:\n{log[-3000:]}")

    def _signal(self, number: int) -> None:
        self._alive()
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
