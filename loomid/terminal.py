"""What is printed for people in front of a terminal."""

from __future__ import annotations

import os
import re
import sys

Size = os.terminal_size
"""Of a terminal: columns and lines."""


def plain(text: str) -> str:
    """What phones and gateways call themselves, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def count(number: int, noun: str) -> str:
    """A number of things whose plural has an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(seconds: float) -> str:
    """A length of time in its largest unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return count(max(0, int(seconds)), "second")


def qr(drawn: str) -> list[str]:
    """What to print of a drawn QR code on our stdout; the last thing that is printed."""
    return fitted(drawn, os.get_terminal_size()) if sys.stdout.isatty() else [drawn]


def said_size(said: str) -> Size | None:
    """What a program that has a terminal says of it, as `80x24`; None: it is no size."""
    found = re.fullmatch(r"(\d{1,4})x(\d{1,4})", said, re.ASCII)
    return Size((int(found[1]), int(found[2]))) if found else None


def fitted(drawn: str, size: Size) -> list[str]:
    """A drawn QR code for a terminal: with less of a border where it must be, and where that
    does not help either, a line that says so."""
    whole = drawn.rstrip("\n").split("\n")
    small = [line[2:-2] for line in whole[1:-1]]  # half of its border
    lines = whole if _fits(whole, size) else small
    shown = [coloured("\n".join(lines))]
    if not _fits(lines, size):
        need, have = Size((len(small[0]), len(small) + 1)), f"{size.columns}x{size.lines}"
        shown.append(
            f"This window is too small for the code ({have}): it needs {need.columns} columns"
            f" and {need.lines} lines. Make it larger and scroll back, or begin again."
        )
    return shown


def _fits(lines: list[str], size: Size) -> bool:
    """With a line left for the cursor. No size is told as 0."""
    return 0 in size or (len(lines) < size.lines and len(lines[0]) <= size.columns)


def coloured(drawn: str) -> str:
    """A drawn QR code for a terminal, its colours said aloud: a theme's may not scan."""
    return "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in drawn.rstrip("\n").split("\n"))
