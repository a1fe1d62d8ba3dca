"""Figures of a task, from Hermes' own counts in its sessions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loomid import lineage
from loomid.lmp.usage import figures
from loomid.text import valid_text

if TYPE_CHECKING:
    import sqlite3

    from loomid.hermesdb import Reader
    from loomid.lineage import Session

_COUNTS = (
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "api_call_count", "tool_call_count"),
    *("estimated_cost_usd", "actual_cost_usd"),
)


def of_sessions(reader: Reader, sessions: list[Session], session_key: str | None) -> dict[str, Any]:
    """What `task.stats.result` tells of these sessions (the newest first); unknown is left out."""
    if not sessions:
        return {}
    ids = json.dumps([session.id for session in sessions])
    names = reader.columns("sessions", ("model", "cost_status", *_COUNTS))
    rows = reader.rows(
        f"""SELECT {names} FROM sessions WHERE id IN (SELECT value FROM json_each(?))
        ORDER BY started_at DESC""",  # noqa: S608 - our own names
        ids,
    )
    counts = [_said(reader, session) for session in sessions]
    said = [count for count in counts if count["messages"]]
    sums = {name: _sum(rows, name) for name in _COUNTS}
    told: dict[str, Any] = {
        "sessions": len(sessions),
        "messages": sum(count["messages"] for count in said),
        "started_at": sessions[-1].started_at,
        **figures({name: value for name, value in sums.items() if "cost" not in name}),
        "calls": sums["api_call_count"],
        "tool_calls": sums["tool_call_count"],
        "model": next((valid_text(row["model"]) for row in rows if row["model"]), None),
        "context_tokens": _context(reader, session_key, sessions[0].id),
        **_cost(rows),
    }
    if said:
        last = max(count["last"] for count in said)
        first = min(count["first"] for count in said)
        told |= {"active_at": last, "duration": last - first}
    return {name: value for name, value in told.items() if value is not None}


def _said(reader: Reader, session: Session) -> sqlite3.Row:
    """Of the messages that history tells of a session."""
    (row,) = reader.rows(
        f"""SELECT count(*) AS messages, min(timestamp) AS first, max(timestamp) AS last
        FROM messages WHERE session_id = ?
        AND {lineage.told(reader, session)}""",  # noqa: S608 - our own names
        session.id,
    )
    return row


def _sum(rows: list[sqlite3.Row], name: str) -> Any:  # noqa: ANN401 - a number
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def _cost(rows: list[sqlite3.Row]) -> dict[str, Any]:
    """Hermes says of each session whether it knows its cost, or has a guess."""
    sure = [row["actual_cost_usd"] for row in rows]
    if all(cost is not None for cost in sure):
        return {"cost_usd": sum(sure), "cost": "actual"}
    guesses = [
        row["actual_cost_usd"] if row["actual_cost_usd"] is not None else row["estimated_cost_usd"]
        for row in rows
        if row["cost_status"] != "unknown"
    ]
    if len(guesses) < len(rows) or None in guesses:
        return {}
    return {"cost_usd": sum(guesses), "cost": "estimated"}


def _context(reader: Reader, session_key: str | None, session_id: str) -> int | None:
    """The size of the last prompt, which the gateway keeps with the chat's present session."""
    if not session_key or "gateway_routing" not in reader.tables():
        return None
    for row in reader.rows(
        "SELECT entry_json FROM gateway_routing WHERE session_key = ?", session_key
    ):
        try:
            entry = json.loads(row["entry_json"])
        except (TypeError, ValueError):
            continue
        if isinstance(entry, dict) and entry.get("session_id") == session_id:
            tokens = entry.get("last_prompt_tokens")
            if isinstance(tokens, int) and tokens > 0:
                return tokens
    return None
