"""Who is let in: a hello verified, where its device goes on, and what hello.ok tells."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec import UNSET

from loomid.errors import Unauthorized
from loomid.lmp import envelope, frames, pairing
from loomid.lmp.session import Timing
from loomid.outbox import Templates
from loomid.phone import Admission
from loomid.resume import SNAPSHOT, Start, resume
from loomid.turnstile import Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.alarm import Alarm
    from loomid.devices import Devices
    from loomid.lmp.frames import ClientHello, GatewayInfo
    from loomid.lmp.pairing import Secret
    from loomid.log import Log
    from loomid.phone import Phone
    from loomid.vault import Device

    Enlist = Callable[[Phone, Start, bool], None]

HELLOS_AT_ONCE = 8
CAPABILITIES = [SNAPSHOT]
LIMITS = frames.Limits(max_frame_bytes=2**20, max_text_chars=100_000)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """What the hub tells phones, and its bounds."""

    server_name: str
    server_version: str
    limits: frames.Limits = LIMITS
    max_first_bytes: int = 4096
    stall_s: float = 30.0
    claim_within_s: float = pairing.CLAIM_WITHIN_S
    timing: Timing = field(default_factory=Timing)


class Gate:
    """Lets devices in; `enlist` is told of each (and whether it is a new one) at the moment
    that it is in."""

    def __init__(
        self,
        events: Log,
        devices: Devices,
        alarm: Alarm,
        *,
        config: HubConfig,
        gateways: Callable[[], list[GatewayInfo]],
        home_task: Callable[[], str | None],
        clock: Callable[[], float],
        enlist: Enlist,
    ) -> None:
        self._log = events
        self._devices = devices
        self._alarm = alarm
        self._config = config
        self._gateways = gateways
        self._home_task = home_task
        self._clock = clock
        self._enlist = enlist
        self._templates = Templates()
        self._turnstile = Turnstile(HELLOS_AT_ONCE)
        self._admitting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def admit(self, phone: Phone, hello: ClientHello) -> Admission:
        """Verify a hello, and say where the device goes on (LMP §3)."""
        await self._turnstile.turn()
        if hello.token is not None:
            base = self._log.visible
            new = await self._devices.pair(hello.token, hello.device_info, base)
            phone.place.leave()
            return await self._admit(phone, hello, *new)
        known = await self._known(phone, hello)
        phone.place.leave()
        # One at a time: where the first moves the device's base, the second must know.
        async with self._admitting.setdefault(known.device_id, asyncio.Lock()):
            device = await self._devices.greeted(known, hello.device_info)
            return await self._admit(phone, hello, device, None)

    async def _admit(
        self, phone: Phone, hello: ClientHello, device: Device, credential: Secret | None
    ) -> Admission:
        start = await resume(
            self._log,
            self._templates,
            self._devices,
            device,
            hello,
            new=credential is not None,
            now=self._clock(),
        )
        start = replace(start, device=self._devices.current(start.device))
        admission = Admission(start.device, self._hello_ok(start, credential), start.outbox)
        if phone.ended is None:
            self._enlist(phone, start, credential is not None)
        return admission

    async def _known(self, phone: Phone, hello: ClientHello) -> Device:
        device_id = hello.device_id or ""
        device = self._devices.verify(device_id, hello.credential or "")
        if device is None:
            await phone.hold(self._devices.penalty(device_id))
            raise Unauthorized
        return device

    def _hello_ok(self, start: Start, credential: Secret | None) -> bytes:
        config, now = self._config, self._clock()
        gateways = self._gateways()
        able = {name for one in gateways if one.online for name in one.capabilities or ()}
        payload = frames.HelloOk(
            device_id=start.device.device_id,
            server_name=config.server_name,
            server_version=config.server_version,
            protocol_version=frames.PROTOCOL_VERSION,
            server_time=now,
            truncated=start.truncated,
            home_channel=self._home_task(),
            credential=UNSET if credential is None else credential.reveal(),
            last_seq=start.seq,
            capabilities=[*CAPABILITIES, *sorted(able)],
            gateways=gateways,
            heartbeat=frames.Heartbeat(
                interval_s=config.timing.ping_s, timeout_s=config.timing.pong_s
            ),
            limits=config.limits,
            storage=self._alarm.status.storage,
            scopes=list(start.device.scopes),
        )
        body = envelope.encode_payload(payload)
        return envelope.render(start.seq, envelope.frame_parts("hello.ok", now, None, None, body))
