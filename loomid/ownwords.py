"""Messages that came with files, where Hermes' list and index have what was written around them.

Each is looked for as history does it (lmp/recalled.py): told are those that are known again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from loomid.hermesdb import SUMMARY, TextLimits
from loomid.lmp.recalled import Own, Recall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from loomid.hermesdb import Reader
    from loomid.lmp.query import Query
    from loomid.lmp.recalled import Sent
    from loomid.search import Found

_LIMITS = TextLimits(200_000, 0)
_TITLED = 1_000
"""Characters at the beginning of a message, of which Hermes makes titles."""


def openings(
    reader: Reader, tasks: Mapping[str, str], sent: Mapping[str, Sequence[Sent]]
) -> dict[str, Own]:
    """The messages that these sessions (session → task) begin with. Raises sqlite3.Error."""
    firsts = {_first(reader, session): session for session in tasks}
    known = _messages(reader, {first: tasks[session] for first, session in firsts.items()}, sent)
    # Of the stored text titles are made alone: there may be whole documents in it.
    return {firsts[first]: replace(own, stored=own.stored[:_TITLED]) for first, own in known}


def retold(
    reader: Reader,
    hits: Sequence[tuple[Found, str]],
    sent: Mapping[str, Sequence[Sent]],
    wanted: Query,
) -> dict[int, Found]:
    """Hits (each with its task), by their messages: those that are told otherwise. Raises
    sqlite3.Error."""
    begun = openings(reader, {found.session_id: task for found, task in hits}, sent)
    own = dict(_messages(reader, {found.id: task for found, task in hits}, sent))
    told = {}
    for found, _ in hits:
        if words := begun.get(found.session_id):
            told[found.id] = replace(found, title=words.title(found.title))
        if words := own.get(found.id):
            snippet, marks = words.snippet(wanted.terms)
            told[found.id] = replace(told.get(found.id, found), snippet=snippet, highlights=marks)
    return told


def _messages(
    reader: Reader, tasks: Mapping[int, str], sent: Mapping[str, Sequence[Sent]]
) -> Iterator[tuple[int, Own]]:
    """Of these messages (message → task) those that are known."""
    known = [message for message, task in tasks.items() if task in sent]
    recalls = {
        task: Recall(sent[task], _LIMITS.text, any_copy=True)
        for task in {tasks[message] for message in known}
    }
    for row in reader.messages(known, _LIMITS):
        told = recalls[tasks[row.id]](row)
        if told is not row:
            yield row.id, Own(row.content.text, told.content)


def _first(reader: Reader, session: str) -> int:
    """The message that Hermes' list takes its preview from; 0: there is none."""
    hidden = f"coalesce({reader.column('messages', 'display_kind')}, '') = 'hidden'"
    rows = reader.rows(
        f"""SELECT id FROM messages WHERE session_id = ? AND role = 'user' AND content IS NOT NULL
        AND NOT {hidden} AND NOT {SUMMARY} ORDER BY timestamp, id LIMIT 1""",  # noqa: S608 - ours
        session,
    )
    return int(rows[0]["id"]) if rows else 0
