"""The same parts as for tests/commands: loomid's side and a gateway, without phones."""

from __future__ import annotations

from tests.commands.conftest import host, make_host, side

__all__ = ["host", "make_host", "side"]
