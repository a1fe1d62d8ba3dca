"""Whether devices saw the same: the witness' history of one era, and who follows it.

An era ends with what may lose events: another database, a power loss. Within one the witness,
which never leaves for long, has every event exactly once; another device has the next one
after its last, always, or was told `truncated` and then shows what the witness showed there.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.chaos.frame import LASTING

if TYPE_CHECKING:
    from tests.chaos.trace import Violated

LASTING_TOLD = 200
"""A snapshot looks no further back (docs/protocol.md)."""

Digests = tuple[int, int]


class History:
    """What the witness saw in one era: event i, and its view after it."""

    def __init__(self, base: Digests) -> None:
        self.index: dict[int, int] = {}
        self._runs = array("q", [base[0]])
        self._approvals = array("q", [base[1]])
        self._lasting: deque[tuple[int, int]] = deque(maxlen=2_000)

    def __len__(self) -> int:
        return len(self.index)

    def add(self, content: int, type_: str, digests: Digests) -> bool:
        """The next event; False: it came before."""
        if content in self.index:
            return False
        at = self.index[content] = len(self.index)
        self._runs.append(digests[0])
        self._approvals.append(digests[1])
        if type_ in LASTING:
            self._lasting.append((at, content))
        return True

    def digests(self, at: int) -> Digests:
        """Of the view after event `at`; -1: before the first."""
        return self._runs[at + 1], self._approvals[at + 1]

    def lasting(self, after: int, upto: int) -> list[int]:
        """What a snapshot at `upto` must tell to one that saw everything up to `after`."""
        found = [content for at, content in self._lasting if after < at <= upto]
        return found[-LASTING_TOLD:]


@dataclass(frozen=True, slots=True)
class Seen:
    """One event as a device saw it, with its view before and after it."""

    content: int
    type: str
    before: Digests
    after: Digests


@dataclass(slots=True)
class Told:
    """What the last snapshot told of the past, to a device that knew everything up to `after`."""

    lasting: list[int]
    after: int | None
    """None: the device could not say."""


class Follower:
    """One device's place in the history."""

    def __init__(self, history: History, violated: Violated) -> None:
        self.history = history
        self.at: int | None = -1
        """Its last event; None: not known until the next one, after `truncated`."""
        self.whole = True
        """The device shows all live runs: it was there at their beginning, or had a snapshot."""
        self.checked = 0
        self._queue: deque[Seen] = deque()
        self._told: Told | None = None
        self._violated = violated

    @property
    def behind(self) -> int:
        """How many of its events the witness has not had yet."""
        return len(self._queue)

    @property
    def place(self) -> int | None:
        """Where it will be when the witness has had its events, too."""
        return None if self.at is None else self.at + len(self._queue)

    def back_to(self, at: int, *, whole: bool) -> None:
        """The device goes on from an earlier state of its own."""
        self.at, self.whole = at, whole
        self._queue.clear()
        self._told = None

    def truncated(self, history: History, *, whole: bool) -> None:
        """The device was told that it missed something."""
        self.history, self.whole, self.at = history, whole, None
        self._queue.clear()
        self._told = None

    def told(self, told: Told) -> None:
        """A snapshot was complete."""
        self._told = told

    def event(self, seen: Seen) -> None:
        """An event that is no replay of a snapshot."""
        self._queue.append(seen)
        self.follow()

    def follow(self) -> None:
        """Compare what both have seen."""
        while self._queue:
            seen = self._queue[0]
            index = self.history.index.get(seen.content)
            if index is None:
                return
            self._queue.popleft()
            self._compare(seen, index)
            self.at = index
            self.checked += 1

    def _compare(self, seen: Seen, index: int) -> None:
        if self.at is None:
            self._same(seen.before, index - 1, "after its snapshot")
            self._past(index)
        elif index != self.at + 1:
            kind = "lost" if index > self.at else "twice"
            self._violated(kind, type=seen.type, expected=self.at + 1, got=index)
        self._same(seen.after, index, f"after {seen.type}")

    def _same(self, mine: Digests, index: int, when: str) -> None:
        theirs = self.history.digests(index)
        if mine[1] != theirs[1]:
            self._violated("view", what="approvals", when=when, event=index)
        elif self.whole and mine[0] != theirs[0]:
            self._violated("view", what="runs", when=when, event=index)

    def _past(self, index: int) -> None:
        told, self._told = self._told, None
        if told is not None and told.after is not None:
            wanted = self.history.lasting(told.after, index - 1)
            if told.lasting[-len(wanted) :] != wanted and wanted:
                self._violated("snapshot", told=len(told.lasting), wanted=len(wanted))
