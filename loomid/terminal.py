"""What is printed for people in front of a terminal."""

from __future__ import annotations

import sys


def plain(text: str) -> str:
    """What phones and gateways call themselves, without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


def count(number: int, noun: str) -> str:
    """A number of things whose plural has an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def qr(drawn: str) -> str:
    """A drawn QR code. On a terminal its colours are said aloud: a theme's may not scan."""
    if not sys.stdout.isatty():
        return drawn
    return "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in drawn.rstrip("\n").split("\n"))
