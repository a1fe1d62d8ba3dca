"""What a run consists of: parts with ids that are the same live and in history.

`reasoning:<round>`, `text:<round>`, `tool:<call_id>`, `approval:<id>`, `question:<id>`,
`attachment:<id>`. Rounds count from 0; one ends with an answer of the model that asks for
tools. A model may answer several times in a round (a message was folded in, an answer was cut
short): the part shows what it said last. `Rounds` gives the ids, to the fold and to what reads
Hermes' stored messages (see stored); `Parts` gathers what is told under them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET
from msgspec.structs import replace

from loomid.lmp.history_frames import HistoryAttachment, Part
from loomid.lmp.payload import given
from loomid.lmp.text import Text

if TYPE_CHECKING:
    from loomid.lmp.file_frames import AttachmentRef, RunAttachment

Said = Literal["reasoning", "text"]
_RANKS = {"reasoning": 0, "text": 1, "tool": 2}


class Rounds:
    """The rounds of one run, and its parts' ids."""

    def __init__(self) -> None:
        self._now = 0
        self._calls: Counter[str] = Counter()

    def answer(self, *, after_tools: bool) -> int:
        """The round of a new answer of the model; whether the one before asked for tools."""
        self._now += after_tools
        return self._now

    def tool(self, call_id: str) -> str:
        """The part of a call that begins: nothing makes a call's id unique (docs/hermes.md)."""
        self._calls[call_id] += 1
        again = self._calls[call_id]
        return f"tool:{call_id}" if again == 1 else f"tool:{call_id}#{again}"


def said(kind: Said, round_: int) -> str:
    """The part of what the model says in a round."""
    return f"{kind}:{round_}"


def attached(file: AttachmentRef | RunAttachment) -> HistoryAttachment:
    """A file as a message or a part has it."""
    kinds: dict[str, Literal["image", "audio"]] = {"image": "image", "audio": "audio"}
    return HistoryAttachment(
        kind=kinds.get(file.media_type.partition("/")[0], "file"),
        attachment_id=given(file.attachment_id),
        media_type=file.media_type or UNSET,
        bytes=UNSET if file.attachment_id is None else file.bytes,
        name=file.name,
        width=file.width,
        height=file.height,
    )


def attachment(sent: RunAttachment) -> Part:
    """What the agent sent as a part of its run; it has a `part`."""
    return Part(
        part=sent.part or "",
        kind="attachment",
        text=sent.caption,
        attachment=replace(attached(sent), url=sent.url, error=sent.error),
        truncated=sent.truncated,
    )


@dataclass(slots=True)
class _Item:
    kind: Literal["reasoning", "text", "tool"]
    order: tuple[int, int, int]
    answer: int = 0
    """Which of the model's answers the text is of."""
    text: Text | None = None
    tool: str = ""
    preview: str = ""
    status: Literal["running", "completed", "failed", "cancelled"] | None = None
    result: str | None = None
    truncated: bool = False


class Parts:
    """The parts of one run."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}
        self._files: list[Part] = []

    def list(self) -> list[Part]:
        """The parts in their order: by round what was thought, said and done, then what was
        sent."""
        found = sorted(self._items.items(), key=lambda item: item[1].order)
        return [*(_part(name, item) for name, item in found), *self._files]

    def attach(self, part: Part) -> None:
        """The agent sent something."""
        self._files.append(part)

    def say(self, kind: Said, round_: int, answer: int, text: str, *, whole: bool = False) -> None:
        """More of an answer's text, or (`whole`) all of it. A later answer begins it anew."""
        name = said(kind, round_)
        item = self._items.get(name)
        if item is not None and answer < item.answer:
            return
        if item is None or answer > item.answer or whole:
            item = self._items[name] = _Item(kind, (round_, _RANKS[kind], 0), answer, Text())
        assert item.text is not None, "of what was said"  # noqa: S101 - invariant
        item.text.add(text)
        if not item.text.length:
            del self._items[name]

    def cut(self, kind: Said, round_: int) -> None:
        """That text is not all of it."""
        if (item := self._items.get(said(kind, round_))) is not None:
            item.truncated = True

    def tool(
        self, part: str, round_: int, answer: int, tool: str, preview: str, *, truncated: bool
    ) -> None:
        """A tool begins, in an answer. What the round said in an earlier one is superseded."""
        before = self._items.get(said("text", round_))
        if before is not None and before.answer < answer:
            del self._items[said("text", round_)]
        order = (round_, _RANKS["tool"], len(self._items))
        self._items[part] = _Item(
            "tool", order, tool=tool, preview=preview, status="running", truncated=truncated
        )

    def tool_ended(
        self, part: str, *, ok: bool | None, result: str | None = None, truncated: bool = False
    ) -> None:
        """A tool ended; None: how is not known."""
        item = self._items.get(part)
        if item is not None:
            item.status = None if ok is None else "completed" if ok else "failed"
            item.result = result
            item.truncated |= truncated

    def end(self, answer: str | None = None) -> None:
        """The run is over, with that answer if it has one: what runs is cancelled."""
        last = max(self._items.items(), key=lambda item: item[1].order, default=None)
        if answer == "" and last is not None and last[1].kind == "text":
            del self._items[last[0]]  # a later answer of that round had no text
        for item in self._items.values():
            if item.status == "running":
                item.status = "cancelled"


def _part(name: str, item: _Item) -> Part:
    tool = item.kind == "tool"
    return Part(
        part=name,
        kind=item.kind,
        text=UNSET if item.text is None else str(item.text),
        tool=item.tool if tool else UNSET,
        preview=item.preview if tool else UNSET,
        status=given(item.status),
        result=given(item.result),
        truncated=item.truncated or UNSET,
    )
