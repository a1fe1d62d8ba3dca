"""The text of one iteration: what phones were shown, and what Hermes says is true."""

from __future__ import annotations

from typing import NamedTuple

CURSOR = "▉"
TEXT_CHARS = 2**20
"""Of an iteration's text, and of its reasoning; what comes after is left out."""
MARK = "\n[…]"
TAIL_CHARS = 10_000
PIECES = 1_024


class Change(NamedTuple):
    """What phones must be told: more text, or (`restated`) another text instead."""

    text: str
    restated: bool


def without_cursor(text: str) -> str:
    """A preview of gateway streaming without the " ▉" that marks it as unfinished."""
    return text.removesuffix(CURSOR).removesuffix(" ") if text.endswith(CURSOR) else text


class Text:
    """A text that grows; many small pieces cost no more than few large ones."""

    __slots__ = ("_parts", "length")

    def __init__(self, text: str = "") -> None:
        self._parts = [text] if text else []
        self.length = len(text)

    def add(self, piece: str) -> None:
        """More of it."""
        self._parts.append(piece)
        self.length += len(piece)
        if len(self._parts) > PIECES:
            self._parts = ["".join(self._parts)]

    def __str__(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


class Track:
    """Text as it was shown, always stripped at both ends.

    Hermes prefixes the first delta of a later iteration with newlines and strips the
    final text, so leading whitespace is dropped and trailing whitespace waits
    until more text follows: what was streamed then equals the final text exactly.
    """

    def __init__(self, *, retractable: bool = True) -> None:
        self._retractable = retractable
        self._shown = Text()
        self._full = False
        self._tail = ""  # whitespace that waits for more text
        self._base = ""  # what an earlier, failed attempt showed and the present one continues
        self._repeated: str | None = None  # a retry that so far only repeats what is shown
        self._retried = False
        self._continues = False
        self._whole = False  # fed with previews of the whole text instead of deltas

    @property
    def text(self) -> str:
        """What the phones have."""
        return str(self._shown)

    def retry(self, *, continues: bool) -> None:
        """The attempt that showed this text failed and another one begins.

        It may say the same again (withheld while it repeats), or go on where the other one stopped
        (`continues`: Hermes counted it as a further call), or say something else.
        """
        self._base = ""
        self._retried = True
        self._continues = continues
        self._repeated = "" if self._shown.length else None

    def add(self, piece: str) -> Change | None:
        """A delta came."""
        if self._repeated is None:
            return self._append(piece)
        repeated = self._repeated = (self._repeated + piece).lstrip()
        shown = self.text
        if shown.startswith(repeated):
            return None
        self._repeated = None
        if repeated.startswith(shown):
            self._tail = ""
            return self._append(repeated[len(shown) :])
        if self._continues or not self._retractable:
            self._base = shown + self._tail
            return self._append(repeated)
        change = self.become(repeated)
        self._tail = repeated[len(repeated.rstrip()) :]
        return change

    def preview(self, text: str, *, final: bool) -> Change | None:
        """The gateway edited its message: this is the whole text so far (0.19)."""
        self._repeated, self._whole = None, True
        # A preview that is shorter than the one before is a late or partial one.
        if not final and self.text.startswith(text.strip()):
            return None
        return self.become(text)

    def settle(self, truth: str) -> Change | None:
        """Hermes says what the present attempt's text is."""
        truth, shown = truth.strip(), self.text
        undecided, self._repeated = self._repeated is not None, None
        if undecided and self._continues:
            if not truth:
                return None
            if not truth.startswith(shown) and not shown.startswith(truth):
                truth = shown + self._tail + truth
        elif self._base:
            truth = self._base + truth
        if self._whole and self._retried and truth and shown.endswith(truth):
            return None  # the preview holds what came before this attempt, too
        return self.become(truth)

    def become(self, text: str) -> Change | None:
        """Make this the text, by adding to what is shown where that is enough."""
        text, shown = text.strip(), self.text
        self._tail, self._full = "", len(text) > TEXT_CHARS
        if self._full:
            text = text[:TEXT_CHARS] + MARK
        if text == shown:
            return None
        if text.startswith(shown):
            self._shown.add(text[len(shown) :])
            return Change(text[len(shown) :], restated=False)
        self._shown = Text(text)
        return Change(text, restated=True)

    def _append(self, piece: str) -> Change | None:
        if self._full:
            return None
        piece = self._tail + piece
        if not self._shown.length:
            piece = piece.lstrip()
        body = piece.rstrip()
        self._tail = piece[len(body) :][:TAIL_CHARS]
        if not body:
            return None
        room = TEXT_CHARS - self._shown.length
        if len(body) > room:
            self._full, body = True, body[:room] + MARK
        self._shown.add(body)
        return Change(body, restated=False)


class Iteration:
    """One place in a run where a model's answer is shown: text, reasoning, tools.

    LMP counts these as `iteration`. An attempt that failed and its retry share one
    place, so that a retry's text is not shown twice.
    """

    def __init__(self, number: int, round_: int) -> None:
        self.number = number
        self.round = round_
        self.part = {"text": f"text:{round_}", "reasoning": f"reasoning:{round_}"}
        """Of each kind of text, its part's id."""
        self.asks_for_tools = False
        self.text = Track()
        self.reasoning = Track(retractable=False)
        self.tools = 0
        """Tools started: the next one's index."""
        self.interim = False
        """A run.interim with this text was sent."""
        self.certain = False
        """Hermes said what the text is."""
        self.message: str | None = None
        """The gateway's own message that shows this text (0.19)."""

    def retry(self, *, continues: bool) -> None:
        """The attempt shown here failed; another one follows in its place."""
        self.certain = False
        self.text.retry(continues=continues)
        self.reasoning.retry(continues=True)
