"""The SQL of events, facts and starts; that of devices and requests is in `vault`.

The log's commits survive a crash of the process, those of `safe` (starts, and the
vault's) a power loss too. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from loomid import audit, handedindex, ledger, wal
from loomid.audit import Deed
from loomid.database import Line, as_startup_error, migrate, prepare
from loomid.durable import Durable
from loomid.errors import StateError
from loomid.health import Health
from loomid.ledger import Ledger
from loomid.lmp import facts
from loomid.lmp.decisions import OWNER
from loomid.lmp.facts import Arrival
from loomid.tidy import Tidy

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from loomid.rows import EventRow, Rows

log = logging.getLogger("loomid.store")

ROWS_AT_ONCE = 512
LOG_BUSY_S = 0.5
SAFE_BUSY_S = 2.0
START_BUSY_S = 10.0
"""How long another process may hold the database before that is an error."""


class AbandonedError(Exception):
    """The transaction was given up before it was committed; it is rolled back."""


@dataclass(frozen=True, slots=True)
class Start:
    """One start of loomid: the positions it may have handed out are first … reserved.

    `broken`: what earlier starts showed may be missing from this database.
    """

    id: int
    first: int
    reserved: int
    broken: bool


class Store:
    """The open database. `safe` is the connection whose commits survive a power loss.

    `ledger` is that of approvals and questions.
    """

    def __init__(
        self,
        path: Path,
        file: str,
        line: Line,
        safe: Line,
        clock: Callable[[], float],
        *,
        cut: bool,
    ) -> None:
        self._cut = cut
        self.path = path
        self._file = file
        self._line = line
        self._clock = clock
        self.health = Health(clock)
        self.safe = safe
        self.ledger = Ledger(Durable(safe, self.health), line)
        self.tidy = Tidy(path, line, safe)
        self.unreadable: Counter[str] = Counter()
        """Stored facts that could not be read, by kind."""

    @classmethod
    async def open(cls, path: Path, clock: Callable[[], float]) -> Store:
        """Open or make the database and bring its schema up to date.

        Raises StateError when it cannot be used, BusyError when another process
        holds it.
        """
        try:
            file = prepare(path)
        except OSError as error:
            raise StateError(
                f"cannot write {path}: {error.strerror}; give this account write access to "
                "the directory or choose another with LOOMI_STATE_DIR"
            ) from None
        writing = asyncio.Lock()
        written = wal.last_commit(path)
        with as_startup_error(path):
            safe = await Line.open(path, writing, START_BUSY_S, "FULL")
            try:
                cut = written is None or written > (written and wal.last_read(path))
                await safe.run(migrate)
                await safe.run(_patient)
                line = await Line.open(path, writing, LOG_BUSY_S, "NORMAL")
            except BaseException:
                await safe.close()
                raise
        if cut:
            log.critical(
                "the write-ahead log of %s is damaged: what was stored last is lost, and phones"
                " are told that they missed something; see 'loomictl db check'",
                path,
            )
        return cls(path, file, line, safe, clock, cut=cut)

    async def close(self) -> None:
        """Close both connections."""
        try:
            await self._line.close()
        finally:
            await self.safe.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def opening(self) -> AbstractContextManager[None]:
        """Errors of the first reads mean what they mean in `open`."""
        return as_startup_error(self.path)

    # ── starts and positions ────────────────────────────────────────────────

    async def begin(
        self, block: int, kernel: str, keep: int, given_up: list[tuple[int, int]]
    ) -> tuple[list[Start], int]:
        """Record a new start above every position of the past and the clock; all, it last.

        Events between positions that were given up move into it: nobody has seen them.
        Also the last position in use.
        """

        def work(connection: sqlite3.Connection) -> tuple[list[Start], int]:
            last = connection.execute(
                "SELECT kernel, file, clean FROM start ORDER BY id DESC LIMIT 1"
            ).fetchone()
            # Power loss, another file than the one the last start wrote, or a damaged one.
            broken = bool(last) and (
                (not last[2] and last[0] != kernel) or last[1] != self._file or self._cut
            )
            connection.execute(
                """INSERT INTO start (first, reserved, kernel, file, broken)
                SELECT first, first + ?, ?, ?, ? FROM (SELECT 1 + max(?,
                    coalesce((SELECT max(reserved) FROM start), 0),
                    coalesce((SELECT max(position) FROM event), 0)) AS first)""",
                (block, kernel, self._file, broken, int(self._clock() * 1e6)),
            )
            connection.execute(
                "DELETE FROM start WHERE id <= (SELECT max(id) FROM start) - ?", (keep,)
            )
            rows = connection.execute("SELECT id, first, reserved, broken FROM start ORDER BY id")
            starts = [Start(row[0], row[1], row[2], bool(row[3])) for row in rows]
            return starts, _move(connection, given_up, starts[-1].first)

        return await self.safe.write(work)

    async def reserve(self, start: int, upto: int) -> None:
        """Promise on disk that this start hands out no position above `upto`."""
        sql = "UPDATE start SET reserved = ? WHERE id = ?"
        await self.safe.write(lambda connection: connection.execute(sql, (upto, start)))

    async def end(self, start: int, last: int) -> None:
        """Record a clean stop and give back the positions above `last`."""
        sql = "UPDATE start SET reserved = ?, clean = 1 WHERE id = ?"
        await self.safe.write(lambda connection: connection.execute(sql, (last, start)))

    # ── events ──────────────────────────────────────────────────────────────

    async def append(self, rows: Rows) -> None:
        """Store one batch in one transaction.

        Raises AbandonedError when `rows.abandoned` was set in time, sqlite3.Error when
        it could not be stored; nothing of it is then.
        """
        await self._line.write(partial(_append, rows))

    async def settle(self) -> None:
        """Return when the log's connection has finished all that it was given."""
        await self._line.run(lambda _: None)

    async def newest(self, count: int, size: int) -> tuple[list[EventRow], int]:
        """The newest events, oldest of them first, and the position of the one before them.

        At most `count`, and no more than fit into `size` bytes.
        """
        before = await self._before_newest(count, size)
        rows = await self._rows(f"{_EVENTS} WHERE position > ? ORDER BY position", before)
        return rows, before

    async def _before_newest(self, count: int, size: int) -> int:
        sql = """SELECT coalesce(max(position), 0) FROM (SELECT position,
            row_number() OVER newest AS count, sum(length(payload)) OVER newest AS size
            FROM (SELECT position, payload FROM event ORDER BY position DESC LIMIT ?1 + 1)
            WINDOW newest AS (ORDER BY position DESC)) WHERE count > ?1 OR size > ?2"""
        row = await self.safe.run(lambda line: line.execute(sql, (count, size)).fetchone())
        return int(row[0])

    async def alive(self) -> list[EventRow]:
        """Events of runs, approvals and questions without an end, last gateway states."""
        return await self._rows(
            f"""{_EVENTS} WHERE position IN (SELECT position FROM live UNION
            SELECT event.position FROM live JOIN event ON run_id = id WHERE kind = 'run')
            ORDER BY position"""  # noqa: S608 - our own columns
        )

    async def lasting(self, after: int, upto: int, limit: int, since: float) -> list[EventRow]:
        """The newest events that snapshots look back for, oldest of them first."""
        rows = await self._rows(
            f"""{_EVENTS} WHERE lasting = 1 AND position > ? AND position <= ? AND ts >= ?
            ORDER BY position DESC LIMIT ?""",
            *(after, upto, since, limit),
        )
        return rows[::-1]

    async def _rows(self, sql: str, *parameters: Any) -> list[Any]:  # noqa: ANN401 - SQL values
        return await self.safe.run(lambda line: line.execute(sql, parameters).fetchall())

    async def forgotten(self) -> int:
        """Every event up to here may have been forgotten."""
        rows = await self._rows("SELECT value FROM meta WHERE name = 'forgotten'")
        return int(rows[0][0]) if rows else 0

    # ── facts ───────────────────────────────────────────────────────────────

    async def facts(self) -> list[tuple[Arrival, str]]:
        """Every retained fact with its tag, in stored order."""
        return await self._facts("")

    async def gateways(self) -> list[Arrival]:
        """What the processes of gateways said of themselves when they came."""
        kind = facts.KINDS[facts.GatewayUp]
        return [arrival for arrival, _ in await self._facts("WHERE kind = ?", kind)]

    async def _facts(self, where: str, *parameters: str) -> list[tuple[Arrival, str]]:
        sql = "SELECT gateway_id, boot, n, t, at, kind, body, tag FROM fact {} ORDER BY id"
        found: list[tuple[Arrival, str]] = []
        for gateway_id, boot, n, t, at, kind, body, tag in await self._rows(
            sql.format(where), *parameters
        ):
            try:
                fact = facts.load(kind, body)
            except (ValueError, KeyError) as error:  # else no start would ever succeed again
                self.unreadable[kind] += 1
                log.error("cannot read a stored %s: %s", kind, type(error).__name__)
                continue
            found.append((Arrival(gateway_id, boot, n, t, at, fact), tag))
        return found

    async def last_fact(self) -> int:
        """The highest id of a stored fact; 0 for none."""
        rows = await self._rows("SELECT coalesce(max(id), 0) FROM fact")
        return int(rows[0][0])

    async def ended(self) -> dict[str, list[str]]:
        """The turns that ended last, oldest first, by gateway."""
        found: dict[str, list[str]] = {}
        for gateway_id, turn_id in await self._rows(
            "SELECT gateway_id, turn_id FROM ended ORDER BY id"
        ):
            found.setdefault(gateway_id, []).append(turn_id)
        return found

    async def acks(self) -> dict[tuple[str, str], int]:
        """The highest stored fact number by (gateway, boot)."""
        rows = await self._rows("SELECT gateway_id, boot, n FROM ack")
        return {(gateway_id, boot): n for gateway_id, boot, n in rows}


def _move(connection: sqlite3.Connection, given_up: list[tuple[int, int]], after: int) -> int:
    """Move events to the positions after that one; the last of these."""
    sql = "SELECT position FROM event WHERE position BETWEEN ? AND ?"
    found = {row[0] for bounds in given_up for row in connection.execute(sql, bounds)}
    for new, old in enumerate(sorted(found), after + 1):
        connection.execute("UPDATE event SET position = ? WHERE position = ?", (new, old))
        connection.execute("UPDATE live SET position = ? WHERE position = ?", (new, old))
    return after + len(found)


def _patient(connection: sqlite3.Connection) -> None:
    """From now on somebody waits for an answer."""
    connection.execute(f"PRAGMA busy_timeout = {int(SAFE_BUSY_S * 1000)}")


def _append(rows: Rows, connection: sqlite3.Connection) -> None:
    many = connection.executemany
    if rows.undo_after is not None:
        connection.execute("DELETE FROM event WHERE position > ?", (rows.undo_after,))
    for gateway_id, name, at in rows.forgotten:
        for table in ("fact", "ended", "ack", "task"):
            sql = f"DELETE FROM {table} WHERE gateway_id = ?"  # noqa: S608 - our own tables
            connection.execute(sql, (gateway_id,))
        audit.write(connection, Deed(at, OWNER, "gateway.forgotten", gateway_id, {"name": name}))
    _insert_events(connection, rows.events)
    gone = [(kind, name) for kind, name, position in rows.live if not position]
    many("INSERT OR REPLACE INTO live VALUES (?, ?, ?)", [row for row in rows.live if row[2]])
    many("DELETE FROM live WHERE kind = ? AND id = ?", gone)
    many("DELETE FROM fact WHERE gateway_id = ? AND tag = ?", rows.release)
    many("INSERT OR REPLACE INTO ended (gateway_id, turn_id) VALUES (?, ?)", rows.ended)
    many("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows.facts)
    for row, which in rows.merges:  # the first becomes what all were
        connection.execute(_MERGE, (*row, *which))
        connection.execute(_MERGED, (*which, row[3]))
    many("INSERT OR REPLACE INTO ack VALUES (?, ?, ?, ?)", rows.acks)
    many(_TASK_SEEN, rows.tasks)
    ledger.write(connection, rows.decisions)
    handedindex.write(connection, rows.told)
    if rows.abandoned:
        raise AbandonedError


def _insert_events(connection: sqlite3.Connection, events: list[EventRow]) -> None:
    """Many rows a statement: between two statements the thread gives up the GIL, and
    beside a busy loop it gets it back only after the switch interval."""
    at, count = 0, ROWS_AT_ONCE
    while at < len(events):
        while count > len(events) - at:
            count //= 2  # powers of two, so that few different statements are prepared
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * count)
        parameters = list(chain.from_iterable(events[at : at + count]))
        connection.execute(f"INSERT INTO event VALUES {values}", parameters)  # noqa: S608
        at += count


_AMONG = "gateway_id = ? AND tag = ? AND boot = ? AND n BETWEEN ? AND ?"
_MERGE = f"""UPDATE fact SET n = ?, t = ?, at = ?, kind = ?, body = ?
    WHERE id = (SELECT min(id) FROM fact WHERE {_AMONG})"""  # noqa: S608 - our own columns
_MERGED = f"DELETE FROM fact WHERE {_AMONG} AND kind != ?"  # noqa: S608
_EVENTS = "SELECT position, ts, type, task_id, run_id, lasting, payload FROM event"
_TASK_SEEN = """INSERT INTO task VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7, ?7, 0, coalesce(?8, ''))
    ON CONFLICT (task_id) DO UPDATE SET session_id = ?4, surface = ?5,
    session_key = coalesce(?3, session_key), model = coalesce(?6, model),
    updated_at = max(updated_at, ?7), preview = coalesce(?8, preview)"""
