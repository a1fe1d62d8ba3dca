"""What is printed for people in front of a terminal."""

from __future__ import annotations

import sys


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


def qr(drawn: str) -> str:
    """A drawn QR code for our stdout."""
    return coloured(drawn) if sys.stdout.isatty() else drawn


def coloured(drawn: str) -> str:
    """A drawn QR code for a terminal, its colours said aloud: a theme's may not scan."""
    return "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in drawn.rstrip("\n").split("\n"))
