"""Devices, pairing tokens, requests and tasks: one function, one transaction.

What is written here is on disk, power loss included, when the call returns. Every call
may raise StorageFailing; nothing has changed then.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from loomid import audit
from loomid.audit import Audit, Deed
from loomid.durable import Durable
from loomid.lmp import scopes

# Exported again: whoever asks the vault need not know which file says what it answers.
from loomid.records import (
    Device as Device,
    Intent as Intent,
    Request as Request,
    TaskRow as TaskRow,
    Token as Token,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from loomid.store import Store

T = TypeVar("T")

REQUESTS_KEPT = 256
ADD_DEVICE = "INSERT INTO device VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REQUESTS = """SELECT device_id, request_id, fingerprint, type, state, answer, command_id,
    gateway_id, boot, at FROM request"""
_OF_DEVICE = "WHERE device_id = ? AND request_id = ?"
CLOCK_SLACK_S = 60.0
"""A clock may be corrected by so much without a fresh token being refused."""
_TASK = """task_id, gateway_id, session_key, session_id, title, surface, model, created_at,
    updated_at, message_count, preview"""
_UPSERT_TASK = """INSERT INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (task_id) DO UPDATE SET gateway_id = excluded.gateway_id,
    session_key = coalesce(excluded.session_key, session_key),
    session_id = excluded.session_id, title = excluded.title, surface = excluded.surface,
    model = coalesce(excluded.model, model), created_at = excluded.created_at,
    updated_at = max(excluded.updated_at, updated_at),
    message_count = excluded.message_count, preview = excluded.preview"""


class Vault:
    """The durable half of the store."""

    def __init__(self, store: Store) -> None:
        self._line = Durable(store.safe, store.health)
        self.audit = Audit(self._line)

    async def _rows(self, sql: str, *parameters: Any) -> list[Any]:  # noqa: ANN401 - SQL values
        return await self._line.run(lambda line: line.execute(sql, parameters).fetchall())

    async def _change(self, sql: str, *parameters: Any) -> bool:  # noqa: ANN401 - SQL values
        return await self._line.write(lambda line: line.execute(sql, parameters).rowcount) > 0

    async def secret(self) -> bytes:
        """The server's 32-byte id key, made once."""

        def work(line: sqlite3.Connection) -> bytes:
            fresh = secrets.token_bytes(32)
            line.execute("INSERT OR IGNORE INTO meta VALUES ('secret', ?)", (fresh,))
            row = line.execute("SELECT value FROM meta WHERE name = 'secret'").fetchone()
            return bytes(row[0])

        return await self._line.write(work)

    # ── devices and tokens ──────────────────────────────────────────────────

    async def devices(self) -> list[Device]:
        """Every paired device, oldest first."""
        rows = await self._rows(
            """SELECT device_id, name, credential_hash, base, created_at, confirmed, last_seen,
            model, os, app_version, scopes FROM device ORDER BY created_at, device_id"""
        )
        return [
            replace(Device(*row), confirmed=bool(row[5]), scopes=scopes.known(row[10].split(",")))
            for row in rows
        ]

    async def add_token(self, token_hash: bytes, token: Token, created_at: float) -> None:
        """Remember a pairing token by its hash."""
        await self._change(
            """INSERT INTO token (token_hash, expires_at, name, scopes, created_at)
            VALUES (?, ?, ?, ?, ?)""",
            *(token_hash, token.expires, token.name, ",".join(token.scopes), created_at),
        )

    async def remove_token(self, token_hash: bytes) -> bool:
        """Forget a pairing token; False when it was used, or is not known."""
        sql = "DELETE FROM token WHERE token_hash = ? AND used_at IS NULL"
        return await self._change(sql, token_hash)

    async def redeem(
        self, token_hash: bytes, device: Device, now: float
    ) -> Literal["ok", "unknown", "used", "expired"]:
        """Use up a token and add the device in one step; a token has one winner (LMP §3).

        One from the future has expired: else a clock that is set back would keep it alive.
        """

        def work(line: sqlite3.Connection) -> Literal["ok", "unknown", "used", "expired"]:
            row = line.execute(
                "SELECT used_at, expires_at FROM token WHERE token_hash = ?", (token_hash,)
            ).fetchone()
            if row is None:
                return "unknown"
            used = line.execute(
                """UPDATE token SET used_at = ?, device_id = ?
                WHERE token_hash = ? AND used_at IS NULL AND expires_at > ? AND created_at <= ?""",
                (now, device.device_id, token_hash, now, now + CLOCK_SLACK_S),
            )
            if not used.rowcount:
                return "expired" if row[0] is None else "used"
            line.execute(ADD_DEVICE, device_row(device))
            detail = {"scopes": device.scopes}
            audit.write(line, Deed(now, device.device_id, "device.paired", None, detail))
            return "ok"

        return await self._line.write(work)

    async def tokens(self) -> list[tuple[bytes, Token, bool, str | None]]:
        """Every pairing token: hash, what it gives, whether it was used, by whom."""
        rows = await self._rows(
            """SELECT token_hash, expires_at, name, scopes, used_at IS NOT NULL, device_id
            FROM token"""
        )
        return [
            (key, Token(expires, name, scopes.known(held.split(","))), bool(used), device_id)
            for key, expires, name, held, used, device_id in rows
        ]

    async def prune_tokens(self, before: float) -> None:
        """Delete the tokens that ran out before a time."""
        await self._change("DELETE FROM token WHERE expires_at < ?", before)

    async def remove_device(self, device_id: str, by: str, at: float) -> bool:
        """Revoke a device and forget its requests; whether there was one.

        Not those of claims on their way: without them nobody would settle these any more.
        """

        def work(line: sqlite3.Connection) -> bool:
            line.execute(
                """DELETE FROM request WHERE device_id = ? AND (state = 'done' OR NOT EXISTS (
                SELECT 1 FROM decision WHERE decision.device_id = request.device_id
                AND decision.request_id = request.request_id))""",
                (device_id,),
            )
            row = line.execute(
                "DELETE FROM device WHERE device_id = ? RETURNING name", (device_id,)
            ).fetchone()
            if row is not None:
                audit.write(line, Deed(at, by, "device.revoked", device_id, {"name": row[0]}))
            return row is not None

        return await self._line.write(work)

    async def change_device(
        self, device_id: str, changes: Mapping[str, Any], deeds: Sequence[Deed]
    ) -> bool:
        """Change some of `name`, `scopes`, `model`, `os` and `app_version`; whether there is
        such a device."""
        stored = {
            field: ",".join(value) if field == "scopes" else value
            for field, value in changes.items()
        }
        sets = ", ".join(f"{field} = :{field}" for field in stored)
        sql = f"UPDATE device SET {sets} WHERE device_id = :device_id"  # noqa: S608 - our columns

        def work(line: sqlite3.Connection) -> bool:
            if not line.execute(sql, {**stored, "device_id": device_id}).rowcount:
                return False
            for deed in deeds:
                audit.write(line, deed)
            return True

        return await self._line.write(work)

    async def set_base(self, device_id: str, base: int) -> None:
        """Move the position from which a device's seq is counted."""
        await self._change("UPDATE device SET base = ? WHERE device_id = ?", base, device_id)

    async def confirm_device(self, device_id: str) -> None:
        """Note that a device came back with its credential."""
        await self._change("UPDATE device SET confirmed = 1 WHERE device_id = ?", device_id)

    async def seen(self, device_id: str, at: float, model: str, os: str, app_version: str) -> None:
        """Note when a device was here and what it said of itself."""
        await self._change(
            """UPDATE device SET last_seen = ?, model = ?, os = ?, app_version = ?
            WHERE device_id = ?""",
            *(at, model, os, app_version, device_id),
        )

    # ── requests ────────────────────────────────────────────────────────────

    async def begin(
        self, device_id: str, request_id: str, fingerprint: bytes, intent: Intent
    ) -> Request | None:
        """Store a request as open; None, or the request that already has this id.

        The last 256 of a device are remembered; an open one is never dropped.
        """

        def work(line: sqlite3.Connection) -> Request | None:
            new = line.execute(
                """INSERT INTO request (device_id, request_id, fingerprint, type, state,
                command_id, gateway_id, boot, at) VALUES (?, ?, ?, ?, 'open', ?, ?, ?, ?)
                ON CONFLICT DO NOTHING""",
                (device_id, request_id, fingerprint, *_intent(intent)),
            )
            if not new.rowcount:
                known = line.execute(f"{_REQUESTS} {_OF_DEVICE}", (device_id, request_id))
                return Request(*known.fetchone())
            if intent.deed is not None:
                audit.write(line, intent.deed)
            line.execute(
                """DELETE FROM request WHERE device_id = ?1 AND state = 'done' AND id <= (
                SELECT id FROM request WHERE device_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)""",
                (device_id, REQUESTS_KEPT),
            )
            return None

        return await self._line.write(work)

    async def request(self, device_id: str, request_id: str) -> Request | None:
        """The request that has this id."""
        rows = await self._rows(f"{_REQUESTS} {_OF_DEVICE}", device_id, request_id)
        return Request(*rows[0]) if rows else None

    async def finish(
        self, device_id: str, request_id: str, answer: bytes, outcome: str | None = None
    ) -> None:
        """Store the answer that every repetition of the request gets; `outcome` is for the
        audit, unless that is told there already or will be."""

        def work(line: sqlite3.Connection) -> None:
            line.execute(
                """UPDATE request SET state = 'done', answer = ?
                WHERE device_id = ? AND request_id = ?""",
                (answer, device_id, request_id),
            )
            if outcome is not None:
                audit.answered(line, device_id, request_id, outcome)

        await self._line.write(work)

    async def forget(self, device_id: str, request_id: str, outcome: str) -> None:
        """Drop a request that provably did not run, so that a retry can."""

        def work(line: sqlite3.Connection) -> None:
            audit.answered(line, device_id, request_id, outcome)
            line.execute(
                "DELETE FROM request WHERE device_id = ? AND request_id = ?",
                (device_id, request_id),
            )

        await self._line.write(work)

    async def open_requests(self) -> list[Request]:
        """The requests without an answer, oldest first."""
        rows = await self._rows(f"{_REQUESTS} WHERE state = 'open' ORDER BY id")
        return [Request(*row) for row in rows]

    # ── tasks ───────────────────────────────────────────────────────────────

    async def tasks(
        self,
        limit: int,
        before: tuple[float, str] | None = None,
        *,
        only: Collection[str] | None = None,
        exclude: Collection[str] = (),
        fresh: Sequence[TaskRow] = (),
    ) -> list[TaskRow]:
        """Tasks by (updated_at, task_id), newest first, beyond the `before` of a last page.

        `only` and `exclude` are task ids: the status of a task is not known here. `fresh`
        is stored in the same step: what is older than the retention is not kept long.
        """
        sql = f"""SELECT {_TASK} FROM task WHERE (updated_at, task_id) < (?, ?)
            AND (?3 IS NULL OR task_id IN (SELECT value FROM json_each(?3)))
            AND task_id NOT IN (SELECT value FROM json_each(?4))
            ORDER BY updated_at DESC, task_id DESC LIMIT ?5"""  # noqa: S608 - our own columns
        ids = (None if only is None else json.dumps(list(only)), json.dumps(list(exclude)))

        def work(line: sqlite3.Connection) -> list[TaskRow]:
            if fresh:
                line.executemany(_UPSERT_TASK, [astuple(task) for task in fresh])
            rows = line.execute(sql, (*(before or (9e99, "")), *ids, limit))
            return [TaskRow(*row) for row in rows]

        return await (self._line.write(work) if fresh else self._line.run(work))

    async def task(self, task_id: str) -> TaskRow | None:
        """One task."""
        rows = await self._rows(
            f"SELECT {_TASK} FROM task WHERE task_id = ?",  # noqa: S608 - our own columns
            task_id,
        )
        return TaskRow(*rows[0]) if rows else None

    async def upsert_tasks(self, tasks: Sequence[TaskRow]) -> None:
        """Store what Hermes says of its sessions; a newer `updated_at` of ours stays."""
        rows = [astuple(task) for task in tasks]
        await self._line.write(lambda line: line.executemany(_UPSERT_TASK, rows))

    # ── what phones were shown, as long as it is kept ───────────────────────

    async def task_of_run(self, run_id: str) -> str | None:
        """The task of a run, live or over."""
        rows = await self._rows("SELECT task_id FROM event WHERE run_id = ? LIMIT 1", run_id)
        return rows[0][0] if rows else None


def device_row(device: Device) -> tuple[Any, ...]:
    """What ADD_DEVICE takes."""
    return (*astuple(device)[:-1], ",".join(device.scopes))


def _intent(intent: Intent) -> tuple[Any, ...]:
    return (intent.type, intent.command_id, intent.gateway_id, intent.boot, intent.at)
