"""Rows of Hermes' session list become conversations: one a session key, or a root session.

A chat goes through several sessions: /new, /resume and compression give its key another
one. A session without a key (of the CLI, of a job) is named by the first of its chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable


Time = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
"""Epoch seconds that a calendar has."""


class Session(msgspec.Struct):
    """One row of op `sessions`, as Hermes' SessionDB.list_sessions_rich names things."""

    id: str
    source: str
    started_at: Time
    root: str | None = msgspec.field(name="_lineage_root_id", default=None)
    """The first session of a chain of compressions, when `id` is the last one."""
    session_key: str | None = None
    title: str | None = None
    model: str | None = None
    last_active: Time | None = None
    message_count: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None = None
    preview: str | None = None


@dataclass(slots=True)
class Conversation:
    """What phones see as one task; `name` is what its task id is made from."""

    name: str
    session_key: str | None
    session_id: str
    platform: str
    title: str
    model: str | None
    created_at: float
    updated_at: float
    message_count: int
    preview: str


def merge(rows: Iterable[Session]) -> list[Conversation]:
    """The conversations in these rows (latest first, a row perhaps twice), latest first."""
    found: dict[str, Conversation] = {}
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            continue
        seen.add(row.id)
        name = row.session_key or row.root or row.id
        known = found.get(name)
        if known is None:
            found[name] = _conversation(name, row)
        else:
            known.title = known.title or row.title or ""
            known.created_at = min(known.created_at, row.started_at)
            known.message_count += row.message_count or 0
    return sorted(found.values(), key=lambda each: -each.updated_at)


def _conversation(name: str, row: Session) -> Conversation:
    return Conversation(
        name,
        row.session_key,
        row.id,
        row.source,
        row.title or "",
        row.model,
        row.started_at,
        row.started_at if row.last_active is None else row.last_active,
        row.message_count or 0,
        row.preview or "",
    )
