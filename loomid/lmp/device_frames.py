"""What a device says and hears of itself (docs/protocol.md, "Scopes and the device itself")."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from loomid.lmp.client_frames import DeviceInfo
from loomid.lmp.payload import Payload, RequestId


class DeviceUpdate(Payload, frozen=True, kw_only=True):
    """A device changes its own name, or what it is; what is left out stays."""

    request_id: RequestId | None = None
    name: str | None = None
    device_info: DeviceInfo = DeviceInfo()


class DeviceUpdateResult(Payload, frozen=True, kw_only=True):
    device_id: str
    name: str
    device_info: DeviceInfo
    scopes: list[str]
    request_id: str | UnsetType = UNSET


class DeviceUpdated(Payload, frozen=True, kw_only=True):
    """The owner has changed the device that hears this."""

    device_id: str
    name: str
    scopes: list[str]


CONTROLS: dict[str, type[Payload]] = {
    "device.update.result": DeviceUpdateResult,
    "device.updated": DeviceUpdated,
}
REQUESTS: dict[str, type[Payload]] = {"device.update": DeviceUpdate}
