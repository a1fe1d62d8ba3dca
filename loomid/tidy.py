"""The SQL that keeps the database small: what is old is deleted, in slices, and room given back."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid import audit, ledger
from loomid.lmp.decisions import OWNER
from loomid.lmp.quota import ENDED_KEPT

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from loomid.database import Line

BOOTS_KEPT = 64
"""Of a gateway; of one that fails at each start there may be thousands in a week."""
FORGET_BYTES = 2**20
"""Deleted at once, about: others wait for it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of the database file, without its write-ahead log."""

    used: int
    free: int


class Tidy:
    """`line` is the log's connection, `safe` the one that syncs."""

    def __init__(self, path: Path, line: Line, safe: Line) -> None:
        self._path = path
        self._line = line
        self._safe = safe

    async def forget_events(self, before: float, upto: int, after: int, count: int) -> int | None:
        """Delete events older than `before` among the next `count` in (after, upto], or
        fewer if they are large.

        What is still alive stays. The position to go on after, or None at the end.
        """

        def work(connection: sqlite3.Connection) -> int | None:
            rows = connection.execute(
                _NEXT_TO_FORGET, (after, upto, count, FORGET_BYTES)
            ).fetchall()
            old = [row[0] for row in rows if row[1] < before]
            if old:
                connection.execute(
                    """DELETE FROM event WHERE position BETWEEN ? AND ? AND ts < ?
                    AND position NOT IN (SELECT position FROM live) AND (run_id IS NULL
                    OR run_id NOT IN (SELECT id FROM live WHERE kind = 'run'))""",
                    (old[0], old[-1], before),
                )
                connection.execute(
                    "INSERT OR REPLACE INTO meta VALUES ('forgotten', ?)", (old[-1],)
                )
            return old[-1] if old and len(old) == len(rows) else None

        return await self._line.write(work)

    async def forget_rest(self, before: float) -> None:
        """Delete what is older than `before`: tasks, ended decisions, acknowledgements, the
        audit, and requests of revoked devices that were settled since. Of ended turns the last
        are kept.

        Not the last of a process whose facts are still needed: it is not over yet. The facts
        themselves go when they are needed no more, and not before (see `release`).
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(_FORGET_ACKS, (before, BOOTS_KEPT))
            connection.execute("DELETE FROM task WHERE updated_at < ?", (before,))
            connection.execute(_FORGET_REQUESTS, (before, OWNER))
            ledger.forget(connection, before)
            gateways = connection.execute("SELECT DISTINCT gateway_id FROM ended").fetchall()
            kept = [(gateway_id, ENDED_KEPT) for (gateway_id,) in gateways]
            connection.executemany(_FORGET_ENDED, kept)
            audit.forget(connection, before)

        await self._line.write(work)

    async def usage(self) -> Usage:
        """How much of the file is used, and how much could be given back."""

        def work(connection: sqlite3.Connection) -> Usage:
            size, pages, free = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            return Usage(used=(pages - free) * size, free=free * size)

        return await self._line.run(work)

    async def give_back(self, pages: int) -> None:
        """Make the file so many pages smaller, if it has free ones."""
        # As a script: `execute` would stop after the first page.
        script = f"PRAGMA incremental_vacuum({pages})"
        await self._line.alone(lambda line: line.executescript(script))

    def unsaved(self) -> int:
        """Bytes of the write-ahead log."""
        with contextlib.suppress(OSError):
            return self._path.with_name(self._path.name + "-wal").stat().st_size
        return 0

    async def checkpoint(self, *, alone: bool) -> None:
        """Move the write-ahead log into the database.

        `alone` keeps writers out for the last of it, so that it begins anew.
        """

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

        await self._safe.run(work)
        if alone:
            await self._safe.alone(work)

    async def bound_wal(self, size: int) -> None:
        """Have a write-ahead log that begins anew cut down to so many bytes."""
        for line in (self._line, self._safe):
            await line.run(lambda one: one.execute(f"PRAGMA journal_size_limit = {size}"))


_NEXT_TO_FORGET = """SELECT position, ts FROM (SELECT position, ts,
    sum(size) OVER (ORDER BY position) - size AS before
    FROM (SELECT position, ts, length(payload) AS size FROM event
    WHERE position > ? AND position <= ? ORDER BY position LIMIT ?)) WHERE before < ?"""
_FORGET_REQUESTS = """DELETE FROM request WHERE state = 'done' AND at < ? AND device_id != ?
    AND device_id NOT IN (SELECT device_id FROM device)"""
# The plus has it go by id: the index on the gateway would have all of them sorted.
_FORGET_ENDED = """DELETE FROM ended WHERE +gateway_id = ?1 AND id <= (
    SELECT id FROM ended WHERE +gateway_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"""
_FORGET_ACKS = """DELETE FROM ack WHERE (at < ?1 OR (gateway_id, boot) IN (
    SELECT gateway_id, boot FROM (SELECT gateway_id, boot,
    row_number() OVER (PARTITION BY gateway_id ORDER BY at DESC) AS place FROM ack)
    WHERE place > ?2)) AND (gateway_id, boot) NOT IN (SELECT gateway_id, boot FROM fact)"""
