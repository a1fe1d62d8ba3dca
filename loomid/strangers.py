"""Shims of another wire version: refused by name, logged once, told to the owner."""

from __future__ import annotations

import logging

import msgspec

from loomid import wire
from loomid.text import short

log = logging.getLogger("loomid.gateway")

TOLD_MAX = 256
BEATS = 45
"""Three times what a refused shim waits before it tries again."""
WIRE_MAX = 1 << 31
"""What is larger is no version."""


def foreign(said: str) -> tuple[str, int] | None:
    """Gateway id and wire version of a hello that is not of our shape; None: it is no such."""
    try:
        body = msgspec.json.decode(said)
        version, name = body["wire"], body.get("gateway_id")
        is_hello = body["m"] == "hello" and type(version) is int and 0 <= version < WIRE_MAX
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    if not is_hello or version == wire.WIRE_VERSION:
        return None
    return name if isinstance(name, str) else "", version


class Strangers:
    """Those that tried of late."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}  # who → line, beats until forgotten

    def lines(self) -> list[str]:
        """One line for each."""
        return [line for line, _ in self._seen.values()]

    def beat(self) -> None:
        """Time passed: those that try no more are forgotten."""
        self._seen = {k: (line, n - 1) for k, (line, n) in self._seen.items() if n}

    def forget(self, gateway_id: str) -> None:
        """It speaks our version now."""
        self._seen.pop(short(gateway_id), None)

    def refuse(self, gateway_id: str, version: int) -> wire.Refused:
        """Note one that said hello; returns what it is answered."""
        here, name = wire.WIRE_VERSION, short(gateway_id) or "without id"
        line = f"gateway {name} speaks wire version {version}, this loomid {here}"
        before = self._seen.get(name)
        if before is not None or len(self._seen) < TOLD_MAX:
            if before is None or before[0] != line:
                log.warning("%s: upgrade one of them", line)
            self._seen[name] = line, BEATS
        told = (
            f"loomid speaks wire version {here}, this shim {version}: upgrade one of them; it is"
            " tried again"
        )
        return wire.Refused("refused", [here], told)
