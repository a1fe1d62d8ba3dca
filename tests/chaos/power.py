"""Power loss: what the disk may have kept of a database when the machine went dark.

`syncs.c` notes what loomid has synced of the write-ahead log. Everything behind that may be
gone, at any boundary of a commit: SQLite recovers by frames whose checksums hold. The
database file itself keeps what checkpoints wrote, for SQLite syncs the log before each.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HEADER = 32
FRAME = 24
SOURCE = Path(__file__).with_name("syncs.c")


def library(folder: Path) -> Path | None:
    """The compiled library; None where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    made = folder / "syncs.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(made)]
    subprocess.run([*command, str(SOURCE), "-ldl", "-pthread"], check=True)
    return made


def boundaries(wal: bytes) -> list[int]:
    """Where the log could end: behind its header, and behind the last frame of each commit."""
    if len(wal) < HEADER:
        return []
    page, salts = int.from_bytes(wal[8:12], "big"), wal[16:24]
    found, at = [HEADER], HEADER
    while at + FRAME + page <= len(wal) and wal[at + 8 : at + 16] == salts:
        commits = int.from_bytes(wal[at + 4 : at + 8], "big") > 0
        at += FRAME + page
        if commits:
            found.append(at)
    return found


def safe(wal: bytes, notes: Path) -> int | None:
    """Up to where the log was synced; None: its generation never was, so nothing is known."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    for line in reversed(lines):
        salts, end = line.split()
        if salts == wal[16:24].hex():
            return int(end)
    return None


def ends(database: Path, notes: Path) -> list[int]:
    """Where the log may end after a power loss now; nowhere if that cannot be told."""
    wal_path = _log_of(database)
    wal = wal_path.read_bytes() if wal_path.exists() else b""
    synced = safe(wal, notes)
    return [at for at in boundaries(wal) if synced is not None and at >= synced]


def cut(database: Path, end: int) -> None:
    """Have the log end there."""
    with _log_of(database).open("r+b") as file:
        file.truncate(end)
    database.with_name(database.name + "-shm").unlink(missing_ok=True)


def _log_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")
