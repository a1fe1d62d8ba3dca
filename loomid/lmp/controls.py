"""Which slash commands reach beyond their task, and what they would do (docs/protocol.md)."""

from __future__ import annotations

from msgspec import UNSET, Struct, field

from loomid.lmp.control_frames import HostCommand

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
    "personality": "settings",
    "login": "account",
    "debug": "upload",
}
"""Command → what it does to the whole gateway. Those that only show something without arguments
are asked about all the same: which do is for each release to decide."""
_GLOBAL = {"model": "default_model", "reasoning": "settings", "fast": "settings"}
"""The same, but only with `--global`."""


OF_ITS_TASK = "approvals_off"
"""Of its task alone, and asked about as it is dangerous."""


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
            effect=UNSET if does is None else does,
        )

    def effect(self, text: str) -> str | None:
        """What a command would do that must be asked about first; None: nothing known of."""
        name, words = self._read(text)
        if name == "yolo":
            return OF_ITS_TASK
        if "--global" in words and name in _GLOBAL:
            return _GLOBAL[name]
        return WHOLE_GATEWAY.get(name)

    def _read(self, text: str) -> tuple[str, list[str]]:
        """The command's own name and its arguments, as Hermes reads them."""
        name, words = _split(text)
        own = self._names()
        if name not in own and self.short.get(name):
            name, more = _split("/" + self.short[name].lstrip("/"))
            words = more + words
        return own.get(name, name.replace("_", "-")), words


def _split(text: str) -> tuple[str, list[str]]:
    first, *words = text.split() or [""]
    # Phones' keyboards make one dash of two, and Hermes two of one.
    dashes = [word.replace("\u2014", "--").replace("\u2013", "-") for word in words]
    return first.removeprefix("/").lower().partition("@")[0], dashes
