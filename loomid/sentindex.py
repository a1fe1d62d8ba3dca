"""Which messages went to Hermes with files, for their history: the table sent (lmp/recalled.py).

What is written here is on disk when the call returns. Every call may raise StorageFailing;
nothing has changed then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from loomid import handedindex
from loomid.durable import Durable
from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.recalled import Sent

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from loomid.lmp.folding import FileTold
    from loomid.store import Store

MOST = 4_096
MOST_BYTES = 16 * 2**20
"""Of texts and what is known of their files; the newest are kept."""
_REFS = msgspec.json.Decoder(tuple[AttachmentRef, ...])
_NAMES = msgspec.json.Decoder(tuple[str, ...])


class SentIndex:
    """The table sent; and, to read alone, handed (handedindex)."""

    def __init__(self, store: Store) -> None:
        self._line = Durable(store.safe, store.health)

    async def note(
        self, message_id: str, text: str, refs: Sequence[AttachmentRef], now: float
    ) -> None:
        """A message is on its way to Hermes."""
        files = msgspec.json.encode(refs).decode()
        size = len(text.encode()) + len(files)

        def work(line: sqlite3.Connection) -> None:
            line.execute(
                "INSERT INTO sent VALUES (?, NULL, ?, ?, '[]', ?, ?)",
                (message_id, now, size, files, text),
            )
            line.execute(
                """DELETE FROM sent WHERE message_id IN (SELECT message_id FROM (
                SELECT message_id, row_number() OVER newest AS number, sum(size) OVER newest AS held
                FROM sent WINDOW newest AS (ORDER BY at DESC, message_id DESC))
                WHERE number > ? OR held > ?)""",
                (MOST, MOST_BYTES),
            )

        await self._line.write(work)

    async def settle(self, message_id: str, task_id: str, copies: Sequence[str]) -> None:
        """Hermes took it; `copies` is what it calls its copies of the files."""
        names = msgspec.json.encode(copies).decode()
        await self._change(
            "UPDATE sent SET task_id = ?2, copies = ?3 WHERE message_id = ?1",
            *(message_id, task_id, names),
        )

    async def release(self, message_id: str) -> None:
        """It never ran."""
        await self._change("DELETE FROM sent WHERE message_id = ? AND task_id IS NULL", message_id)

    async def _change(self, sql: str, message_id: str, *more: str) -> None:
        """Most messages have no files, and no disk to wait for."""

        def known(line: sqlite3.Connection) -> object:
            sql = "SELECT 1 FROM sent WHERE message_id = ?"
            return line.execute(sql, (message_id,)).fetchone()

        if await self._line.run(known):
            await self._line.write(lambda line: line.execute(sql, (message_id, *more)))

    async def handed(self, task_id: str) -> list[FileTold]:
        """What the agent sent in a task, in the order in which it was told."""
        return await self._line.run(lambda line: handedindex.of_task(line, task_id))

    async def of_task(self, task_id: str) -> list[Sent]:
        """Those that are remembered of a task, the oldest first."""
        return (await self.of_tasks([task_id])).get(task_id, [])

    async def of_tasks(self, task_ids: Collection[str]) -> dict[str, list[Sent]]:
        """The same of several tasks; those without any are left out."""

        def work(line: sqlite3.Connection) -> dict[str, list[Sent]]:
            found: dict[str, list[Sent]] = {}
            rows = line.execute(
                """SELECT task_id, at, text, files, copies FROM sent
                WHERE task_id IN (SELECT value FROM json_each(?)) ORDER BY at""",
                (json.dumps(list(task_ids)),),
            )
            for task_id, at, text, files, copies in rows:
                one = Sent(at, text, _REFS.decode(files), _NAMES.decode(copies))
                found.setdefault(task_id, []).append(one)
            return found

        return await self._line.run(work)
