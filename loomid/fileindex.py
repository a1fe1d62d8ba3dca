"""Which files are kept, who may see them and what still needs them: the tables of `files`.

What is written here is on disk when the call returns. Every call may raise StorageFailing;
nothing has changed then.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from loomid.durable import Durable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from loomid.store import Store

MOST_FILES = 50_000
MOST_USES = 256
"""Of one file: the newest."""
PENDING_S = 600.0
"""How long a message that was neither taken nor refused keeps its files."""
TOUCH_S = 60.0
_FILE = "sha256, media_type, bytes, width, height"


@dataclass(frozen=True, slots=True)
class FileRow:
    """One content. Width and height in pixels, of an image."""

    sha256: str
    media_type: str
    bytes: int
    width: int | None
    height: int | None


@dataclass(frozen=True, slots=True)
class Use:
    """What a content is to somebody: to the device that brought it, or to a task.

    With a `message_id` and no task it is on its way into one. `source` is what it was made
    from, where it must not be taken from there twice.
    """

    name: str
    device_id: str | None = None
    task_id: str | None = None
    message_id: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class UploadRow:
    """A file that is being uploaded; `bytes` and `sha256` are what it is to become."""

    upload_id: str
    device_id: str
    sha256: str
    bytes: int
    media_type: str | None
    name: str | None
    at: float


class FileIndex:
    """The tables file, file_use and upload."""

    def __init__(self, store: Store) -> None:
        self._line = Durable(store.safe, store.health)

    async def _rows(self, sql: str, *parameters: Any) -> list[Any]:  # noqa: ANN401 - SQL values
        return await self._line.run(lambda line: line.execute(sql, parameters).fetchall())

    async def _change(self, sql: str, *parameters: Any) -> None:  # noqa: ANN401 - SQL values
        await self._line.write(lambda line: line.execute(sql, parameters))

    # ── files ───────────────────────────────────────────────────────────────

    async def names(self) -> set[str]:
        """The digests of all files."""
        return {row[0] for row in await self._rows("SELECT sha256 FROM file")}

    async def add(self, file: FileRow, use: Use, now: float) -> None:
        """Note a file that is in its place, and what it is to somebody."""
        await self._line.write(lambda line: _add(line, file, use, now))

    async def use(self, sha256: str, use: Use, now: float) -> bool:
        """A file is something to somebody else, too; whether it is still known."""

        def work(line: sqlite3.Connection) -> bool:
            known = line.execute("SELECT 1 FROM file WHERE sha256 = ?", (sha256,)).fetchone()
            if known is not None:
                _use(line, sha256, use, now)
            return known is not None

        return await self._line.write(work)

    async def make_room(self, need: int, most: int, now: float) -> list[str] | None:
        """Forget files, the one used longest ago first, until so many bytes fit.

        Never one that a message on its way needs. The digests of those that are gone, or None
        when there is no such room: then all is as it was.
        """
        return await self._line.write(lambda line: _make_room(line, need, most, now))

    async def expire(self, before: float, now: float) -> list[str]:
        """Forget files that were not used since, or that revoked devices alone had; their
        digests. Never one that a message on its way needs."""

        def work(line: sqlite3.Connection) -> list[str]:
            nobodys = _drop_uses(
                line,
                """task_id IS NULL AND device_id NOT IN (SELECT device_id FROM device)
                AND (message_id IS NULL OR abs(at - ?) > ?)""",
                *(now, PENDING_S),
            )
            old = [row[0] for row in takewhile(lambda row: row[2] < before, _idle(line, now))]
            _forget(line, old)
            return old + nobodys

        return await self._line.write(work)

    async def find(
        self, sha256: str, device_id: str, task_id: str | None
    ) -> tuple[FileRow, str] | None:
        """A file and its name, if a task has it (that task, if one is given) or this device
        brought it."""
        rows = await self._rows(
            f"""SELECT {_FILE}, name FROM file JOIN file_use USING (sha256) WHERE sha256 = ?1
            AND CASE WHEN ?3 IS NULL THEN task_id IS NOT NULL OR device_id = ?2
            ELSE task_id = ?3 END ORDER BY task_id IS NULL, id DESC LIMIT 1""",  # noqa: S608 - ours
            *(sha256, device_id, task_id),
        )
        return (FileRow(*rows[0][:5]), rows[0][5]) if rows else None

    async def made_from(self, source: str) -> tuple[FileRow, str] | None:
        """The file that was made from a source, and its name."""
        rows = await self._rows(
            f"SELECT {_FILE}, name FROM file JOIN file_use USING (sha256) WHERE source = ?",  # noqa: S608 - ours
            source,
        )
        return (FileRow(*rows[0][:5]), rows[0][5]) if rows else None

    async def settle(self, message_id: str, task_id: str) -> None:
        """A message was taken: its files belong to its task."""
        if await self._rows("SELECT 1 FROM file_use WHERE message_id = ?", message_id):
            await self._change(
                "UPDATE file_use SET task_id = ? WHERE message_id = ?", task_id, message_id
            )

    async def release(self, message_id: str) -> list[str]:
        """A message never ran: its files are its own no more. The digests of those that are
        nobody's now; they are forgotten."""

        def work(line: sqlite3.Connection) -> list[str]:
            return _drop_uses(line, "message_id = ? AND task_id IS NULL", message_id)

        if await self._rows("SELECT 1 FROM file_use WHERE message_id = ?", message_id):
            return await self._line.write(work)
        return []

    async def touch(self, sha256: str, now: float) -> None:
        """A file was used; within a minute that is noted once."""
        await self._change(
            "UPDATE file SET used_at = ? WHERE sha256 = ? AND abs(used_at - ?) > ?",
            *(now, sha256, now, TOUCH_S),
        )

    async def usage(self) -> tuple[int, int]:
        """How many files there are, and their bytes."""
        rows = await self._rows("SELECT count(*), coalesce(sum(bytes), 0) FROM file")
        return rows[0][0], rows[0][1]

    async def forget(self, sha256: str) -> None:
        """A file is not there any more."""
        await self._line.write(lambda line: _forget(line, [sha256]))

    # ── uploads ─────────────────────────────────────────────────────────────

    async def disowned(self) -> list[str]:
        """The uploads of devices that were revoked."""
        rows = await self._rows(
            "SELECT upload_id FROM upload WHERE device_id NOT IN (SELECT device_id FROM device)"
        )
        return [row[0] for row in rows]

    async def uploads(self) -> list[UploadRow]:
        """All that are not finished, the oldest first."""
        rows = await self._rows(
            """SELECT upload_id, device_id, sha256, bytes, media_type, name, at FROM upload
            ORDER BY at, upload_id"""
        )
        return [UploadRow(*row) for row in rows]

    async def begin(self, upload: UploadRow) -> None:
        """An upload begins."""
        await self._change("INSERT INTO upload VALUES (?, ?, ?, ?, ?, ?, ?)", *astuple(upload))

    async def end(self, upload_id: str) -> None:
        """An upload is finished or given up."""
        await self._change("DELETE FROM upload WHERE upload_id = ?", upload_id)


def _add(line: sqlite3.Connection, file: FileRow, use: Use, now: float) -> None:
    line.execute(
        """INSERT INTO file VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET used_at = excluded.used_at""",
        (*astuple(file), now),
    )
    _use(line, file.sha256, use, now)


def _use(line: sqlite3.Connection, sha256: str, use: Use, now: float) -> None:
    """The newest of the same kind stands for all of them."""
    line.execute(
        """DELETE FROM file_use WHERE sha256 = ? AND device_id IS ? AND task_id IS ?
        AND message_id IS ? AND source IS ?""",
        (sha256, use.device_id, use.task_id, use.message_id, use.source),
    )
    line.execute(
        """INSERT INTO file_use (sha256, name, device_id, task_id, message_id, source, at)
        VALUES (?, ?, ?, ?, ?, ?, ?)""",
        (sha256, *astuple(use), now),
    )
    line.execute(
        """DELETE FROM file_use WHERE sha256 = ?1 AND id <= (SELECT id FROM file_use
        WHERE sha256 = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)""",
        (sha256, MOST_USES),
    )


def _make_room(line: sqlite3.Connection, need: int, most: int, now: float) -> list[str] | None:
    files, held = line.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM file").fetchone()
    held += line.execute("SELECT coalesce(sum(bytes), 0) FROM upload").fetchone()[0]
    surplus, crowd = held + need - most, files + 1 - MOST_FILES
    gone: list[str] = []
    idle = _idle(line, now)
    while surplus > 0 or crowd > 0:
        found = next(idle, None)
        if found is None:
            return None
        gone.append(found[0])
        surplus, crowd = surplus - found[1], crowd - 1
    _forget(line, gone)
    return gone


def _idle(line: sqlite3.Connection, now: float) -> Iterator[tuple[str, int, float]]:
    """Digest, size and last use of the files that no message on its way needs, oldest first."""
    return line.execute(
        """SELECT sha256, bytes, used_at FROM file WHERE NOT EXISTS (SELECT 1 FROM file_use
        WHERE file_use.sha256 = file.sha256 AND message_id IS NOT NULL AND task_id IS NULL
        AND abs(at - ?) <= ?) ORDER BY used_at""",
        (now, PENDING_S),
    )


def _drop_uses(line: sqlite3.Connection, which: str, *parameters: Any) -> list[str]:  # noqa: ANN401 - SQL values
    """Forget what files are to somebody, and those that nobody may see now; their digests."""
    dropped = line.execute(
        f"DELETE FROM file_use WHERE {which} RETURNING sha256",  # noqa: S608 - ours
        parameters,
    ).fetchall()
    used = "SELECT 1 FROM file_use WHERE sha256 = ?"
    names = [row[0] for row in set(dropped) if line.execute(used, row).fetchone() is None]
    _forget(line, names)
    return names


def _forget(line: sqlite3.Connection, names: list[str]) -> None:
    gone = [(name,) for name in names]
    line.executemany("DELETE FROM file WHERE sha256 = ?", gone)
    line.executemany("DELETE FROM file_use WHERE sha256 = ?", gone)
