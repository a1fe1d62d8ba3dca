"""What was done and when, and what was found to be wrong: a file of JSON lines."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 100


class Violated(Protocol):
    """Takes what was found to be wrong."""

    def __call__(self, kind: str, /, **details: Any) -> None: ...


class Trace:
    """The file; `violations` has the first of them."""

    def __init__(self, path: Path) -> None:
        self.violations: list[dict[str, Any]] = []
        self.count = 0
        self._file = path.open("w")
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def note(self, **what: Any) -> None:
        """One line."""
        line = {"t": round(self.now, 3), **what}
        self._file.write(json.dumps(line, default=str) + "\n")
        self._file.flush()

    def violated(self, kind: str, /, **details: Any) -> None:
        """A promise was broken."""
        self.count += 1
        if self.count <= KEPT:
            self.violations.append({"violated": kind, **details})
            self.note(violated=kind, **details)

    def close(self) -> None:
        """Nothing more comes."""
        self._file.close()
