"""The live connections: who is let in, what wakes them, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from loomid.alarm import Alarm
from loomid.desk import Desk
from loomid.devices import Devices
from loomid.errors import Internal, PhoneError, StorageFailing
from loomid.gate import Gate, HubConfig
from loomid.lmp import frames, pairing
from loomid.lmp.session import Code
from loomid.log import Gone
from loomid.pace import Pace
from loomid.phone import Phone
from loomid.resume import replayed
from loomid.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from loomid.devices import Changed
    from loomid.lmp.envelope import ClientFrame
    from loomid.lmp.frames import ClientHello, GatewayInfo, Payload
    from loomid.log import Log
    from loomid.phone import Admission
    from loomid.places import Place
    from loomid.resume import Start
    from loomid.vault import Device, Vault
    from loomid.writer import Socket

    Execute = Callable[[Device, ClientFrame], Awaitable[tuple[str, Payload]]]

__all__ = ["Hub", "HubConfig"]

log = logging.getLogger("loomid.hub")

HOUSEKEEPING_S = 15.0
STRANGERS_TOLD = 50
"""So many ends of strangers' connections are logged in that time: a flood must not fill the log."""
CLOSE_WITHIN_S = 0.8
DROP_WITHIN_S = 0.1
SAVED_AT_END = 200


class Hub:
    """Lets phones in and keeps them posted. `load` before the first connection, then `run`."""

    def __init__(
        self,
        vault: Vault,
        events: Log,
        *,
        config: HubConfig,
        execute: Execute,
        gateways: Callable[[], list[GatewayInfo]],
        home_task: Callable[[], str | None],
        clock: Callable[[], float],
    ) -> None:
        self.config = config
        self.tally = Tally()
        self._execute = execute
        self._log = events
        self._clock = clock
        self._devices = Devices(vault, clock, config.claim_within_s)
        self._phones: set[Phone] = set()
        self._live: dict[str, Phone] = {}
        self.desk = Desk(self._devices, self._live, self._lag)
        self._closing: int | None = None
        self._empty = asyncio.Event()
        self._alarm = Alarm(events.health, self._tell_all, clock)
        self._gate = Gate(
            events,
            self._devices,
            self._alarm,
            config=config,
            gateways=gateways,
            home_task=home_task,
            clock=clock,
            enlist=self._enlist,
        )
        self._limited = 0
        self._told = 0  # strangers whose end was logged since the last housekeeping
        self._pace = Pace(events, self._write_all, lambda: len(self._live))

    async def load(self) -> None:
        """Read the paired devices."""
        await self._devices.load()

    async def run(self) -> None:
        """Remove what was never claimed, tell of the disk, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._alarm.run())
            while True:
                self._told = 0
                await asyncio.sleep(min(HOUSEKEEPING_S, self.config.claim_within_s))
                with contextlib.suppress(StorageFailing):  # tried again; the journal has it
                    await self._devices.tend(self._live.keys())
                self.tally.keep({device.device_id for device in self._devices.all()})

    async def recognise(self, device_id: str, credential: str) -> Device:
        """The device that asks over HTTP. Raises Unauthorized, after a while that grows."""
        return await self._devices.recognise(device_id, credential)

    def watch_devices(self, told: Changed) -> None:
        """Have it called when a device was revoked (it has no scopes then) or changed."""
        self._devices.watch(told)

    # ── connections ─────────────────────────────────────────────────────────

    async def serve(self, socket: Socket, place: Place) -> None:
        """Serve one connection until it ends; its end is logged once."""
        phone = Phone(
            socket,
            self,
            self._clock,
            self.config.timing,
            place,
            max_first_bytes=self.config.max_first_bytes,
            stall_s=self.config.stall_s,
        )
        place.yield_, place.too_much = phone.make_way, phone.too_much
        self._phones.add(phone)
        if self._closing is not None:
            phone.end(self._closing, "server going down")
        try:
            await phone.run()
        except Exception as error:  # noqa: BLE001 - the one place: a bug harms one phone only
            # The exception's own text may hold what a phone wrote: it is not logged.
            traces = "\n".join(_traces(error))
            log.error("serving %s failed: %s", _name(phone), traces)
            phone.refuse(Internal())
            phone.end(Code.INTERNAL, "internal")
            await phone.leave()
        finally:
            self._left(phone)

    async def admit(self, phone: Phone, hello: ClientHello) -> Admission:
        """Verify a hello, and say where the device goes on (LMP §3)."""
        return await self._gate.admit(phone, hello)

    def _enlist(self, phone: Phone, start: Start, new: bool) -> None:
        device_id = start.device.device_id
        if not self._live:
            self._log.stamps.skip(self._log.visible)
        older = self._live.get(device_id)
        if older is not None:
            older.end(Code.REPLACED, "replaced by a newer connection")
            self.tally.left(device_id, _end(older)[1])
        self._live[device_id] = phone
        self.tally.came(device_id, new=new, truncated=start.truncated)

    async def execute(self, device: Device, frame: ClientFrame) -> tuple[str, Payload]:
        """Carry out a request of a phone; what has begun goes on when the phone has gone."""
        try:
            answer = await self._execute(self._devices.current(device), frame)
        except PhoneError as error:
            self.tally.requests[frame.type, error.code] += 1
            raise
        self.tally.requests[frame.type, "ok"] += 1
        return answer

    async def remind(self, name: str, returned: frames.Returned) -> None:
        """Tell every phone again of what still waits: an answer did not reach Hermes."""
        await self._log.at_rest(partial(self._remind, name, returned))

    def _remind(self, name: str, returned: frames.Returned) -> None:
        placed = self._log.projection.waiting().get(name)
        if placed is None:
            return
        payload = msgspec.structs.replace(placed.event.payload, returned=returned)
        parts = replayed(msgspec.structs.replace(placed.event, payload=payload, stored=None))
        for phone in self._live.values():
            if phone.outbox is not None and phone.ended is None:
                phone.outbox.push(parts)
                phone.write()

    def reached(self, position: int) -> str | None:
        """A connected device that has everything up to there, written to its socket."""
        for device_id, phone in self._live.items():
            box = phone.outbox
            if box is not None and box.cursor >= position and not box.waiting:
                return device_id
        return None

    async def close(self, code: int = Code.GOING_AWAY) -> None:
        """End all connections; those that are not closed within a second are dropped."""
        self._closing = code
        for phone in list(self._phones):
            phone.end(code, "server going down")
        if not self._phones:
            self._empty.set()
        if not await self._emptied(CLOSE_WITHIN_S):
            log.warning("%d connections did not close in time", len(self._phones))
            for phone in self._phones:
                phone.drop()
            await self._emptied(DROP_WITHIN_S)
        self._pace.stop()  # not before: what phones are still told may wait for a commit
        with contextlib.suppress(StorageFailing):
            await self._devices.save(SAVED_AT_END)

    async def _emptied(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                return await self._empty.wait()
        except TimeoutError:
            return False

    def _left(self, phone: Phone) -> None:
        self._phones.discard(phone)
        device, (code, cause) = phone.device, _end(phone)
        with contextlib.ExitStack() as steps:  # all are done, should one of them fail
            steps.callback(phone.place.leave)
            steps.callback(self._tell_end, phone, code, cause)
            if self._closing is not None and not self._phones:
                self._empty.set()
            if device is not None:
                steps.callback(self._devices.left, device.device_id)
                if self._live.get(device.device_id) is phone:
                    del self._live[device.device_id]
                    self.tally.left(device.device_id, cause)

    def _tell_end(self, phone: Phone, code: int, cause: str) -> None:
        self.tally.ended(code, cause)
        self._limited += phone.rate_limited
        self._told += phone.device is None
        log.log(
            logging.DEBUG if phone.device is None and self._told > STRANGERS_TOLD else logging.INFO,
            "closed %s: code %d, %s, age %.1f s, lag %d events",
            *(_name(phone), code, cause, asyncio.get_running_loop().time() - phone.started),
            self._lag(phone),
        )

    @property
    def rate_limited(self) -> int:
        """Frames that were answered with `rate_limited`."""
        return self._limited + sum(phone.rate_limited for phone in self._phones)

    def _tell_all(self, status: frames.ServerStatus) -> None:
        for phone in self._live.values():
            phone.tell("server.status", status)

    def _write_all(self) -> None:
        for phone in self._live.values():
            phone.write()

    def _lag(self, phone: Phone) -> int:
        if phone.outbox is None:
            return 0
        try:
            return self._log.behind(phone.outbox.cursor)
        except Gone:
            return self._log.window


def _end(phone: Phone) -> tuple[int, str]:
    return phone.ended or (Code.INTERNAL, "cancelled")


def _name(phone: Phone) -> str:
    return "a stranger" if phone.device is None else pairing.short(phone.device.device_id)


def _traces(error: BaseException) -> Iterator[str]:
    """Type and place of an exception and of those in a group, without their texts."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _traces(one)
        return
    yield f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"
