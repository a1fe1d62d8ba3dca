"""What steers a host beside messages (see frames)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from loomid.lmp.payload import Payload, RequestId


class CommandList(Payload, frozen=True, kw_only=True):
    request_id: RequestId | None = None
    gateway_id: str | None = None


class HostCommand(Payload, frozen=True, kw_only=True):
    """A slash command as its host's registry has it."""

    name: str
    aliases: list[str]
    arguments: str
    meaning: str
    whole_gateway: bool | UnsetType = UNSET
    """It acts on more than its task."""
    effect: str | UnsetType = UNSET
    """Needs `confirm` in `session.send`: what it does, as in `confirm_required`."""


class CommandListResult(Payload, frozen=True, kw_only=True):
    gateway_id: str
    commands: list[HostCommand]
    request_id: str | UnsetType = UNSET


CONTROLS: dict[str, type[Payload]] = {"command.list.result": CommandListResult}
REQUESTS: dict[str, type[Payload]] = {"command.list": CommandList}
