"""Who decided what, when, and from which device: the SQL of the audit (docs/audit.md).

It holds ids and choices, never a message or a command. A row is written in the transaction
of what it tells; where there is none, it has one of its own (`Audit`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomid.lmp import controls
from loomid.text import short

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from loomid.durable import Durable
    from loomid.lmp.decisions import Claim, Entry

LOOMID = "loomid"
"""Stands for a device where loomid itself acts."""
KEPT = 1_000
"""Rows of one kind of one device, say: so nobody can push out what others did, nor hide an
answer behind a flood of messages."""
SHOWN = 10_000
WORD_CHARS = 200

_SAID = {
    "session.send": ("mode", "command"),
    "model.set": ("model", "provider", "default"),
    "mode.set": ("mode", "value"),
}
"""Request type → the fields that tell what was decided; never one with a text in it."""
_MAKE_ROOM = """DELETE FROM audit WHERE who = ?1 AND action = ?2 AND id <= (SELECT id FROM audit
    WHERE who = ?1 AND action = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)"""
_ABOUT = ("run_id", "task_id")


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that was done. `who` is a device id, `loomictl` for the owner, LOOMID, or how
    it was decided elsewhere (`decided_by`); `detail` is JSON with names and choices, and never
    a message."""

    at: float
    who: str
    action: str
    about: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    outcome: str | None = None
    """None: not known (yet)."""
    command_id: str | None = None


def of_request(
    at: float,
    who: str,
    type_: str,
    asked: Any,  # noqa: ANN401 - the payload of that type
    gateway_id: str,
    command_id: str,
) -> Deed:
    """What a request asks of a gateway, without its texts."""
    about = next((found for name in _ABOUT if (found := getattr(asked, name, None))), gateway_id)
    detail = {name: said for name in _SAID.get(type_, ()) if (said := getattr(asked, name))}
    if "command" in detail:
        detail["command"] = controls.name_of(asked.text) or True
    detail = {k: short(v, WORD_CHARS) if isinstance(v, str) else v for k, v in detail.items()}
    return Deed(at, who, type_, about, detail, command_id=command_id)


def write(line: sqlite3.Connection, deed: Deed) -> None:
    """Add a row, with the name that the device has now: it may be revoked later."""
    line.execute(_MAKE_ROOM, (deed.who, deed.action, KEPT - 1))
    line.execute(
        """INSERT INTO audit (at, who, name, action, about, detail, outcome, command_id)
        VALUES (?1, ?2, (SELECT name FROM device WHERE device_id = ?2), ?3, ?4, ?5, ?6, ?7)""",
        (
            *(deed.at, deed.who, deed.action, deed.about, json.dumps(deed.detail)),
            *(deed.outcome, deed.command_id),
        ),
    )


def ended(line: sqlite3.Connection, command_id: str, outcome: str) -> None:
    """Note what became of a command."""
    line.execute("UPDATE audit SET outcome = ? WHERE command_id = ?", (outcome, command_id))


def answered(line: sqlite3.Connection, device_id: str, request_id: str, outcome: str) -> None:
    """Note what the answer to a request is, as long as that is remembered."""
    line.execute(
        """UPDATE audit SET outcome = ? WHERE outcome IS NULL AND command_id = (
        SELECT command_id FROM request WHERE device_id = ? AND request_id = ?)""",
        (outcome, device_id, request_id),
    )


def claimed(line: sqlite3.Connection, claim: Claim) -> None:
    """Note the answer that an approval or a question got."""
    detail = {"choice": claim.answer} if claim.kind == "approval" else {}
    action = {"approval": "approval.resolve", "question": "question.answer"}[claim.kind]
    if claim.cancels:
        action = "question.cancel"
    who = claim.device_id
    write(line, Deed(claim.at, who, action, claim.id, detail, command_id=claim.command_id))


def decided(line: sqlite3.Connection, entry: Entry, at: float) -> None:
    """Note the end of what was asked: of the answer that stood, and of who was faster."""
    claim = entry.claim
    stands = claim is not None and (entry.state == "lost" or entry.by == claim.device_id)
    if claim is not None:
        ended(line, claim.command_id, entry.state if stands else "overtaken")
    if not stands:
        approval = entry.kind == "approval"
        detail = {"choice": entry.choice} if approval else {}
        action = "approval.resolve" if approval else "question.answer"
        who = entry.decided_by or LOOMID
        write(line, Deed(at, who, action, entry.id, detail, entry.state))


def forget(line: sqlite3.Connection, before: float) -> None:
    """Delete what is older than a time."""
    line.execute("DELETE FROM audit WHERE at < ?", (before,))


class Audit:
    """What is asked, and noted in transactions of its own. All may raise StorageFailing."""

    def __init__(self, safe: Durable) -> None:
        self._safe = safe

    async def note(self, deed: Deed) -> None:
        """Add a row."""
        await self._safe.write(lambda line: write(line, deed))

    async def latest(self, device_id: str | None, since: float) -> list[dict[str, Any]]:
        """The last SHOWN since a time, newest first; of one device: what it did, and what was
        done to it."""

        def work(line: sqlite3.Connection) -> list[dict[str, Any]]:
            rows = line.execute(
                """SELECT at, who, name, action, about, detail, outcome FROM audit
                WHERE at >= ?1 AND (?2 IS NULL OR ?2 IN (who, about))
                ORDER BY id DESC LIMIT ?3""",
                (since, device_id, SHOWN),
            )
            names = [column[0] for column in rows.description]
            found = [dict(zip(names, row, strict=True)) for row in rows]
            return [one | {"detail": json.loads(one["detail"])} for one in found]

        return await self._safe.run(work)
