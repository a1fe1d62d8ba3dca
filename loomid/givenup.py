"""Batches that were given up while their COMMIT hung, and may be stored all the same.

Phones were told later numbers meanwhile, so what a killed loomid left under these must get
new ones. The note is in the runtime directory: that is memory, and no disk can stall it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILE = "given-up"
"""In the runtime directory; a line is the first and the last position of a batch."""

log = logging.getLogger("loomid.givenup")


class GivenUp:
    """The note of one loomid."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[tuple[int, int]]:
        """What the former process noted: first and last positions."""
        try:
            text = self._path.read_text(encoding="ascii", errors="replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            log.error("cannot read %s: %s", self._path, error.strerror)
            return []
        return [(int(a), int(b)) for a, b in re.findall(r"^(\d{1,18}) (\d{1,18})$", text, re.M)]

    def clear(self) -> None:
        """All of it is settled."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            log.error("cannot remove %s: %s", self._path, error.strerror)

    async def note(self, first: int, last: int) -> bool:
        """Note a batch before anything behind it is shown; whether that was possible."""

        def write() -> None:
            with self._path.open("a", encoding="ascii") as file:
                file.write(f"{first} {last}\n")

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            log.error("cannot write %s: %s", self._path, error.strerror)
            return False
        return True
