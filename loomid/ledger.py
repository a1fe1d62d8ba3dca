"""The ledger on disk: one row an approval or question, from its asking to its end.

What may change into what is decided in `lmp/decisions.py`. A row is made and ended in the
transaction of the events that tell it; a claim is on disk, power loss included, when the
call returns. That a device has seen the question is noted later, and waits for no disk.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from typing import TYPE_CHECKING

from loomid import audit
from loomid.errors import Unauthorized
from loomid.lmp import decisions
from loomid.lmp.decisions import Claim, Entry
from loomid.lmp.frames import (
    ApprovalRequired,
    ApprovalResolved,
    QuestionRequired,
    QuestionResolved,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from loomid.database import Line
    from loomid.durable import Durable
    from loomid.lmp.decisions import Kind
    from loomid.lmp.frames import Event

ENDED_KEPT = 10_000

_NAMES = [field.name for field in fields(Entry)]
_COLUMNS = ", ".join(_NAMES)
_PLACES = ", ".join("?" for _ in _NAMES)
_PUT = f"INSERT OR REPLACE INTO decision ({_COLUMNS}) VALUES ({_PLACES})"  # noqa: S608 - ours
_GET = f"SELECT {_COLUMNS} FROM decision"  # noqa: S608 - our own columns
_OPEN = "SELECT 1 FROM request WHERE device_id = ? AND request_id = ? AND state = 'open'"
_FORGET = """DELETE FROM decision WHERE (kind, id) NOT IN (SELECT kind, id FROM live) AND (
    coalesce(ended_at, claimed_at, asked_at) < ?1 OR id IN (
    SELECT id FROM decision WHERE ended_at IS NOT NULL
    ORDER BY ended_at DESC LIMIT -1 OFFSET ?2))"""


def write(line: sqlite3.Connection, events: Iterable[Event]) -> None:
    """Open and end the entries of a batch's events, inside of its transaction.

    Another attempt at the same batch changes nothing.
    """
    for event in events:
        match event.payload:
            case ApprovalRequired() | QuestionRequired() as asked:
                if _get(line, decisions.name(asked)) is None:
                    _put(line, Entry.opened(asked, event.ts))
            case ApprovalResolved() | QuestionResolved() as how:
                entry = _get(line, decisions.name(how))
                if entry is not None and not entry.over:
                    _put(line, entry := entry.ended(how, event.ts))
                    audit.decided(line, entry, event.ts)
            case _:
                pass


def forget(line: sqlite3.Connection, before: float) -> None:
    """Delete what ended before a time, and all but the last ENDED_KEPT."""
    line.execute(_FORGET, (before, ENDED_KEPT))
    line.execute("DELETE FROM approval")  # what an older loomid kept; see MIGRATIONS


def _get(line: sqlite3.Connection, name: str) -> Entry | None:
    row = line.execute(f"{_GET} WHERE id = ?", (name,)).fetchone()
    return None if row is None else Entry(*row)


def _put(line: sqlite3.Connection, entry: Entry) -> None:
    line.execute(_PUT, astuple(entry))


class Ledger:
    """What is asked and changed outside of the log's batches. All but `shown` may raise
    StorageFailing.

    `safe` commits survive a power loss; `quick` is the log's own connection.
    """

    def __init__(self, safe: Durable, quick: Line) -> None:
        self._safe = safe
        self._quick = quick

    async def get(self, name: str) -> Entry | None:
        """One entry."""
        return await self._safe.run(lambda line: _get(line, name))

    async def of_request(self, device_id: str, request_id: str) -> Entry | None:
        """The entry whose claim a request made."""

        def work(line: sqlite3.Connection) -> Entry | None:
            row = line.execute(
                f"{_GET} WHERE device_id = ? AND request_id = ?", (device_id, request_id)
            ).fetchone()
            return None if row is None else Entry(*row)

        return await self._safe.run(work)

    async def latest(self, limit: int, kind: Kind = "approval") -> list[Entry]:
        """Those without an end, oldest first, then the last `limit` that ended, newest first."""

        def work(line: sqlite3.Connection) -> list[Entry]:
            of = f"{_GET} WHERE kind = ? AND ended_at IS"
            waiting = line.execute(f"{of} NULL ORDER BY asked_at", (kind,))
            ended = line.execute(f"{of} NOT NULL ORDER BY ended_at DESC LIMIT ?", (kind, limit))
            return [Entry(*row) for rows in (waiting, ended) for row in rows]

        return await self._safe.run(work)

    async def claim(self, claim: Claim) -> None:
        """Let an answer win. Raises AlreadyResolved when it may not, UnknownApproval or
        UnknownQuestion, and Unauthorized when its request is gone: the device was revoked
        since."""

        def work(line: sqlite3.Connection) -> None:
            if line.execute(_OPEN, (claim.device_id, claim.request_id)).fetchone() is None:
                raise Unauthorized
            entry = _get(line, claim.id)
            if entry is None:
                raise decisions.unknown(claim.kind)
            if not entry.waits:
                raise entry.refusal()
            _put(line, entry.claimed(claim))
            audit.claimed(line, claim)

        await self._safe.write(work)

    async def give_back(self, claim: Claim) -> bool:
        """Give up a claim, and forget its request if that is still open; False: too late, and
        neither is changed.

        In one step: a claim without its open request would stand for ever.
        """

        def work(line: sqlite3.Connection) -> bool:
            entry = _get(line, claim.id)
            if entry is None or entry.over or entry.command_id != claim.command_id:
                return False
            line.execute(
                "DELETE FROM request WHERE command_id = ? AND state = 'open'", (claim.command_id,)
            )
            _put(line, entry.given_back())
            audit.ended(line, claim.command_id, "returned")
            return True

        return await self._safe.write(work)

    async def shown(self, seen: Mapping[str, str], at: float) -> None:
        """Note which device was the first to have each of them (id → device id).

        Raises sqlite3.Error: nobody need be told, and it can be tried again.
        """

        def work(line: sqlite3.Connection) -> None:
            for name, device_id in seen.items():
                entry = _get(line, name)
                if entry is not None and entry.state == "pending":
                    _put(line, entry.shown(device_id, at))

        await self._quick.write(work)
