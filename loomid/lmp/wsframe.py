"""RFC 6455 framing of server text frames: unmasked, unfragmented, uncompressed."""

from __future__ import annotations

from struct import Struct

_SHORT = Struct("!BB").pack
_MIDDLE = Struct("!BBH").pack
_LONG = Struct("!BBQ").pack
_TEXT = 0x81  # FIN + opcode 1


def header(length: int) -> bytes:
    """What goes before a text payload of `length` bytes (RFC 6455 §5.2)."""
    if length < 126:
        return _SHORT(_TEXT, length)
    if length < 65536:
        return _MIDDLE(_TEXT, 126, length)
    return _LONG(_TEXT, 127, length)
