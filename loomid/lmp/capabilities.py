"""What a connected gateway can do for phones, by name: announced only where it is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loomid.lmp.facts import GatewayUp

OPS: dict[str, frozenset[str]] = {"questions": frozenset({"answer"})}
"""Capability → the operations that its shim must have, on the release of Hermes that it runs in."""
FROM_HOME: tuple[str, ...] = ()
"""Capabilities that need nothing but Hermes' own files, on this machine."""


def of(up: GatewayUp) -> list[str]:
    """The names that hold for a gateway, sorted."""
    ops = frozenset(up.ops)
    able = {name for name, needed in OPS.items() if needed <= ops}
    if up.home and up.local:
        able.update(FROM_HOME)
    return sorted(able)
