"""Attempts at model calls: which stream fact belongs to which (docs/hermes.md).

Each stream hook of Hermes has a queue and a thread of its own, so their facts race;
within one hook order holds. The pair (turn, call number) names no attempt for sure:
it comes again on redirects, retries and reconnects. So each kind of fact is given, in
its own order, to the first attempt of that number that still lacks it.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from loomid.lmp.text import PIECES, TEXT_CHARS, Text

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.coalesce import Kind
    from loomid.lmp.text import Iteration

DRAIN_S = 0.200
"""How long an ended stream is held for deltas that may still come."""
REASONING_DRAIN_S = 0.050


class Attempt:
    """One attempt at a model call and what is known of it."""

    def __init__(self, call: int, at: float) -> None:
        self.call = call
        self.opened_at = at
        self.requested = False  # api.started seen: not a mere reconnect of the stream
        self.started = False
        self.started_at = at
        self.stream_end: wire.StreamEnded | None = None
        self.api_end: wire.ApiEnded | None = None
        self.failed = False
        self.over_at: float | None = None
        self.used_tools = False
        self.interim: str | None = None
        self.concluded = False
        """Nothing more of its text is to be expected (0.19)."""
        self.received = Text()
        self.length = 0
        self.waiting: list[tuple[Kind, str]] = []
        self.touched: set[Kind] = set()
        """Kinds that a delta came of."""
        self.iteration: Iteration | None = None
        """Its place in the run, once it is this attempt's turn to be shown."""
        self.settled = False

    @property
    def ok(self) -> bool:
        """The model answered. A redirect ends the stream it cuts off as finished, too."""
        finished = self.stream_end is not None and self.stream_end.finished
        return self.api_end is not None or finished or self.used_tools

    @property
    def asked_for_tools(self) -> bool:
        """Whether it ended with calls of tools, if only with ones that could not be made."""
        return self.api_end is not None and self.api_end.finish_reason == "tool_calls"

    @property
    def truth(self) -> str | None:
        """What Hermes says the text is; None while (or if) it does not."""
        end, api = self.stream_end, self.api_end
        if end is not None and end.finished and end.text:
            return end.text
        if api is not None and api.text is not None:
            return api.text
        if end is not None and end.finished:
            return ""
        return self.interim

    def receive(self, kind: Kind, piece: str) -> None:
        """Take a delta; it is shown when this attempt's turn has come.

        A settled attempt only notes it, so that the next late one is known as such.
        """
        self.touched.add(kind)
        if not self.settled:
            self.waiting.append((kind, piece))
            if len(self.waiting) > PIECES:
                self.waiting = [
                    (kind, "".join(piece for _, piece in same))
                    for kind, same in groupby(self.waiting, itemgetter(0))
                ]
        if kind == "text":
            piece = piece if self.length else piece.lstrip()
            self.length += len(piece)
            if piece and self.received.length <= TEXT_CHARS:
                self.received.add(piece)

    def close(self, at: float) -> None:
        """A fact says that the model call is over."""
        if self.over_at is None:
            self.over_at = at

    def drained(self, at: float) -> bool:
        """It is over since so long that no deltas of it can come any more."""
        return self.over_at is not None and at >= self.over_at + DRAIN_S

    def complete(self) -> bool:
        """All deltas are here: what came equals what Hermes says."""
        truth = self.truth
        if truth is None or self.over_at is None:
            return False
        # Compared as shown: Hermes strips the text in some places and not in others.
        if self.length < len(truth.strip()):
            return False
        return str(self.received).strip() == truth.strip()

    def expects(self, kind: Kind, piece: str) -> bool:
        """The stream has ended, and this comes before the end of the text it ended with."""
        truth = (self.truth or "").lstrip()
        if kind == "reasoning":
            return self.length < len(truth)
        piece = piece if self.length else piece.lstrip()
        return self.length < len(truth) and truth.startswith(piece, self.length)


class Attempts:
    """The attempts of one turn, in causal order."""

    def __init__(self) -> None:
        self._by_call: dict[int, list[Attempt]] = {}
        self.last: Attempt | None = None

    def requested(self, call: int, at: float) -> tuple[Attempt, bool]:
        """api.started: a new attempt, unless its stream's facts were faster.

        Returns the attempt and whether it was opened just now.
        """
        last = self.last
        waits = (
            last is not None
            and last.call == call
            and not last.requested
            and not last.failed
            and last.over_at is None
        )
        attempt, new = (last, False) if waits and last else (self.open(call, at), True)
        attempt.requested = True
        return attempt, new

    def lacking(self, call: int, what: str, at: float) -> tuple[Attempt | None, bool]:
        """The first attempt of that number that lacks `what`; a new one if there is none.

        None when the number lies behind the last attempt's: then nothing can come of it.
        """
        for attempt in self._by_call.get(call, ()):
            # A call that failed long ago, and was made again, has lost that fact.
            lost = attempt.failed and attempt is not self.last and attempt.drained(at)
            if not getattr(attempt, what) and not lost:
                return attempt, False
        if self.last is not None and call < self.last.call:
            return None, False
        return self.open(call, at), True

    def for_delta(
        self, call: int, kind: Kind, piece: str, at: float
    ) -> tuple[Attempt | None, bool]:
        """The attempt that a delta belongs to; deltas come in the order of the attempts."""
        mine = self._by_call.get(call, [])
        if not mine:
            return self.lacking(call, "started", at)
        for attempt, following in pairwise(mine):
            if self._takes(attempt, following, kind, piece, at):
                return attempt, False
        return mine[-1], False

    def of(self, call: int) -> Attempt | None:
        """The latest attempt of that number; 0: of any."""
        mine = self._by_call.get(call)
        return mine[-1] if mine else self.last if call == 0 else None

    def open(self, call: int, at: float) -> Attempt:
        """A new attempt."""
        attempt = self.last = Attempt(call, at)
        self._by_call.setdefault(call, []).append(attempt)
        return attempt

    @staticmethod
    def _takes(attempt: Attempt, following: Attempt, kind: Kind, piece: str, at: float) -> bool:
        """Whether a delta is still this attempt's although a further one has begun."""
        if following.touched:
            return False
        if kind in attempt.touched and piece.startswith("\n\n"):
            return False  # so begins the first delta after a redirect
        if attempt.stream_end is None:
            # Its end may be on the way, or lost.
            waiting = not following.started or at < following.started_at + DRAIN_S
            return waiting and not attempt.drained(at)
        if attempt.truth:
            return attempt.expects(kind, piece)
        # A failed stream's last deltas, or its retry's first? Both are possible for a short
        # time, while the retry has not said that it started; the end sets right what is shown.
        return attempt.length > 0 and not following.started and not attempt.drained(at)
