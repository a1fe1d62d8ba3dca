"""Hermes' stored messages as turns: the run that was told live, with the same parts (see parts).

What Hermes keeps differs by release (docs/hermes-support.md). Nothing is invented: a turn
whose end it kept no trace of is `partial`, a tool that may have been cut off has no `status`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import UNSET

from loomid.lmp.history_frames import HistoryAttachment, HistoryTurn
from loomid.lmp.parts import Parts, Rounds
from loomid.lmp.preview import Cut, cut, of_args
from loomid.text import valid_json_text, valid_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomid.lmp.history_frames import Part

SUMMARIES = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
_ASIDE = "[System:"
"""So begins what Hermes says to the model in the user's place."""
_CLOSER = "Operation interrupted."
"""What 0.19 and 0.20 store as the answer of a turn that was stopped in a tool."""
_UNFINISHED = frozenset({"length", "incomplete"})
_TOGETHER_S = 0.01
"""A message that is folded in is stored in one step with the mark of what it cut off."""
NAME_CHARS = 256
"""Of a tool's name and of a call's id: what is longer is none, and would fill a page."""
_ATTACHED = 16
_KINDS: dict[str, Literal["image", "audio"]] = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call that the model asked for."""

    call_id: str
    tool: str
    preview: Cut


@dataclass(frozen=True, slots=True)
class Content:
    """What a message says, and what came with it."""

    text: str = ""
    truncated: bool = False
    attachments: tuple[HistoryAttachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One stored message."""

    id: int
    session_id: str
    role: Literal["user", "assistant", "tool"]
    ts: float
    content: Content
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    ok: bool | None = None
    """Of a tool's result; None: not known."""
    finish_reason: str = ""
    reasoning: Cut = Cut("", truncated=False)  # noqa: RUF009 - immutable
    display: str = ""
    """How Hermes itself shows it: `hidden`, `failed_turn`, `steer`, …"""
    marked_summary: bool = False

    @property
    def summary(self) -> bool:
        """Hermes' summary of what it took out of the model's sight."""
        return self.marked_summary or self.content.text.startswith(SUMMARIES)

    @property
    def answers(self) -> bool:
        """The model's last word in its turn."""
        done = self.finish_reason and self.finish_reason not in _UNFINISHED
        return bool(done) and self.role == "assistant" and not self.calls and not self.display

    @property
    def aside(self) -> bool:
        """Hermes speaks in the user's place."""
        return self.role == "user" and self.content.text.startswith(_ASIDE)


# ── what the columns hold ──


def content_of(raw: str | None, limit: int) -> Content:
    """Plain text."""
    shown = cut(valid_text(raw or ""), limit)
    return Content(shown.text, shown.truncated)


class Head(str):
    """The beginning of a string, and how many characters all of it has, a "=" at its end not
    counted."""

    __slots__ = ("size",)
    size: int

    def __new__(cls, text: str, size: int) -> Self:
        made = super().__new__(cls, text)
        made.size = size
        return made


def json_of(raw: str | None) -> object:
    """What a column's JSON says; None when it is none."""
    try:
        return json.loads(valid_json_text(raw)) if raw else None
    except (ValueError, RecursionError):
        return None


def beginning_of(raw: str) -> list[object]:
    """What is whole at the beginning of a JSON list that was cut."""
    found: list[object] = []
    raw, decoder, at = valid_json_text(raw), json.JSONDecoder(), 1
    with suppress(ValueError, RecursionError):
        while raw.startswith("["):
            while raw[at : at + 1] in (",", " "):
                at += 1
            one, at = decoder.raw_decode(raw, at)
            found.append(one)
    return found


def content_of_parts(parts: object, limit: int) -> Content:
    """Content that Hermes stored as JSON: its texts, and what else was in it by kind and size."""
    texts, attached = [], []
    for part in parts if isinstance(parts, list) else [parts]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") in _KINDS:
            attached.append(_attachment(part))
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    shown = cut("\n".join(texts), limit)
    truncated = shown.truncated or len(attached) > _ATTACHED
    return Content(shown.text, truncated, tuple(attached[:_ATTACHED]))


def _attachment(part: dict[str, Any]) -> HistoryAttachment:
    kind = _KINDS[part["type"]]
    where = part.get(part["type"]) or part.get("source") or part
    url = where.get("url") or where.get("data") if isinstance(where, dict) else where
    head, comma, _ = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not comma or not head.startswith("data:"):
        return HistoryAttachment(kind=kind)
    return HistoryAttachment(
        kind=kind,
        media_type=cut(head[5:].partition(";")[0], 100).text or UNSET,
        bytes=(url.size - len(head) - 1) * 3 // 4 if isinstance(url, Head) else UNSET,
    )


def calls_of(found: object) -> tuple[Call, ...]:
    """The tool calls in a message; those that cannot be read are left out."""
    calls = (_call(each) for each in (found if isinstance(found, list) else []))
    return tuple(call for call in calls if call is not None)


def _call(found: object) -> Call | None:
    function = found.get("function") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(function, dict):
        return None
    told = function.get("arguments")
    call_id, tool = found.get("id"), function.get("name")
    return Call(
        call_id[:NAME_CHARS] if isinstance(call_id, str) else "",
        tool[:NAME_CHARS] if isinstance(tool, str) else "",
        cut(valid_text(of_args(json_of(told) if isinstance(told, str) else None))),
    )


# ── turns ──


def begins(row: Row, older: Row | None) -> bool:
    """Whether a turn begins with this message; `older` is the one before it, of any turn."""
    if older is None or row.summary or older.summary:
        return True
    if older.session_id != row.session_id:
        # What Hermes compresses in the midst of a turn goes on in another session.
        return row.role == "user" or older.answers
    if row.role != "user" or row.display == "steer":
        return False
    if row.aside and older.role != "user":
        return older.answers
    return not (older.display == "hidden" and row.ts - older.ts < _TOGETHER_S)


def turn_of(
    rows: Sequence[Row], turn_id: str, *, run_id: str | None = None, sent: Iterable[Part] = ()
) -> HistoryTurn:
    """The turn that these messages are, oldest first. `run_id`: it may be that run, still live;
    `sent`: what the agent sent in it."""
    story = _Story()
    for row in rows:
        story.take(row)
    for part in sent:
        story.parts.attach(part)
    first, running = rows[0], run_id is not None and not story.answered
    story.close(running=running)
    prompt = first.content if first.role == "user" and not first.display else Content()
    known = bool(prompt.text or prompt.attachments or prompt.truncated) and not first.summary
    done = story.answered
    return HistoryTurn(
        turn_id=turn_id,
        session_id=first.session_id,
        started_at=first.ts,
        ended_at=rows[-1].ts if done else UNSET,
        prompt=prompt.text if known else UNSET,
        truncated=prompt.truncated or UNSET if known else UNSET,
        attachments=list(prompt.attachments) or UNSET,
        inputs=story.inputs or UNSET,
        parts=story.parts.list(),
        status="completed" if done else UNSET,
        finished=(story.reason not in _UNFINISHED) if done else UNSET,
        partial=UNSET if done or first.summary else True,
        run_id=run_id if running and run_id is not None else UNSET,
        summary=first.summary or UNSET,
    )


class _Story:
    """What the messages of one turn come to."""

    def __init__(self) -> None:
        self.parts = Parts()
        self.inputs: list[str] = []
        self.reason = ""
        self.answered = False
        self._rounds = Rounds()
        self._answer = 0
        self._asked = False
        self._goes_on = False  # the answer that was cut short
        self._begun = False
        self._open: dict[str, str] = {}  # call id → part, of the last answer
        self._done: list[tuple[str, Row]] = []
        self._last_text = ""

    def take(self, row: Row) -> None:
        """The next message."""
        if row.summary:
            self.parts.say("text", 0, 0, row.content.text.strip(), whole=True)
            if row.content.truncated:
                self.parts.cut("text", 0)
        elif row.role == "assistant":
            self._said(row)
        elif row.role == "tool":
            part = self._open.pop(row.call_id, None)
            if part is not None:
                self._done.append((part, row))
        elif row.aside and self._begun:
            self._goes_on = self.reason in _UNFINISHED
        elif self._begun:
            self.inputs.append(row.content.text)
        self._begun = True

    def close(self, *, running: bool) -> None:
        """There are no more."""
        self._results(certain=self.answered or running)
        if not running:
            self.parts.end(self._last_text if self.answered else None)

    def _said(self, row: Row) -> None:
        text = row.content.text.strip()
        closed = not row.finish_reason and text == _CLOSER
        if closed or row.display in ("hidden", "failed_turn"):
            self.answered = False
            return
        self._results(certain=True)
        round_ = self._rounds.answer(after_tools=self._asked)
        self._answer += not self._goes_on
        self._goes_on = False
        self._tell(row, round_, text)
        self._open = {}
        for call in row.calls:
            part = self._open[call.call_id] = self._rounds.tool(call.call_id)
            self.parts.tool(
                *(part, round_, self._answer, call.tool, call.preview.text),
                truncated=call.preview.truncated,
            )
        self._asked, self.reason = bool(row.calls), row.finish_reason
        self.answered = bool(row.finish_reason) and not row.calls

    def _tell(self, row: Row, round_: int, text: str) -> None:
        self._last_text = text
        if thought := row.reasoning.text.strip():
            self.parts.say("reasoning", round_, self._answer, thought)
        if text:
            self.parts.say("text", round_, self._answer, text)
        if row.reasoning.truncated:
            self.parts.cut("reasoning", round_)
        if row.content.truncated:
            self.parts.cut("text", round_)

    def _results(self, *, certain: bool) -> None:
        """What the tools of the last answer gave back. Of a turn that was broken off nobody can
        say whether it was then that they ended."""
        for part, row in self._done:
            self.parts.tool_ended(
                part,
                ok=row.ok if certain else None,
                result=row.content.text,
                truncated=row.content.truncated,
            )
        self._done = []
