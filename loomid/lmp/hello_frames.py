"""What a server says first: the payload of hello.ok and its parts (see frames)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from loomid.lmp.payload import Payload


class GatewayInfo(Payload, frozen=True, kw_only=True):
    gateway_id: str
    name: str
    online: bool
    hermes_version: str
    capabilities: list[str] | UnsetType = UNSET
    home_channel: str | UnsetType = UNSET


class Heartbeat(Payload, frozen=True, kw_only=True):
    interval_s: float
    timeout_s: float


class Limits(Payload, frozen=True, kw_only=True):
    max_frame_bytes: int
    max_text_chars: int
    max_attachments: int | UnsetType = UNSET
    """Of one message."""
    max_inline_bytes: int | UnsetType = UNSET
    """Of all inline files of one message, and of one that attachment.get gives."""
    max_file_bytes: int | UnsetType = UNSET


class HelloOk(Payload, frozen=True, kw_only=True):
    device_id: str
    server_name: str
    server_version: str
    protocol_version: int
    server_time: float
    truncated: bool
    home_channel: str | None
    credential: str | UnsetType = UNSET
    last_seq: int | UnsetType = UNSET
    capabilities: list[str] | UnsetType = UNSET
    gateways: list[GatewayInfo] | UnsetType = UNSET
    heartbeat: Heartbeat | UnsetType = UNSET
    limits: Limits | UnsetType = UNSET
    storage: Literal["ok", "failing"] | UnsetType = UNSET
    scopes: list[str] | UnsetType = UNSET
