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

    0: there is none. None: even the head of the log is damaged. Before it is opened. A commit
    of whose frames the last alone is not valid does not count: SQLite writes a frame's head
    and its page one after the other, and its process was killed between. Nobody was told of it.
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
    if head[0] & ~1 != MAGIC or _checksum(data[:24], (0, 0), big=bool(head[0] & 1)) != head[6:8]:
        return None
    size = FRAME.size + head[2]
    before = last = 0
    for number in range(1, (len(data) - HEADER.size) // size + 1):
        _, commit, *salts, _, _ = FRAME.unpack_from(data, HEADER.size + (number - 1) * size)
        if commit and tuple(salts) == head[4:6]:  # else it is older than the head
            before, last = last, number
    if not last or _is_valid(data, last, head):
        return last
    whole = all(_is_valid(data, number, head) for number in range(before + 1, last))
    return before if whole else last


def _is_valid(data: mmap.mmap, number: int, head: tuple[int, ...]) -> bool:
    """Whether a frame follows from the one before it."""
    size = FRAME.size + head[2]
    at = HEADER.size + (number - 1) * size
    former = head[6:8] if number == 1 else FRAME.unpack_from(data, at - size)[4:6]
    frame = FRAME.unpack_from(data, at)
    said = data[at : at + 8] + data[at + FRAME.size : at + size]
    big = bool(head[0] & 1)
    return frame[2:4] == head[4:6] and _checksum(said, former, big=big) == frame[4:6]


def last_read(database: Path) -> int:
    """The number of the last frame that SQLite takes for valid, once it has opened the log."""
    index = database.with_name(f"{database.name}-shm").read_bytes()
    return int.from_bytes(index[INDEX_LAST : INDEX_LAST + 4], sys.byteorder)


def _checksum(data: bytes, former: tuple[int, ...], *, big: bool) -> tuple[int, int]:
    a, b = former
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        a = (a + one + b) & 0xFFFFFFFF
        b = (b + two + a) & 0xFFFFFFFF
    return a, b
