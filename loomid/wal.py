"""Whether SQLite could read all of a write-ahead log: of a damaged one it silently takes
what comes before the damage (https://www.sqlite.org/walformat.html)."""

from __future__ import annotations

import mmap
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct(">IIIIIIII")
"""Magic, format, page size, checkpoint, two salts, two checksums."""
FRAME = struct.Struct(">IIIIII")
"""Page, size of the database after a commit or 0, two salts, two checksums."""
MAGIC = 0x377F0682  # or one more: words of checksums are big-endian then
INDEX_LAST = 16
"""Where the wal-index has the number of the last valid frame, as a native word."""


def last_commit(database: Path) -> int | None:
    """The number of the last frame that ends a commit, valid or not, counted from 1.

    0: there is none. None: even the head of the log is damaged. Before it is opened.
    """
    try:
        with database.with_name(f"{database.name}-wal").open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):  # there is none, or it is empty
        return 0
    with data:
        return _last_commit(data)


def _last_commit(data: mmap.mmap) -> int | None:
    if len(data) < HEADER.size:
        return 0
    head = HEADER.unpack_from(data)
    if head[0] & ~1 != MAGIC or _checksum(data[:24], big=bool(head[0] & 1)) != head[6:8]:
        return None
    size = FRAME.size + head[2]
    last = 0
    for number in range(1, (len(data) - HEADER.size) // size + 1):
        _, commit, *salts, _, _ = FRAME.unpack_from(data, HEADER.size + (number - 1) * size)
        if commit and tuple(salts) == head[4:6]:  # else it is older than the head
            last = number
    return last


def last_read(database: Path) -> int:
    """The number of the last frame that SQLite takes for valid, once it has opened the log."""
    index = database.with_name(f"{database.name}-shm").read_bytes()
    return int.from_bytes(index[INDEX_LAST : INDEX_LAST + 4], sys.byteorder)


def _checksum(data: bytes, *, big: bool) -> tuple[int, int]:
    a = b = 0
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        a = (a + one + b) & 0xFFFFFFFF
        b = (b + two + a) & 0xFFFFFFFF
    return a, b
