"""What a connected gateway can do for phones, by name: announced only where it is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loomid.lmp.facts import GatewayUp

OPS: dict[str, frozenset[str]] = {
    "questions": frozenset({"answer"}),
    "attachments": frozenset({"inject_files"}),
    "commands": frozenset({"commands"}),
    "modes": frozenset({"modes", "set_mode"}),
    "host": frozenset({"host"}),
    "tasks": frozenset({"rename", "open", "branch"}),
    "models": frozenset({"models", "set_model"}),
}
"""Capability → the operations that its shim must have, on the release of Hermes that it runs in."""
FROM_DATABASE = ("history", "search", "stats")
"""Capabilities that need nothing but Hermes' own database, on this machine."""


def of(up: GatewayUp) -> list[str]:
    """The names that hold for a gateway, sorted."""
    ops = frozenset(up.ops)
    able = {name for name, needed in OPS.items() if needed <= ops}
    if up.readable:
        able.update(FROM_DATABASE)
    return sorted(able)
