"""What phones steer at the agent of `loomid --demo` beside messages: models, modes, commands."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import wire

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = f"agent:main:{wire.PLATFORM}:dm:"
"""The session key of a chat is this and the chat's id."""
MODEL, PROVIDER = "demo-model", "demo"
MODELS = {MODEL: 32_000, "demo-model-large": 128_000}
"""Name → how many tokens its context holds."""
EFFORTS = ["low", "medium", "high"]
COMMANDS = [
    ("new", ["reset"], "", "Begin the conversation anew"),
    ("status", [], "", "Show what runs"),
    ("compress", [], "", "Shorten what the model is given of the conversation"),
    ("model", [], "[name]", "Show the model, or take another"),
    ("yolo", [], "", "Ask nothing in this conversation"),
    ("restart", [], "", "Restart the gateway"),
]
"""Name, aliases, arguments, meaning. None does anything here."""
_BEGAN = time.monotonic()


class Refusal(Exception):
    """A command that does not run; the argument is a code of wire.RESULT_ERRORS."""


@dataclass
class Controls:
    """What was chosen: of each chat, by its session key, and of all without a choice."""

    idle: Callable[[str | None], None]
    """Raises Refusal where a turn runs, by session key."""
    default: str = MODEL
    models: dict[str, str] = field(default_factory=dict)
    approvals: str = "manual"
    effort: str | None = None
    efforts: dict[str, str] = field(default_factory=dict)
    yolo: set[str] = field(default_factory=set)

    def model_of(self, key: str | None) -> str:
        """The model of the next turn there."""
        return self.models.get(key or "", self.default)

    def effort_of(self, key: str | None) -> str | None:
        """How much it thinks; None: as it is made."""
        return self.efforts.get(key or "", self.effort)

    def asks(self, key: str) -> bool:
        """Whether a dangerous command is asked about first."""
        return self.approvals != "off" and key not in self.yolo

    # ── operations, as the shim has them ──

    def operations(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """By name; each takes the command's id and its arguments, and raises Refusal."""
        return {
            "models": self._models,
            "model": self._model,
            "set_model": self._set_model,
            "modes": self._modes,
            "set_mode": self._set_mode,
            "commands": self._commands,
        }

    def _models(self, _id: str, chat_id: str | None = None, **_more: object) -> dict[str, Any]:
        rows = [_model(name) for name in MODELS]
        row = {"slug": PROVIDER, "name": "Demo", "total_models": len(rows), "models": rows}
        told: dict[str, Any] = {"providers": [row], "default": _model(self.default)}
        key = _key(chat_id)
        return told if key is None else told | {"current": _model(self.model_of(key))}

    def _model(self, _id: str, chat_id: str, **_more: object) -> dict[str, Any]:
        return _model(self.model_of(_key(chat_id)))

    def _set_model(
        self, _id: str, model: str, chat_id: str | None = None, **_more: object
    ) -> dict[str, Any]:
        key = _key(chat_id)
        if model not in MODELS:
            raise Refusal("unknown_model")
        self.idle(key)
        if key is None:
            self.default = model
        elif model == self.default:
            self.models.pop(key, None)
        else:
            self.models[key] = model
        return _model(self.model_of(key)) | {"asked": False}

    def _modes(self, _id: str, chat_id: str | None = None, **_more: object) -> dict[str, Any]:
        key = _key(chat_id)
        told = {"approvals": self.approvals, "efforts": EFFORTS, "reasoning": self.effort_of(key)}
        return told if key is None else told | {"yolo": key in self.yolo}

    def _set_mode(
        self, id_: str, mode: str, value: str, chat_id: str | None = None, **_more: object
    ) -> dict[str, Any]:
        key = _key(chat_id)
        if mode == "approvals":
            self.approvals = value
        elif mode == "yolo" and key is not None:
            (self.yolo.add if value == "on" else self.yolo.discard)(key)
        elif key is None:
            self.effort = value
        else:
            self.idle(key)
            self.efforts[key] = value
            if value == "default":
                del self.efforts[key]
        return self._modes(id_, chat_id)

    def _commands(self, _id: str, **_more: object) -> dict[str, Any]:
        names = ("name", "aliases", "args_hint", "description")
        return {"commands": [dict(zip(names, row, strict=True)) for row in COMMANDS]}


def _key(chat_id: str | None) -> str | None:
    return None if chat_id is None else KEY + chat_id


def _model(name: str) -> dict[str, Any]:
    return {"model": name, "provider": PROVIDER, "context_length": MODELS[name]}


def host(home: Path | None, running: int) -> dict[str, Any]:
    """Value of op `host`."""
    disk = shutil.disk_usage(home or Path.cwd())
    return {
        "hermes_version": "demo",
        "python": platform.python_version(),
        "os": platform.platform(),
        "home": str(home or ""),
        "uptime": time.monotonic() - _BEGAN,
        "running": running,
        "load": list(os.getloadavg()),
        "disk_free": disk.free,
        "disk_total": disk.total,
    }
