"""What the host is and offers: the machine, the process, its slash commands."""

import asyncio
import os
import platform
import shutil
import time
from typing import Any

from hermes_cli import __version__ as hermes_version
from hermes_constants import get_hermes_home

from .facts import state
from .wire import Message


class Host:
    """The part of the adapter that tells of the host."""

    gateway_runner: Any

    async def _op_commands(self, _id: str, **_: Any) -> Message:
        """The registry of slash commands, those of plugins, and the user's own short ones."""
        config = self.gateway_runner.config
        quick = getattr(config, "quick_commands", None) or {}
        texts = {name: said.get("target") for name, said in quick.items() if isinstance(said, dict)}
        short = {str(name): str(text or "") for name, text in texts.items()}
        return {"value": {"commands": await asyncio.to_thread(_commands), "short": short}}

    async def _op_host(self, _id: str, **_: Any) -> Message:
        """The machine and the process, and how busy they are; nothing of their environment."""
        home = get_hermes_home()
        disk = await asyncio.to_thread(shutil.disk_usage, home)
        value: Message = {"disk_free": disk.free, "disk_total": disk.total, "home": str(home)}
        value |= {"hermes_version": hermes_version, "python": platform.python_version()}
        value |= {"os": platform.platform(), "uptime": time.monotonic() - state.began}
        value["running"] = len(self.gateway_runner._running_agents)
        value["load"] = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
        return {"value": value}


def _commands() -> list[Message]:
    from hermes_cli import commands

    gates = commands._resolve_config_gates()
    rows = [
        (each.name, list(each.aliases), each.args_hint, each.description)
        for each in commands.COMMAND_REGISTRY
        if commands._is_gateway_available(each, gates)
    ]
    rows += [(name, [], hint, text) for name, text, hint in commands._iter_plugin_command_entries()]
    names = ("name", "aliases", "args_hint", "description")
    return [dict(zip(names, row, strict=True)) for row in rows]
