"""A page of a task's past: whole turns, the newest that fit, read backwards in small steps.

Memory is bounded by the page, and by the turn at its end. Of a session more than the page is
read only where the page comes to what the session may have taken over from its parent: then
both are gone through for where that ends (lineage.own).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from loomid import lineage
from loomid.hermesdb import TextLimits
from loomid.lineage import END
from loomid.lmp import stored
from loomid.lmp.preview import cut
from loomid.lmp.recalled import Recall, RecallSent
from loomid.wire import PREVIEW_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loomid.hermesdb import Reader
    from loomid.lineage import Session
    from loomid.lmp.folding import FileTold
    from loomid.lmp.history_frames import HistoryTurn, Part
    from loomid.lmp.recalled import Sent
    from loomid.lmp.stored import Row

FRAME_BYTES = 1_024
"""What is around the turns in a frame, at most."""


class Before(NamedTuple):
    """From where a page goes on: before that message of that session, without the last `parts`
    parts of the turn that ends there."""

    session_id: str
    before: int
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page may hold."""

    messages: int
    bytes: int
    full: bool
    """Tool texts too, not only the beginning of each."""
    sent: Sequence[Sent] = ()
    """Messages that came with files, which Hermes does not tell as they were."""
    handed: Sequence[FileTold] = ()
    """What the agent sent, of which Hermes tells nothing."""

    @property
    def limits(self) -> TextLimits:
        """Of texts; one that takes more than its share of the page is cut further."""
        text = self.bytes // 2
        return TextLimits(text, text if self.full else min(PREVIEW_CHARS, text))


@dataclass(slots=True)
class Page:
    """The newest turns before a place, oldest first, and from where the next page goes on."""

    turns: list[HistoryTurn]
    following: Before | None


def read(
    reader: Reader,
    sessions: list[Session],
    place: Before | None,
    wanted: Wanted,
    name: Callable[[str, int], str],
    live: str | None,
) -> Page:
    """One page of these sessions (the newest first). `name` gives a turn its id; `live` is the
    run that the newest turn may be. A session that is gone ends the conversation."""
    room = wanted.bytes - FRAME_BYTES
    page = Page([], None)
    count = 0
    messages = _messages(reader, sessions, place, wanted.limits)
    files = RecallSent(wanted.handed)
    for rows, older in _turns(map(Recall(wanted.sent, wanted.limits.text), messages)):
        newest = place is None and not page.turns
        turn = stored.turn_of(
            rows,
            name(rows[0].session_id, rows[0].id),
            run_id=live if newest else None,
            sent=files(rows),
        )
        done = place.parts if place is not None and not page.turns else 0
        if done:
            turn = replace(turn, parts=turn.parts[: len(turn.parts) - done])
        size, count = _size(turn), count + len(rows)
        end = Before(rows[-1].session_id, rows[-1].id + 1, done)
        if page.turns and (size > room or count > wanted.messages):
            page.following = end
            break
        if size > room:
            turn, left = _last_of(turn, room)
            page.turns.insert(0, turn)
            page.following = end._replace(parts=done + left) if turn.continued is True else older
            break
        page.turns.insert(0, turn)
        room -= size
        page.following = older
        if count >= wanted.messages:
            break
    return page


def _messages(
    reader: Reader, sessions: list[Session], place: Before | None, limits: TextLimits
) -> Iterator[Row]:
    """The messages before a place, the newest first."""
    before = END
    if place is not None:
        while sessions and sessions[0].id != place.session_id:
            sessions = sessions[1:]
        before = place.before
    for session in sessions:
        sure = lineage.surely_own(reader, session)
        yield from reader.messages(reader.ids(session.id, before, sure), limits)
        if sure:
            least = lineage.own(reader, session)
            yield from reader.messages(reader.ids(session.id, min(before, sure), least), limits)
        before = END


def _turns(messages: Iterator[Row]) -> Iterator[tuple[list[Row], Before | None]]:
    """The turns, the newest first, each with the place of what is before it."""
    rows: list[Row] = []
    for older in messages:
        if rows and stored.begins(rows[-1], older):
            yield rows[::-1], Before(older.session_id, older.id + 1)
            rows = []
        rows.append(older)
    if rows:
        yield rows[::-1], None


def _size(value: HistoryTurn | Part) -> int:
    return len(msgspec.json.encode(value)) + 1


def _last_of(turn: HistoryTurn, room: int) -> tuple[HistoryTurn, int]:
    """Of a turn that is larger than a page: its last parts that fit, at least one; how many."""
    bare = replace(turn, parts=[])
    if bare.prompt is not UNSET and _size(bare) > room // 2:
        prompt = cut(bare.prompt, max(room // 16, 1)).text
        bare = replace(bare, prompt=prompt, truncated=True)
    if bare.inputs is not UNSET and _size(bare) > room // 2:
        bare = replace(bare, inputs=UNSET)
    if bare.attachments is not UNSET and _size(bare) > room // 2:
        bare = replace(bare, attachments=UNSET)
    room -= _size(bare)
    kept: list[Part] = []
    for part in reversed(turn.parts):
        size = _size(part)
        if kept and size > room:
            break
        kept.insert(0, part if size <= room else _shorter(part, room))
        room -= size
    whole = len(kept) == len(turn.parts)
    return replace(bare, parts=kept, continued=UNSET if whole else True), len(kept)


def _shorter(part: Part, room: int) -> Part:
    """A part whose texts are cut until it fits."""
    while _size(part) > room:
        part = replace(
            part,
            text=part.text if part.text is UNSET else cut(part.text, len(part.text) // 2).text,
            result=part.result and cut(part.result, len(part.result) // 2).text,
            preview=part.preview and cut(part.preview, len(part.preview) // 2).text,
            truncated=True,
        )
        if not (part.text or part.result or part.preview):
            break
    return part if _size(part) <= room else replace(part, attachment=UNSET)
