"""What a run consists of: parts with ids that are the same live and in history.

`reasoning:<round>`, `text:<round>`, `tool:<call_id>`, `approval:<id>`, `question:<id>`. Rounds
count from 0; one ends with an answer of the model that asks for tools. A model may answer
several times in a round (a message was folded in, an answer was cut short): the part shows what
it said last. `Rounds` gives the ids, to the fold and to what reads Hermes' stored messages;
`Parts` gathers what either of them tells (`live`, `rows`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from msgspec import UNSET

from loomid.lmp.history_frames import Part, PartAsk
from loomid.lmp.payload import given
from loomid.lmp.text import Text

Kind = Literal["approval", "question"]
Said = Literal["reasoning", "text"]
_RANKS = {"reasoning": 0, "text": 1, "tool": 2}
_LAST = 2**53


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


@dataclass(slots=True)
class _Item:
    kind: Literal["reasoning", "text", "tool", "approval", "question"]
    order: tuple[int, int, int]
    answer: int = 0
    """Which of the model's answers the text is of."""
    text: Text | None = None
    tool: str = ""
    preview: str = ""
    status: Literal["running", "completed", "failed", "cancelled", "waiting"] | None = None
    result: str | None = None
    asks: dict[str, PartAsk] = field(default_factory=dict)
    truncated: bool = False


class Parts:
    """The parts of one run."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}
        self._ended = False

    def list(self) -> list[Part]:
        """The parts in their order: by round what was thought, said and done."""
        found = sorted(self._items.items(), key=lambda item: item[1].order)
        return [_part(name, item) for name, item in found]

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

    def newest_of(self, call_id: str) -> str | None:
        """The part of the newest call with that id."""
        name = f"tool:{call_id}"
        found = [p for p in self._items if p == name or p.startswith(f"{name}#")]
        return found[-1] if found else None

    def ask(self, kind: Kind, id_: str, part: str | None) -> None:
        """Hermes asks something, on behalf of a tool's part if that is known."""
        name = f"{kind}:{id_}"
        item = self._items.get(part or "")
        waits = not self._ended
        if item is not None:
            item.asks[name] = PartAsk(part=name, status="waiting" if waits else "cancelled")
        else:
            order = (_LAST, 0, len(self._items))
            self._items[name] = _Item(kind, order, status="waiting" if waits else "cancelled")

    def answered(self, kind: Kind, id_: str, *, cancelled: bool = False) -> None:
        """What was asked is decided, or nobody will decide it any more."""
        name = f"{kind}:{id_}"
        for item in self._items.values():
            if name in item.asks and item.asks[name].status == "waiting":
                status: Literal["resolved", "cancelled"] = "cancelled" if cancelled else "resolved"
                item.asks[name] = PartAsk(part=name, status=status)
        alone = self._items.get(name)
        if alone is not None and alone.status == "waiting":
            alone.status = "cancelled" if cancelled else "completed"

    def end(self, answer: str | None = None) -> None:
        """The run is over, with that answer if it has one: what runs or waits is cancelled."""
        self._ended = True
        last = max(self._items.items(), key=lambda item: item[1].order, default=None)
        if answer == "" and last is not None and last[1].kind == "text":
            del self._items[last[0]]  # a later answer of that round had no text
        for item in self._items.values():
            if item.status in ("running", "waiting"):
                item.status = "cancelled"
            for name, ask in item.asks.items():
                if ask.status == "waiting":
                    item.asks[name] = PartAsk(part=name, status="cancelled")


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
        asks=list(item.asks.values()) or UNSET,
        truncated=item.truncated or UNSET,
    )
