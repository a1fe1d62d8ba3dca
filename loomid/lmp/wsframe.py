"""RFC 6455 framing of what a server sends: unmasked, unfragmented, uncompressed."""

from __future__ import annotations

from struct import Struct

_SHORT = Struct("!BB").pack
_MIDDLE = Struct("!BBH").pack
_LONG = Struct("!BBQ").pack
_CODE = Struct("!H").pack
_TEXT = 0x81  # FIN + opcode 1
_CLOSE = 0x88
_PONG = 0x8A
_NOT_SENT = (1005, 1006)  # RFC 6455 §7.4.1: they stand for "none" and "lost"


def header(length: int) -> bytes:
    """What goes before a text payload of `length` bytes (RFC 6455 §5.2)."""
    if length < 126:
        return _SHORT(_TEXT, length)
    if length < 65536:
        return _MIDDLE(_TEXT, 126, length)
    return _LONG(_TEXT, 127, length)


def close(code: int, reason: str) -> bytes:
    """A close frame (RFC 6455 §5.5.1)."""
    body = b"" if code in _NOT_SENT else _CODE(code) + reason.encode()[:123]
    return _SHORT(_CLOSE, len(body)) + body


def pong(data: bytes) -> bytes:
    """The answer to a ping frame (RFC 6455 §5.5.3), whose data has at most 125 bytes."""
    return _SHORT(_PONG, len(data)) + data
