"""Batches as rows of the database: what the log makes of events, and the store inserts."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from loomid.lmp import envelope, facts, frames
from loomid.lmp.frames import Event
from loomid.lmp.projection import DECISIONS, mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomid.batch import Batch
    from loomid.lmp.folding import FileTold

NOT_A_TURN = "~"
"""How the tags of facts begin that are not turn ids."""

Ready = tuple[Event, str, bytes]
"""An event, its type, and its payload as JSON."""

EventRow = tuple[int, float, str, str | None, str | None, bool, bytes]
"""position, ts, type, task_id, run_id, lasting, payload"""


@dataclass(slots=True)
class Rows:
    """One batch as rows, stored by `append` in one transaction.

    `undo_after`: an earlier attempt may have left events beyond this position.
    `abandoned`: set by the loop to have the transaction rolled back.
    """

    events: list[EventRow] = field(default_factory=list)
    live: list[tuple[str, str, int]] = field(default_factory=list)
    """kind, id, position; position 0: no longer."""
    facts: list[tuple[int, str, str, int, float, float, str, bytes, str]] = field(
        default_factory=list
    )
    """id, gateway_id, boot, n, t, at, kind, body, tag"""
    release: list[tuple[str, str]] = field(default_factory=list)
    ended: list[tuple[str, str]] = field(default_factory=list)
    """Those of the released (gateway, tag) to be remembered as ended turns."""
    acks: list[tuple[str, str, int, float]] = field(default_factory=list)
    tasks: list[tuple[Any, ...]] = field(default_factory=list)
    """task_id, gateway_id, session_key, session_id, surface, model, at, prompt"""
    told: list[FileTold] = field(default_factory=list)
    decisions: list[Event] = field(default_factory=list)
    """Those of the events that ask something or end it: the ledger follows them."""
    merges: list[tuple[tuple[int, float, float, str, bytes], tuple[str, str, str, int, int]]] = (
        field(default_factory=list)
    )
    """n, t, at, kind, body of what replaces the facts of gateway_id, tag, boot, from n, to n"""
    forgotten: list[tuple[str, str, float]] = field(default_factory=list)
    """gateway_id, name, at"""
    undo_after: int | None = None
    abandoned: bool = False

    @classmethod
    def of(cls, batch: Batch, first_fact: int, now: float) -> Rows:
        """All of a batch but its events, which have no positions yet."""
        return cls(
            facts=[
                (number, a.gateway_id, a.boot, a.n, a.t, a.at, a.kind, facts.dump(a.fact), tag)
                for number, (a, tag) in enumerate(batch.facts, first_fact)
            ],
            release=batch.release,
            ended=[pair for pair in batch.release if not pair[1].startswith(NOT_A_TURN)],
            acks=[(gateway_id, boot, n, now) for (gateway_id, boot), n in batch.acks.items()],
            tasks=[astuple(task) for task in batch.tasks],
            told=batch.told,
            forgotten=[(one.gateway_id, one.fact.name, one.at) for one in batch.forgotten],
            merges=[
                (
                    (a.n, a.t, a.at, a.kind, facts.dump(a.fact)),
                    (a.gateway_id, m.tag, a.boot, m.first, a.n),
                )
                for m in batch.merges
                for a in (m.arrival,)
            ],
        )

    def numbered(self, ready: Sequence[Ready], first: int, undo_after: int | None) -> Rows:
        """The same with the events, whose positions begin at `first`."""
        lasting = frames.LASTING
        events: list[EventRow] = [
            (position, event.ts, name, event.task_id, event.run_id, name in lasting, payload)
            for position, (event, name, payload) in enumerate(ready, first)
        ]
        live: dict[tuple[str, str], int] = {}
        decisions: list[Event] = []
        for position, (event, _, _) in enumerate(ready, first):
            change = mark(event)
            if change is not None:
                live[change.kind, change.id] = position if change.alive else 0
                if change.kind in DECISIONS:
                    decisions.append(event)
        marks = [(kind, name, position) for (kind, name), position in live.items()]
        return replace(self, events=events, live=marks, decisions=decisions, undo_after=undo_after)

    @property
    def size(self) -> int:
        """Bytes that storing it writes, about; facts are overwritten once they are not needed."""
        size = sum(len(row[-1]) for row in self.events)
        size += 2 * sum(len(row[7]) for row in self.facts)
        return size + 2 * sum(len(row[4]) for row, _ in self.merges)


def event_of(row: EventRow) -> Event:
    """The event of a row. Raises ValueError or KeyError when it cannot be read."""
    _, ts, type_, task_id, run_id, _, body = row
    payload = msgspec.json.decode(body, type=frames.EVENTS[type_])
    more = None if envelope.encode_payload(payload) == body else body
    return Event(payload, ts, task_id, run_id, stored=more)
