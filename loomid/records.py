"""What the vault keeps, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from loomid.lmp import scopes

if TYPE_CHECKING:
    from loomid.audit import Deed
    from loomid.lmp.scopes import Scopes


@dataclass(frozen=True, slots=True)
class Device:
    """A paired phone. Its seq is position - base."""

    device_id: str
    name: str
    credential_hash: bytes
    base: int
    created_at: float
    confirmed: bool = False
    """It came back with its credential."""
    last_seen: float | None = None
    model: str = ""
    os: str = ""
    app_version: str = ""
    scopes: Scopes = scopes.ALL


@dataclass(frozen=True, slots=True)
class Token:
    """What a pairing token gives, and when it runs out."""

    expires: float
    name: str | None
    scopes: Scopes


@dataclass(frozen=True, slots=True)
class Intent:
    """What a request is about to do; on disk before its command leaves."""

    type: str
    command_id: str | None
    gateway_id: str | None
    boot: str | None
    at: float
    deed: Deed | None = None
    """For the audit; None: nobody decides anything, or it has a row of its own."""


@dataclass(frozen=True, slots=True)
class Request:
    """A remembered request (docs/protocol.md)."""

    device_id: str
    request_id: str
    fingerprint: bytes
    type: str
    state: Literal["open", "done"]
    answer: bytes | None
    command_id: str | None
    gateway_id: str | None
    boot: str | None
    at: float


@dataclass(frozen=True, slots=True)
class TaskRow:
    """The last that is known of a task."""

    task_id: str
    gateway_id: str
    session_key: str | None
    session_id: str
    title: str
    surface: str
    model: str | None
    created_at: float
    updated_at: float
    message_count: int
    preview: str
