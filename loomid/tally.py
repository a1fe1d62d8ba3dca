"""How connections and requests went: counts since the start, for the owner."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from loomid.lmp.session import Code

if TYPE_CHECKING:
    from collections.abc import Container

FIRST_SEEN = "not known"
"""How a device's connection before our start ended."""
_CODES = {value for name, value in vars(Code).items() if name.isupper()} | {1000, 1005, 1006}


class Tally:
    """What the hub counts."""

    def __init__(self) -> None:
        self.hellos: Counter[str] = Counter()
        """Hellos that were right: `paired`, `resumed` or `truncated`."""
        self.reconnects: Counter[str] = Counter()
        """Devices that came back, by how their connection before had ended."""
        self.closed: Counter[tuple[str, str]] = Counter()
        """Connections that ended, by code and cause."""
        self.requests: Counter[tuple[str, str]] = Counter()
        """Answered requests, by type and `ok` or the error's code."""
        self.refused: Counter[str] = Counter()
        """Connections without a hello that had to go: `yielded` to a newer one, sent
        `too_much`, did not agree on `tls`, found `no_descriptors`."""
        self.transfers: Counter[tuple[str, str]] = Counter()
        """Requests at the doors for files, by door and how they went."""
        self.file_bytes: Counter[str] = Counter()
        """Bytes of files over HTTP: `in` from phones, `out` to them."""
        self._ends: dict[str, str] = {}  # device → cause of its last connection's end

    def came(self, device_id: str, *, new: bool, truncated: bool) -> None:
        """A device's hello was right."""
        if new:
            self.hellos["paired"] += 1
            return
        self.hellos["truncated" if truncated else "resumed"] += 1
        self.reconnects[self._ends.pop(device_id, FIRST_SEEN)] += 1

    def left(self, device_id: str, cause: str) -> None:
        """A device's connection ended, and it has no newer one."""
        self._ends[device_id] = cause

    def ended(self, code: int, cause: str) -> None:
        """A connection ended; a phone may close with any code."""
        self.closed[str(code) if code in _CODES else "other", cause] += 1

    def keep(self, devices: Container[str]) -> None:
        """Forget how devices left that are no more."""
        self._ends = {name: cause for name, cause in self._ends.items() if name in devices}
