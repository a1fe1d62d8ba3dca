"""All of loomid but its sockets, with hosts and phones, in virtual time; it can be killed."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from loomid.commands import Commands
from loomid.files import Files
from loomid.hub import Hub, HubConfig
from loomid.lmp import ids
from loomid.lmp.frames import Limits
from loomid.log import Log
from loomid.pump import Pump
from loomid.status import gateway_infos
from loomid.store import Store
from loomid.vault import Vault
from tests.support.whole.disk import Disk
from tests.support.whole.host import Host, Ran
from tests.support.whole.loop import virtual
from tests.support.whole.phone import WINDOW, Phone, Pipe
from tests.support.whole.truth import Truth
from tests.support.whole.wire import Wire, WiredGateways

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.lmp.decisions import Claim
    from tests.support.whole.disk import Image

SLICE_S = 1.0
RESTART_S = 2.0
"""Nobody restores a database within a second of a crash (docs: positions)."""
CONFIG = HubConfig(server_name="box", server_version="0.0", claim_within_s=1e9)
LIMITS = Limits(max_frame_bytes=1 << 20, max_text_chars=100_000)
BASES = "SELECT device_id, base FROM device"
ROWS = "SELECT position, type, payload, ts FROM event ORDER BY position"


class _Bugs(logging.Handler):
    """loomid says itself when something of its own broke; a slow disk is none of that."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "loomid.health":
            self.seen.append(record.getMessage())


class _Pump(Pump):
    """Tells when it has folded again what was stored, and nothing else yet."""

    refolded: Callable[[], None]

    async def _refold(self) -> None:
        await super()._refold()
        self.refolded()


class _Stopped(Exception):
    """Ends the task group that everything runs in."""


class World:
    """The simulation."""

    def __init__(self, seed: int) -> None:
        base = Path("/dev/shm")
        self.place = Path(tempfile.mkdtemp(dir=base if base.is_dir() else None))
        self._stack = ExitStack()
        self.loop = self._stack.enter_context(virtual(seed))
        self.disk = Disk(self.place, self._died)
        self._stack.enter_context(mock.patch("aiosqlite.connect", self.disk.connect))
        # So small that phones fall out of it.
        self._stack.enter_context(mock.patch("loomid.log.MIN_WINDOW", WINDOW))
        self._stack.enter_context(mock.patch("loomid.ring.MAX_ENTRIES", 2 * WINDOW))
        self.bugs = _Bugs()
        logging.getLogger("loomid").addHandler(self.bugs)
        self.wire, self.ran = Wire(), Ran()
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self.place / "hermes.sock"))
        self.hosts = [
            Host(self.loop, self.wire, self.place / "hermes.sock", f"gw{i}", self.ran)
            for i in range(2)
        ]
        self.phones: list[Phone] = []
        self.truth = Truth()
        self.kernel = self.epoch = self.starts = 0
        self.backup: Image | None = None
        self.given_back: set[tuple[str, str]] = set()
        """Device and request: its command proved not to have run, so it may be asked anew."""
        self.key = b""
        self.life: asyncio.Task[None] | None = None
        self.up = False
        self.bases: dict[str, int] = {}
        self.log: Log | None = None
        self.pump: Pump | None = None
        self._before: Any = None
        """What was folded when the process was killed, if that is on disk."""

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
        if self.life is not None:
            self.kill()
        logging.getLogger("loomid").removeHandler(self.bugs)
        self._door.close()
        self._stack.close()
        shutil.rmtree(self.place)

    # ── loomid's life ──

    def start(self) -> None:
        """Start loomid; it may die on the way."""
        self.loop.advance(RESTART_S)
        self.starts += 1
        self.life = self.loop.create_task(self._live())
        for _ in range(100):
            if self.up or self.life is None:
                return
            self.advance(0.1)
        raise AssertionError("loomid does not come up")

    async def _live(self) -> None:
        clock = self.loop.clock
        async with await Store.open(self.disk.path, clock) as store:
            self.ledger = store.ledger
            self._watch_claims()
            self.log = await Log.open(store, window=WINDOW, clock=clock, boot_id=str(self.kernel))
            self._know()
            self.vault = Vault(store)
            self.files = Files(self.place, store, clock)
            self.key = await self.vault.secret()
            self.gateways = WiredGateways(
                self.wire,
                self.place / "hermes.sock",
                version="0",
                instance=str(self.starts),
                clock=clock,
                acked=await store.acks(),
                known=await store.gateways(),
            )
            self.pump = _Pump(self.gateways, self.log, store, self.key, clock)
            self.pump.refolded = self._check_refold
            self.leaving = asyncio.Event()
            try:
                async with asyncio.TaskGroup() as self.group:
                    await self._compose()
                    await self.leaving.wait()
                    self.up = False
                    await self.hub.close()
                    raise _Stopped
            except* _Stopped:
                await self.log.close()

    def _watch_claims(self) -> None:
        """Note each claim that is given back, as it is tried: of the end we may not hear."""
        give_back = self.ledger.give_back

        async def noted(claim: Claim) -> bool:
            self.given_back.add((claim.device_id, claim.request_id))
            return await give_back(claim)

        self.ledger.give_back = noted  # type: ignore[method-assign]

    async def _compose(self) -> None:
        clock = self.loop.clock
        self.commands = Commands(
            self.vault,
            self.ledger,
            self.gateways,
            self.pump.runs,
            self.key,
            clock,
            LIMITS,
            alive=self.log.projection,
            files=self.files,
            remind=lambda name, returned: self.hub.remind(name, returned),
            group=self.group,
        )
        self.hub = Hub(
            self.vault,
            self.log,
            config=CONFIG,
            execute=self.commands.execute,
            gateways=partial(gateway_infos, self.log),
            home_task=self.commands.home_task,
            clock=clock,
        )
        await self.hub.load()
        for part in (self.gateways.run(), self.pump.run(), self.hub.run()):
            self.group.create_task(part)
        await self.gateways.ready.wait()
        await self.pump.ready.wait()
        await self.commands.recover()
        self.up = True

    def _died(self) -> None:
        """This very moment: nothing leaves it any more."""
        self.up = False
        self.bases = dict(self.disk.rows(BASES))
        # What a batch that is on its way was folded from is not on disk, or perhaps it is.
        ready = self.pump is not None and self.pump.ready.is_set()
        quiet = ready and self.log is not None and not self.log._committing.locked()
        self._before = self._folded() if quiet else None
        self.wire.unbind()
        for phone in self.phones:
            if phone.pipe is not None:
                phone.pipe.leave()
        self.loop.stop()

    def advance(self, seconds: float) -> None:
        """Let time pass; loomid may die in it."""
        while seconds > 0 and not self.disk.dead:
            slice_s = min(seconds, SLICE_S)
            self.loop.advance(slice_s)
            self._listen()
            seconds -= slice_s
        if self.disk.dead:
            self._bury()
        elif self.life is not None and self.life.done():
            self.life.result()
            assert self.leaving.is_set(), "loomid ended by itself"

    def _listen(self) -> None:
        """Phones that pay attention read what is there, and come back by themselves."""
        for phone in self.phones:
            if phone.attentive:
                phone.read(1_000_000, self)
            if phone.attentive and phone.returns and phone.pipe is None and self.up:
                self.connect(phone, None, phone.last_seq)

    def kill(self) -> None:
        """kill -9, now."""
        self.disk.die()
        self._bury()

    def _bury(self) -> None:
        assert self.life is not None
        for _ in range(100):
            for task in self.loop.tasks():
                task.cancel()
            if not self.loop.tasks():
                break
            self.loop.advance(0.0)
        assert not self.loop.tasks()
        self.life = self.log = self.pump = None
        self._listen()
        for phone in self.phones:
            phone.pipe = None
        self.disk.leave()
        self.bugs.seen.clear()

    def stop(self) -> None:
        """An orderly stop."""
        assert self.life is not None
        self.leaving.set()
        for _ in range(100):
            if self.life is None or self.life.done():
                break
            self.advance(0.1)
        if self.life is not None:
            self.kill()

    # ── what the disk may do to it ──

    def lose_power(self, kept: float) -> None:
        """The machine, and with it every host, stops."""
        if self.life is not None:
            self.kill()
        for host in self.hosts:
            host.kill()
        self.disk.lose_power(kept)
        self._another_history()
        self.kernel += 1

    def restore(self, image: Image) -> None:
        """Yesterday's database."""
        if self.life is not None:
            self.kill()
        self.disk.restore(image)
        self._another_history()
        for phone in self.phones:
            for asked in phone.asked.values():
                asked.void = True

    def _another_history(self) -> None:
        self.epoch += 1
        self._before = None
        for host in self.hosts:
            host.give_up()

    # ── what is true ──

    def _know(self) -> None:
        """What the database holds, and from now on what becomes visible."""
        self.truth = truth = Truth()
        for position, type_, payload, ts in self.disk.rows(ROWS):
            truth.add(position, type_, payload, ts)
        self.log.watch(self._see)

    def _see(self) -> None:
        sql = ROWS.replace("ORDER", "WHERE position > ? ORDER")
        for position, type_, payload, ts in self.disk.rows(sql, self.truth.last):
            if position <= self.log.visible:
                self.truth.add(position, type_, payload, ts)

    def knows(self, device_id: str) -> bool:
        """Whether that device is paired."""
        if not self.disk.dead:
            self.bases = dict(self.disk.rows(BASES))
        return device_id in self.bases

    def base_of(self, device_id: str) -> int:
        assert self.knows(device_id)
        return int(self.bases[device_id])

    def _folded(self) -> Any:
        """What the runs of all gateways are, as far as others can ask."""
        pump = self.pump
        if pump is None:
            return None
        return {name: runs.live() for name, runs in pump.runs.items() if runs.live()}

    def _check_refold(self) -> None:
        """A restart is invisible, unless it cut off a commit."""
        if self._before is not None:
            assert self._folded() == self._before
        self._before = None

    def run_id(self, host: Host, turn_id: str) -> str:
        return ids.run_id(self.key, host.name, turn_id)

    # ── phones ──

    def pair(self, *, snapshot: bool) -> None:
        """A new phone."""
        phone = Phone(snapshot)
        minted = self.loop.create_task(self.hub.desk.mint(None, 300.0))
        self.advance(0.2)
        if minted.done() and not minted.cancelled() and self.up:
            self.phones.append(phone)
            self.connect(phone, minted.result()[0].reveal(), None)

    def connect(self, phone: Phone, token: str | None, last_seq: int | None) -> None:
        """Open a connection and say hello."""
        if phone.pipe is not None:
            phone.pipe.leave()
        pipe = Pipe()
        place = SimpleNamespace(leave=lambda: None)
        self.group.create_task(self.hub.serve(pipe, place))  # type: ignore[arg-type]
        phone.connect(pipe, token, last_seq)

    @property
    def tasks(self) -> list[str]:
        """The tasks that runs have shown, in order."""
        shown = (one.payload for one in self.truth.events if one.type == "run.started")
        return list(dict.fromkeys(p["task_id"] for p in shown if p["surface"] == "loomi"))
