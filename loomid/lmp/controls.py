"""What steers a host, decided and put into words: commands that reach beyond their task, models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, field
from msgspec.structs import asdict

from loomid.errors import BadFrame, UnknownModel
from loomid.lmp import requests
from loomid.lmp.control_frames import (
    HostCommand,
    HostInfoResult,
    ModelInUse,
    ModelSetResult,
    Modes,
    ModeSet,
    OfferedModel,
    Provider,
)
from loomid.lmp.payload import given
from loomid.lmp.scopes import CHAT_COMMANDS

if TYPE_CHECKING:
    from loomid.lmp.requests import Asked

WHOLE_GATEWAY = {
    "restart": "restart",
    "update": "update",
    "pause": "pause",
    "platform": "platform",
    "reload-mcp": "reload",
    "reload-skills": "reload",
    "sethome": "home",
    "approvals": "approvals",
    "busy": "settings",
    "codex-runtime": "settings",
    "footer": "settings",
    "verbose": "settings",
    "personality": "settings",
    "login": "account",
    "debug": "upload",
}
"""Command → what it does to the whole gateway. Those that only show something without arguments
are asked about all the same: which do is for each release to decide."""
_WITH = {
    "model": ("default_model", re.compile(r"global|^(?!.*--session).*\S", re.DOTALL)),
    "reasoning": ("settings", re.compile("global|show|hide")),
    "fast": ("settings", re.compile("global")),
    "memory": ("settings", re.compile("approval|mode")),
    "skills": ("settings", re.compile("approval|mode")),
}
"""The same, but only with such arguments. Hermes takes quotes and half a dozen dashes for those
of `--global`: the word is enough. Without `--session` its owner decides what `/model` does."""

APPROVALS = ("manual", "smart", "off")
OF_ITS_TASK = "approvals_off"
"""Of its task alone, and asked about as it is dangerous."""
_NAMES = CHAT_COMMANDS | WHOLE_GATEWAY.keys() | _WITH.keys() | {"yolo", "approve", "deny"}


class Command(Struct):
    """A command as the shim tells it, in Hermes' words."""

    name: str
    aliases: list[str] = field(default_factory=list)
    args_hint: str = ""
    description: str = ""


class Registry(Struct):
    """Value of op `commands`."""

    commands: list[Command] = field(default_factory=list)
    short: dict[str, str] = field(default_factory=dict)
    """Commands of the user's own making → the text they stand for, where it is another command;
    empty: they run a program."""

    def shown(self) -> list[HostCommand]:
        """All of it, as phones are told."""
        known = self._names()
        own = [Command(n, description=to) for n, to in self.short.items() if n not in known]
        return [self._shown(each) for each in [*self.commands, *own]]

    def _names(self) -> dict[str, str]:
        """Each name in the registry → the command's own."""
        names = {alias: each.name for each in self.commands for alias in each.aliases}
        return names | {each.name: each.name for each in self.commands}

    def _shown(self, each: Command) -> HostCommand:
        does = self.effect(f"/{each.name}")
        return HostCommand(
            name=each.name,
            aliases=each.aliases,
            arguments=each.args_hint,
            meaning=each.description,
            whole_gateway=UNSET if does in (None, OF_ITS_TASK) else True,
            effect=given(does),
        )

    def effect(self, text: str) -> str | None:
        """What a command would do that must be asked about first; None: nothing known of."""
        name, words = self._read(text)
        # Our plugin sees to it that a text in a command is none; one that is older does not.
        inner = next((at for at, word in enumerate(words) if word.startswith("/")), None)
        if inner is not None and (does := self.effect(" ".join(words[inner:]))) is not None:
            return does
        if name == "yolo":
            return OF_ITS_TASK
        if name in _WITH:
            does, arguments = _WITH[name]
            return does if arguments.search(" ".join(words).lower()) else None
        return WHOLE_GATEWAY.get(name)

    def _read(self, text: str) -> tuple[str, list[str]]:
        """The command's own name and its arguments, as Hermes reads them: it follows two of the
        user's own to what they stand for."""
        name, words = _split(text)
        own = self._names()
        short = {each.lower(): to for each, to in self.short.items()}
        while name not in own and (to := short.pop(name, "")):  # each once: they may go round
            name, more = _split("/" + to.lstrip("/"))
            words = more + words
        return own.get(name, name.replace("_", "-")), words


def _split(text: str) -> tuple[str, list[str]]:
    first, *words = text.split() or [""]
    return first.removeprefix("/").lower().partition("@")[0], words


def name_of(text: str) -> str | None:
    """The name of a command that is known to loomid itself; None: it may be any word."""
    name = _split(text)[0].replace("_", "-")
    return name if name in _NAMES else None


class Model(Struct):
    """A model, as the shim tells it."""

    model: str
    provider: str | None = None
    context_length: int | None = None

    def shown(self) -> ModelInUse:
        """As phones are told."""
        length = given(self.context_length)
        return ModelInUse(model=self.model, provider=self.provider or "", context_length=length)


class Row(Struct):
    """A provider and what it offers, in Hermes' words."""

    slug: str
    name: str
    total_models: int
    models: list[Model]

    def shown(self) -> Provider:
        """As phones are told."""
        models = [
            OfferedModel(model=each.model, context_length=each.shown().context_length)
            for each in self.models
        ]
        return Provider(provider=self.slug, name=self.name, models=models, total=self.total_models)

    def has(self, model: str) -> bool:
        """Whether it may have a model: Hermes lists the first ones of many."""
        known = any(each.model == model for each in self.models)
        return known or self.total_models > len(self.models)


class Models(Struct):
    """Value of op `models`."""

    providers: list[Row]
    default: Model
    current: Model | None = None

    def provider_of(self, model: str, provider: str | None) -> str:
        """The provider to take a model from: the named one, else that in use, else the first
        that lists it. Raises UnknownModel."""
        # It becomes a word of a command.
        if model.split() != [model] or model[0] in "-\u2013\u2014":
            raise UnknownModel
        use = self.current or self.default
        for known in (use, self.default):  # perhaps not listed
            if (known.model, known.provider) == (model, provider or known.provider):
                return known.provider or ""
        rows = [row for row in self.providers if provider in (None, row.slug) and row.has(model)]
        rows.sort(key=lambda row: (row.slug != use.provider, row.total_models > len(row.models)))
        if not rows:
            raise UnknownModel
        return rows[0].slug


class HostModes(Struct):
    """Value of ops `modes` and `set_mode`; `reasoning` is None where the model decides."""

    approvals: str
    efforts: list[str]
    reasoning: str | None = None
    yolo: bool | None = None

    def choices(self, asked: ModeSet) -> list[str]:
        """What may be set. Raises BadFrame where the mode is of a task, or of none."""
        if (asked.task_id is None) != (asked.mode == "approvals") and asked.mode != "reasoning":
            raise BadFrame("approvals are of the whole gateway, yolo of a task.")
        match asked.mode:
            case "approvals":
                return list(APPROVALS)
            case "yolo":
                return ["on", "off"]
            case _:
                return self._reasoning(asked.task_id)

    def _reasoning(self, task_id: str | None) -> list[str]:
        """A task may also follow its gateway again."""
        return [*([] if task_id is None else ["default"]), "none", *self.efforts]

    def shown(self, gateway_id: str, task_id: str | None, request_id: str | None) -> Modes:
        """As phones are told."""
        return Modes(
            gateway_id=gateway_id,
            approvals=self.approvals,
            approvals_choices=list(APPROVALS),
            reasoning=self.reasoning or "default",
            reasoning_choices=self._reasoning(task_id),
            yolo=given(self.yolo),
            task_id=given(task_id),
            request_id=given(request_id),
        )


DANGEROUS = {("approvals", "off"): "approvals", ("yolo", "on"): OF_ITS_TASK}
"""Mode and value → what `confirm_required` calls it."""


def mode_set(_: bytes, asked: Asked, value: dict[str, Any]) -> Modes:
    """The answer to mode.set. Raises GatewayError when `value` is odd."""
    task_id = next(iter(requests.about(asked.command_id)), None)
    now = requests.convert(value, HostModes)
    return now.shown(asked.gateway_id, task_id, asked.request_id)


class Host(Struct):
    """Value of op `host`."""

    hermes_version: str
    python: str
    os: str
    home: str
    uptime: float
    running: int
    disk_free: int
    disk_total: int
    load: list[float] | None = None

    def shown(self, gateway_id: str, version: str, request_id: str | None) -> HostInfoResult:
        """As phones are told, with loomid's own version."""
        return HostInfoResult(
            **asdict(self) | {"load": given(self.load)},
            gateway_id=gateway_id,
            server_version=version,
            request_id=given(request_id),
        )


class _Set(Model):
    """Value of op `set_model`."""

    asked: bool = False


def model_set(_: bytes, asked: Asked, value: dict[str, Any]) -> ModelSetResult:
    """The answer to model.set. Raises GatewayError when `value` is odd."""
    now = requests.convert(value, _Set)
    return ModelSetResult(
        request_id=asked.request_id or "",
        gateway_id=asked.gateway_id,
        model=now.model,
        provider=now.provider or "",
        state="asked" if now.asked else "set",
        task_id=next(iter(requests.about(asked.command_id)), UNSET),
    )
