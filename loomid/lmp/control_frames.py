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

    @property
    def weighty(self) -> bool:
        """Whether it changes more than one task."""
        return self.default or self.task_id is None


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

    @property
    def weighty(self) -> bool:
        """Whether it changes more than one task, or takes a safeguard away."""
        return (
            self.task_id is None
            or self.mode == "approvals"
            or (self.mode == "yolo" and self.value != "off")
        )


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


class HostInfo(Payload, frozen=True, kw_only=True):
    request_id: RequestId | None = None
    gateway_id: str | None = None


class HostInfoResult(Payload, frozen=True, kw_only=True):
    """`uptime`: of the gateway's process, in seconds; `running`: its chats that run at the
    moment; `load`: of 1, 5 and 15 minutes; disks in bytes, where Hermes has its files."""

    gateway_id: str
    server_version: str
    hermes_version: str
    python: str
    os: str
    home: str
    uptime: float
    running: int
    disk_free: int
    disk_total: int
    load: list[float] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class TaskRename(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    task_id: str
    title: str


class TaskRenameResult(Payload, frozen=True, kw_only=True):
    request_id: str
    task_id: str
    title: str
    """As the host keeps it."""


class TaskNew(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    title: str | None = None
    gateway_id: str | None = None


class TaskNewResult(Payload, frozen=True, kw_only=True):
    request_id: str
    gateway_id: str
    task_id: str
    title: str | UnsetType = UNSET


class TaskFork(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    task_id: str


class TaskContinue(Payload, frozen=True, kw_only=True):
    request_id: RequestId
    task_id: str


class TaskBranched(Payload, frozen=True, kw_only=True):
    """Answer to task.fork and task.continue: the new task, and the one it comes from."""

    request_id: str
    gateway_id: str
    task_id: str
    origin_task_id: str
    title: str
    shared: bool
    """Both go on with the very same history, and each sees what the other adds."""


CONTROLS: dict[str, type[Payload]] = {
    "command.list.result": CommandListResult,
    "model.list.result": ModelListResult,
    "model.set.result": ModelSetResult,
    "host.info.result": HostInfoResult,
    "task.rename.result": TaskRenameResult,
    "task.new.result": TaskNewResult,
    "task.fork.result": TaskBranched,
    "task.continue.result": TaskBranched,
    "mode.get.result": Modes,
    "mode.set.result": Modes,
}
REQUESTS: dict[str, type[Payload]] = {
    "command.list": CommandList,
    "model.list": ModelList,
    "model.set": ModelSet,
    "mode.get": ModeGet,
    "mode.set": ModeSet,
    "host.info": HostInfo,
    "task.rename": TaskRename,
    "task.new": TaskNew,
    "task.fork": TaskFork,
    "task.continue": TaskContinue,
}
