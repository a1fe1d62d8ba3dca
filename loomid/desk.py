"""Pairing codes, names and scopes: what the owner does with phones, and they with themselves."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loomid.devices import described
from loomid.errors import BadFrame, Unauthorized
from loomid.lmp import pairing, scopes
from loomid.lmp.decisions import OWNER
from loomid.lmp.device_frames import DeviceUpdate, DeviceUpdated, DeviceUpdateResult
from loomid.lmp.frames import DeviceInfo
from loomid.lmp.payload import given
from loomid.lmp.session import Code
from loomid.values import parse_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loomid.devices import Devices
    from loomid.lmp.pairing import Secret
    from loomid.lmp.scopes import Scopes
    from loomid.phone import Phone
    from loomid.vault import Device

log = logging.getLogger("loomid.hub")


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A device, whether it is connected, how many events it is behind, and in how many
    seconds it is removed unless it comes back."""

    device: Device
    connected: bool
    lag: int
    removed_in_s: float | None


class Desk:
    """The hub's part that changes devices; `live` are their connections."""

    def __init__(
        self, devices: Devices, live: Mapping[str, Phone], lag: Callable[[Phone], int]
    ) -> None:
        self._devices = devices
        self._live = live
        self._lag = lag

    async def mint(
        self, name: str | None, ttl: float, held: Scopes = scopes.DEFAULT
    ) -> tuple[Secret, float]:
        """A new pairing token, for a phone with these scopes, and when it expires (LMP §3)."""
        return await self._devices.mint(name, ttl, held)

    async def outcome(self, token_hash: bytes) -> Device | None:
        """Wait until the token was redeemed, or ran out (None). Raises KeyError."""
        return await self._devices.outcome(token_hash)

    async def withdraw(self, token_hash: bytes) -> bool:
        """Make a pairing token worthless; False when it was used. Raises KeyError."""
        return await self._devices.withdraw(token_hash)

    def devices(self) -> list[DeviceStatus]:
        """The paired devices and how they are doing."""
        statuses = []
        for device in self._devices.all():
            phone = self._live.get(device.device_id)
            connected = phone is not None and phone.ended is None
            lag = self._lag(phone) if phone is not None and connected else 0
            removed_in = None if connected else self._devices.removed_in(device.device_id)
            statuses.append(DeviceStatus(device, connected, lag, removed_in))
        return statuses

    async def revoke(self, device_id: str) -> bool:
        """Forget a device; a live connection of it is closed at once."""
        phone = self._live.get(device_id)
        if phone is not None:
            phone.end(Code.REVOKED, "revoked")  # at once, however long the disk takes
        known = await self._devices.remove(device_id, OWNER)
        if known:
            log.info("revoked %s", pairing.short(device_id))
        return known

    async def change(self, device_id: str, **changes: Any) -> bool:  # noqa: ANN401 - its fields
        """Give a device another `name`, or `scopes` that hold from now on; False: there is none."""
        device = await self._devices.change(device_id, OWNER, **changes)
        phone = self._live.get(device_id)
        if device is not None and phone is not None:
            told = DeviceUpdated(device_id=device_id, name=device.name, scopes=list(device.scopes))
            phone.tell("device.updated", told)
        return device is not None

    async def update(self, device: Device, asked: DeviceUpdate) -> DeviceUpdateResult:
        """`device.update`: what a phone says of itself. Raises BadFrame, Unauthorized."""
        changes = described(asked.device_info)
        if asked.name is not None:
            try:
                changes["name"] = parse_name(asked.name)
            except ValueError as error:
                raise BadFrame(f"name: {error}") from None
        changed = await self._devices.change(device.device_id, device.device_id, **changes)
        if changed is None:
            raise Unauthorized
        return DeviceUpdateResult(
            device_id=changed.device_id,
            name=changed.name,
            device_info=DeviceInfo(
                model=changed.model, os=changed.os, app_version=changed.app_version
            ),
            scopes=list(changed.scopes),
            request_id=given(asked.request_id),
        )
