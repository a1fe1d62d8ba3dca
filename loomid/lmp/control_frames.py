"""What steers a host beside messages (see frames)."""

from __future__ import annotations

from typing import Literal

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


class ModelInUse(Payload, frozen=True, kw_only=True):
    """What the next run would use. `context_length`: tokens."""

    model: str
    provider: str
    context_length: int | UnsetType = UNSET


class OfferedModel(Payload, frozen=True, kw_only=True):
    model: str
    context_length: int | UnsetType = UNSET


class Provider(Payload, frozen=True, kw_only=True):
    provider: str
    name: str
    models: list[OfferedModel]
    total: int
    """How many it has, where not all are listed."""


class ModelList(Payload, frozen=True, kw_only=True):
    request_id: RequestId | None = None
    gateway_id: str | None = None
    task_id: str | None = None


class ModelListResult(Payload, frozen=True, kw_only=True):
    gateway_id: str
    providers: list[Provider]
    default: ModelInUse
    current: ModelInUse | UnsetType = UNSET
    """Of the task that was asked about."""
    request_id: str | UnsetType = UNSET


class ModelSet(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    model: str
    provider: str | None = None
    task_id: str | None = None
    default: bool = False
    gateway_id: str | None = None
    confirm: bool = False


class ModelSetResult(Payload, frozen=True, kw_only=True):
    request_id: str
    gateway_id: str
    model: str
    provider: str
    state: Literal["set", "asked"]
    """`asked`: the host wants it confirmed first; `model` is what still holds."""
    task_id: str | UnsetType = UNSET


class ModeGet(Payload, frozen=True, kw_only=True):
    request_id: RequestId | None = None
    gateway_id: str | None = None
    task_id: str | None = None


class ModeSet(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    mode: Literal["approvals", "yolo", "reasoning"]
    value: str
    task_id: str | None = None
    gateway_id: str | None = None
    confirm: bool = False


class Modes(Payload, frozen=True, kw_only=True):
    """Answer to mode.get and mode.set: what holds now."""

    gateway_id: str
    approvals: str
    approvals_choices: list[str]
    reasoning: str
    reasoning_choices: list[str]
    yolo: bool | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


CONTROLS: dict[str, type[Payload]] = {
    "command.list.result": CommandListResult,
    "model.list.result": ModelListResult,
    "model.set.result": ModelSetResult,
    "mode.get.result": Modes,
    "mode.set.result": Modes,
}
REQUESTS: dict[str, type[Payload]] = {
    "command.list": CommandList,
    "model.list": ModelList,
    "model.set": ModelSet,
    "mode.get": ModeGet,
    "mode.set": ModeSet,
}
