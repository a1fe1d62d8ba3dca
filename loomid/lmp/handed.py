"""Files that the agent hands to our chats: told once they were taken in (docs/protocol.md)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET

from loomid.lmp import ids
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.filenames import clean_name
from loomid.lmp.folding import FileSeen, FileTold
from loomid.lmp.parts import attachment
from loomid.lmp.preview import cut

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.facts import FileTaken
    from loomid.lmp.file_frames import AttachmentRef
    from loomid.lmp.folding import Folding
    from loomid.lmp.host import Host
    from loomid.lmp.turns import Turn

MOST = 256
"""That are still being taken in."""
URL_CHARS = 2_048
"""Longer links are not remembered for history."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    fact: wire.FileSent
    task_id: str | None
    turn: Turn | None
    """It is remembered until then."""
    until: float
    """When it was sent, if the turn was not over then: so long it went on at least."""

    @property
    def run_id(self) -> str | None:
        return None if self.turn is None else self.turn.run.run_id

    @property
    def owner(self) -> str:
        """Its name for retention: the fact is kept until the file is."""
        return f"~file:{self.fact.message_id}"


class Handed:
    """What was handed over and is not told yet."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()

    def sent(self, out: Folding, fact: wire.FileSent, turns: list[Turn]) -> None:
        """The agent sent a file, when its turn was over, mostly. `turns`: those of its chat, live
        or lately ended, the latest first."""
        begun = [turn for turn in turns if turn.run.begun and fact.job_id is None]
        turn = begun[0] if begun else None
        host, key = self._host, fact.session_key
        task_id = ids.task_id(host.key, host.gateway_id, key) if key else None
        goes_on = turn is not None and turn.ending is None
        one = _Waiting(fact, task_id, turn, out.t if goes_on else 0.0)
        if fact.message_id in self._waiting:
            host.dropped["duplicate"] += 1
        elif not fact.path:
            self._tell(out, one, None, None)
        elif len(self._waiting) >= MOST:
            self._tell(out, one, None, "too_many")
        else:
            self._waiting[fact.message_id] = one
            out.touched.add(one.owner)
            out.files.append(FileSeen(out.boot, task_id, fact))
            if turn is not None:
                turn.file(out, fact.message_id, None)

    def taken(self, out: Folding, fact: FileTaken) -> str | None:
        """It is known what became of one; the owner whose facts are needed no more."""
        one = self._waiting.pop(fact.message_id, None)
        if one is None:
            return None
        self._tell(out, one, fact.attachment, fact.error)
        return one.owner

    def give_up(self, out: Folding, turn: Turn) -> list[str]:
        """The turn makes room for others, and so do its files: without its facts, a restart
        would take them for another turn's. The owners whose facts are needed no more."""
        gone = [one for one in self._waiting.values() if one.turn is turn]
        for one in gone:
            del self._waiting[one.fact.message_id]
            self._tell(out, one, None, "too_many")
        return [one.owner for one in gone]

    def _tell(
        self, out: Folding, one: _Waiting, kept: AttachmentRef | None, error: str | None
    ) -> None:
        host, fact, sender = self._host, one.fact, one.turn
        caption = cut(fact.caption.strip())
        payload = RunAttachment(
            task_id=one.task_id,
            run_id=one.run_id,
            attachment_id=None if kept is None else kept.attachment_id,
            media_type="" if kept is None else kept.media_type,
            bytes=0 if kept is None else kept.bytes,
            name=clean_name(fact.name, "") if kept is None else kept.name,
            width=UNSET if kept is None else kept.width,
            height=UNSET if kept is None else kept.height,
            caption=caption.text or UNSET,
            truncated=caption.truncated or UNSET,
            url=fact.url or UNSET,
            error=error or UNSET,
            part=UNSET
            if sender is None
            else ids.attachment_part(host.key, host.gateway_id, sender.boot, fact.message_id),
        )

        def event(then: Folding) -> None:
            then.emit(payload, task_id=one.task_id, run_id=one.run_id)
            if sender is not None and len(fact.url) <= URL_CHARS:
                began, until = sender.span
                part, until = attachment(payload), max(until, one.until)
                then.told.append(FileTold(sender.run.task_id, began, until, part))

        if one.turn is None:
            event(out)
        else:
            one.turn.file(out, one.fact.message_id, event)
