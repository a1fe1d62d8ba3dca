"""A disk that stops at any moment, loses what was not synced, and gives old files back.

SQLite is real; only aiosqlite's thread is replaced by steps of the loop, so that a
crash can be put before or after any commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FULL = 2
SALTS = slice(16, 24)  # of the header of a write-ahead log: others after each of its resets


@dataclass(frozen=True)
class Image:
    """The database and its write-ahead log at one moment."""

    database: bytes
    wal: bytes


class Disk:
    """One database file, and the connections of the process that uses it."""

    def __init__(self, place: Path, died: Callable[[], None]) -> None:
        self.path = place / "loomid.db"
        self.wal = place / "loomid.db-wal"
        self.latency = 0.0
        self.commits = 0
        self.fuse: int | None = None
        """How many more commits are begun."""
        self.after = False
        """The last of them still reaches the disk."""
        self.dead = False
        self.connections: list[Connection] = []
        self._died = died
        self._synced = (0, b"")  # size of the write-ahead log, and its salts

    async def connect(self, path: Path, **options: Any) -> Connection:
        """In place of aiosqlite.connect."""
        assert path == self.path
        connection = Connection(self, sqlite3.connect(path, **options))
        self.connections.append(connection)
        return connection

    def burns(self) -> bool:
        """Whether the process dies in the commit that begins now."""
        self.commits += 1
        if self.fuse is None:
            return False
        self.fuse -= 1
        return self.fuse <= 0

    def die(self) -> None:
        """The process is killed: nothing more is written, nobody is answered."""
        if not self.dead:
            self.dead, self.fuse = True, None
            self._died()

    def leave(self) -> None:
        """Close what a dead process had open, without the tidying of an orderly close."""
        image = self.image()
        for connection in self.connections:
            connection.cut()
        self.connections.clear()
        self._put(image)
        self.dead = False

    def image(self) -> Image:
        """A copy; nothing is being written."""
        wal = self.wal.read_bytes() if self.wal.exists() else b""
        return Image(self.path.read_bytes(), wal)

    def synced(self) -> None:
        """All that was written survives a power loss."""
        wal = self.image().wal
        self._synced = len(wal), wal[SALTS]

    def lose_power(self, kept: float) -> None:
        """Of what was not synced yet, only a part at the beginning is kept."""
        image = self.image()
        size, salts = self._synced
        safe = size if image.wal[SALTS] == salts else 0
        upto = safe + int((len(image.wal) - safe) * kept)
        self._put(Image(image.database, image.wal[:upto]))

    def restore(self, image: Image) -> None:
        """Put another file in its place. The old one stays, so that its inode is not used again."""
        self.path.rename(self.path.with_suffix(f".{self.path.stat().st_ino}"))
        self._put(image)
        self._synced = len(image.wal), image.wal[SALTS]

    def _put(self, image: Image) -> None:
        self.wal.with_name("loomid.db-shm").unlink(missing_ok=True)
        for path, data in ((self.path, image.database), (self.wal, image.wal)):
            with path.open("r+b" if path.exists() else "wb") as file:
                file.truncate(0)
                file.write(data)

    def rows(self, sql: str, *parameters: Any) -> list[Any]:
        """Look into the database from outside."""
        if self.connections:
            return self.connections[0].database.execute(sql, parameters).fetchall()
        return []


class Connection:
    """As aiosqlite's: one after the other, and what was begun is finished."""

    def __init__(self, disk: Disk, database: sqlite3.Connection) -> None:
        self.database = database
        self._disk = disk
        self._waiting: deque[tuple[str, Any, asyncio.Future[Any]]] = deque()
        self._busy = self._cut = False

    async def execute(self, sql: str, parameters: Any = ()) -> Any:
        if self._disk.dead:
            raise asyncio.CancelledError
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((sql, parameters, done))
        self._next()
        return await done

    async def close(self) -> None:
        while (self._busy or self._waiting) and not self._disk.dead:  # noqa: ASYNC110
            await asyncio.sleep(self._disk.latency)
        if self in self._disk.connections and not self._disk.dead:
            self._disk.connections.remove(self)
            self.cut()

    def cut(self) -> None:
        """Close without a word."""
        self._cut = True
        self.database.close()

    def _next(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            loop = asyncio.get_running_loop()
            loop.call_later(self._disk.latency / 2, self._work, *self._waiting.popleft())

    def _work(self, sql: str, parameters: Any, done: asyncio.Future[Any]) -> None:
        disk, loop = self._disk, asyncio.get_running_loop()
        if disk.dead or self._cut:
            return
        before, found, error = self.database.total_changes, None, None
        burns = not self.database.in_transaction and parameters != () and disk.burns()
        if burns and not disk.after:
            disk.die()
            return
        try:
            found = self.database.execute(sql, parameters)
        except Exception as raised:  # noqa: BLE001 - it is for whoever asked
            error = raised
        if self.database.total_changes != before and self._full():
            disk.synced()
        if burns:
            disk.die()
            return
        loop.call_later(disk.latency / 2, self._answer, done, found, error)

    def _answer(self, done: asyncio.Future[Any], found: Any, error: Exception | None) -> None:
        if self._disk.dead or self._cut:
            return
        self._busy = False
        if not done.done():
            if error is None:
                done.set_result(found)
            else:
                done.set_exception(error)
        self._next()

    def _full(self) -> bool:
        return bool(self.database.execute("PRAGMA synchronous").fetchone()[0] == FULL)
