"""Files in history as they were told live: those that came with a message, those of the agent.

Hermes stores the user's text with what is written around it for the model: notes of where its
copies of the files lie, what it heard in them, and what short documents say
(docs/hermes-support.md, Files). Of what the agent sent it stores nothing: that is known by when
its run stored what the model said.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import UNSET

from loomid.lmp.parts import attached
from loomid.lmp.preview import cut, line, title
from loomid.lmp.query import window
from loomid.lmp.stored import Content

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loomid.lmp.file_frames import AttachmentRef
    from loomid.lmp.folding import FileTold
    from loomid.lmp.history_frames import Part
    from loomid.lmp.query import Mark, Term
    from loomid.lmp.stored import Row

_COPY = re.compile(r"(?:doc|img|audio|video)_[0-9a-f]{12}")
_FOLDERS = ("documents", "images", "audio", "videos")
_BEHIND = ("\n\n[Image attached at: ", "\n\n[Content of ")
"""So goes on what Hermes, and the plugin (hermes_shim/files.py), write behind the text."""
_VOICE = ('"', "[voice message", "[The user sent a voice message")
"""So begins what Hermes writes of speech; where it understood it, without naming its copy."""
_NOTES = ("[", '"')
"""So begins what it writes before the text."""
_ASKED = "What do you see in this image?"
"""What it writes in place of none."""
_HEAD = 64
"""Characters of the text that must be there in what was cut."""
VOICE_S = 300.0
"""How long such a message may have waited for its turn."""
_CLOCK_S = 1.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A message with files that Hermes was given at that time."""

    at: float
    text: str
    attachments: tuple[AttachmentRef, ...]
    copies: tuple[str, ...] = ()
    """What Hermes' copies of them are called."""

    @property
    def spoken(self) -> bool:
        """Whether Hermes may have written down all of it."""
        return all(ref.media_type.startswith("audio/") for ref in self.attachments)


class Recall:
    """Knows the stored messages of one task again: each of `sent` once, or (`any_copy`) in
    whatever branch it lies as well."""

    def __init__(self, sent: Iterable[Sent], limit: int, *, any_copy: bool = False) -> None:
        """`limit`: characters of a text, at most."""
        self._left = dict(enumerate(sent))
        self._limit = limit
        self._any_copy = any_copy
        self._by_copy = {
            found[0]: number
            for number, one in self._left.items()
            for name in one.copies
            if (found := _COPY.match(name))
        }

    def __call__(self, row: Row) -> Row:
        """A stored message as it was sent; the newest are asked about first."""
        if row.role != "user" or not self._left:
            return row
        number = self._find(row)
        if number is None:
            return row
        one = self._left[number]
        if not self._any_copy:
            del self._left[number]
        text, truncated = cut(_told(row.content.text, one), self._limit)
        files = tuple(attached(ref) for ref in one.attachments)
        return replace(row, content=Content(text, truncated, files))

    def _find(self, row: Row) -> int | None:
        text = row.content.text  # a document may name any
        names = _COPY.findall(text.partition(_BEHIND[1])[0]) or _COPY.findall(text)
        named = (self._by_copy.get(name) for name in names)
        for number in named:
            if number in self._left and _says(row.content, self._left[number].text):
                return number
        if names or not text.startswith(_VOICE):
            return None
        near = (
            (one.at, number)
            for number, one in self._left.items()
            if one.spoken
            and one.at - _CLOCK_S <= row.ts <= one.at + VOICE_S
            and _says(row.content, one.text)
        )
        return max(near, default=(0.0, None))[1]


class RecallSent:
    """Knows what the agent sent in the turns of one task; each of `told` once.

    One turn of a task runs at a time, so no two runs' hooks were called in the same time. When a
    message of the user was stored says nothing: it may have waited for its turn.
    """

    def __init__(self, told: Iterable[FileTold]) -> None:
        """`told`: in its order, of each run."""
        self._left = sorted(told, key=lambda one: one.began)

    def __call__(self, rows: Iterable[Row]) -> Sequence[Part]:
        """What the turn of these messages sent, in its order."""
        times = [row.ts for row in rows if row.role != "user"]
        found: list[Part] = []
        if not times:
            return found
        at = bisect_right(self._left, max(times), key=lambda one: one.began)
        while at and self._left[at - 1].until >= min(times):
            at -= 1
            one = self._left[at]
            if any(one.began <= ts <= one.until for ts in times):
                found.insert(0, self._left.pop(at).part)
        return found


def _says(content: Content, text: str) -> bool:
    """Whether the stored message is that text with Hermes' words around it, and no other in
    which the user names a copy, too."""
    noted = content.text.startswith(_NOTES)
    if not text.strip():
        whole = not content.truncated or _BEHIND[1] in content.text
        return whole and (noted or content.text.startswith(_ASKED))
    as_kept, behind = {text, text.strip(), text.lstrip(), text.rstrip()}, _BEHIND
    within = f"\n\n{content.text}{_BEHIND[0]}"
    if content.truncated:
        as_kept, behind = {each[:_HEAD] for each in as_kept}, ("", "")
    # As by release and way.
    places = [within.find(f"\n\n{each}{then}") for each in as_kept for then in behind]
    return 0 in places or (noted and max(places) > 0)


def _told(stored: str, one: Sent) -> str:
    """What the user wrote, and of nothing but speech what Hermes heard."""
    return one.text if one.text.strip() or not stored.startswith('"') else stored


# ── in lists and among what was found ───────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Own:
    """A stored message, and as it was sent."""

    stored: str
    content: Content

    @property
    def words(self) -> str:
        """What the user wrote; of nothing, what the files are called."""
        names = (one.name for one in self.content.attachments if one.name is not UNSET)
        return self.content.text if self.content.text.strip() else ", ".join(names)

    @property
    def preview(self) -> str:
        """Of a session that begins with it, as Hermes' list shows such."""
        return line(self.words)

    def title(self, told: str) -> str:
        """A session's title; one that Hermes made of the message, of the user's words instead."""
        first = " ".join(title(self.stored, len(self.stored)).split())
        made = told == first or (told.endswith("…") and first.startswith(told[:-1]))
        return title(self.words) if made else told

    def snippet(self, terms: list[Term]) -> tuple[str, list[Mark]]:
        """What was found in it: in the user's words, else in a document."""
        _, begins, read = self.stored.partition(_BEHIND[1])
        shown = [window(text, terms) for text in (self.words, begins.lstrip() + read)]
        return next((each for each in shown if each[1]), shown[0])


def without_folders(text: str, marks: list[Mark], home: str) -> tuple[str, list[Mark]]:
    """A snippet with the names alone of the copies that Hermes keeps in its home, and its marks
    where they are then; those in what is left out are gone."""
    cut_off = "|".join(re.escape(home[at:]) for at in range(1, len(home) + 1))
    begins = rf"(?:{re.escape(home)}|(?<=^…)(?:{cut_off}))/cache/(?:{'|'.join(_FOLDERS)})/"
    gone = [found.span() for found in re.finditer(begins, text)]
    end = len(text) - 1
    if text.endswith("…"):
        folders = [f"{home}/cache/{each}/" for each in _FOLDERS]
        sizes = (
            n for each in folders for n in range(2, len(each)) if text[:end].endswith(each[:n])
        )
        gone.append((end - max(sizes, default=0), end))
    for begin, end in reversed(gone):
        text = text[:begin] + text[end:]
        marks = [(_moved(a, begin, end), _moved(b, begin, end)) for a, b in marks]
    return text, [(a, b) for a, b in marks if a < b]


def _moved(place: int, begin: int, end: int) -> int:
    return place - max(min(place, end) - begin, 0)
