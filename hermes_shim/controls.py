"""What a phone steers beside messages.

Hermes' own functions do it. They are looked up when they are needed: a release that lacks one
lacks that operation, and nothing else.
"""

import asyncio
from typing import Any

from .wire import Message


class Controls:
    """The part of the adapter that steers. All of it runs on the gateway's event loop."""

    gateway_runner: Any

    async def _op_commands(self, _id: str, **_: Any) -> Message:
        """The registry of slash commands, those of plugins, and the user's own short ones."""
        config = self.gateway_runner.config
        quick = getattr(config, "quick_commands", None) or {}
        short = {name: str(said.get("target") or "") for name, said in quick.items()}
        return {"value": {"commands": await asyncio.to_thread(_commands), "short": short}}


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
