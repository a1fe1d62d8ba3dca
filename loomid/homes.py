"""Hermes homes: where one usually is, and what a Hermes is called that has no name."""

from __future__ import annotations

import os
from pathlib import Path

USUAL = "~/.hermes"


def name_of(home: str) -> str:
    """The machine's name; with the folder of a home that is not the usual one, as "box/work"."""
    host, path = os.uname().nodename, Path(home)
    if not home or path == Path(USUAL).expanduser():
        return host
    return f"{host}/{path.name.lstrip('.')}"
