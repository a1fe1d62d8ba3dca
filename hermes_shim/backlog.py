"""Facts that loomid has not acknowledged yet: numbered, encoded, bounded.

Pure: no thread, no socket, no clock. The link thread alone uses it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any

from . import wire

# 20,000 facts are some ten minutes of a fast stream, or hours of ordinary turns; 32 MiB is
# what a gateway of 100-200 MiB can spare. One fact over 4 MiB would crowd out all others.
MAX_FACTS = 20_000
MAX_BYTES = 32 << 20
MAX_FACT_BYTES = 4 << 20
# Sent but not acknowledged: some 4,000 facts, enough for thousands a second at a commit every
# few milliseconds, and all that loomid must hold for one gateway while its disk is slow.
WINDOW_BYTES = 1 << 20
# One message: some 250 facts, which loomid takes in a few milliseconds.
BATCH_BYTES = 64 << 10
# Deltas that wait are joined up to this many characters (each joining encodes it again).
MERGE_CHARS = 2_000

DELTA, PREVIEW, LASTING = range(3)
_REASONS = ("overflow_delta", "overflow_preview", "overflow_lasting")
# What loomid needs to end runs and to keep promises goes last; what is not listed here is
# a preview: it makes a run nicer to watch, and its loss shows at most as a missing line.
_LASTING = {"approval.asked", "approval.done", "turn.ended", "turn.answered", "stream.ended"}
_LASTING |= {"api.failed", "loop.stopped", "processing.ended", "session.reset"}
_LASTING |= {"sent", "inventory", "dropped"}


def rank(kind: str, body: dict[str, Any]) -> int:
    """Which facts are dropped first when there is no room: the lowest."""
    if kind == "delta" or (kind == "edited" and not body.get("finalize")):
        return DELTA
    return LASTING if kind in _LASTING or kind == "edited" else PREVIEW


class Backlog:
    """Numbers facts 1, 2, … and keeps them until they are acknowledged or must go.

    Numbers rise strictly and are never given twice; only what was dropped leaves a gap.
    """

    def __init__(self, max_facts: int = MAX_FACTS, max_bytes: int = MAX_BYTES) -> None:
        self.dropped: Counter[str] = Counter()
        self.bytes = 0
        self._max = max_facts, max_bytes
        self._facts: OrderedDict[int, tuple[int, bytes]] = OrderedDict()  # n → rank, encoded
        self._ranks: tuple[deque[int], ...] = (deque(), deque(), deque())
        self._last = 0
        self._sent = 0  # highest number sent since the last rewind
        self._batch = 0  # highest number in the last batch
        self._flight = 0  # bytes sent and not acknowledged
        self._tail: tuple[float, dict[str, Any]] | None = None  # the last fact, if a delta

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def first(self) -> int:
        """Number of the oldest fact that is still here (or of the next one)."""
        return next(iter(self._facts), self._last + 1)

    def add(self, kind: str, t: float, body: dict[str, Any]) -> None:
        """Take a fact in; what cannot be encoded, or finds no room, is counted."""
        if kind == "delta" and self._merge(body):
            return
        self._tail = None
        try:
            data = wire.dump([self._last + 1, t, kind, body])
        except wire.WireError:
            self.dropped["invalid"] += 1
            return
        if len(data) > MAX_FACT_BYTES:
            self.dropped["too_large"] += 1
            return
        self._last += 1
        level = rank(kind, body)
        self._put(self._last, level, data)
        self._ranks[level].append(self._last)
        if kind == "delta":
            self._tail = t, body
        self._make_room()

    def _merge(self, body: dict[str, Any]) -> bool:
        """Join a delta to the one before it, while that still waits here."""
        if self._tail is None or self._last <= self._sent or self._last not in self._facts:
            return False
        t, before = self._tail
        old, new = before.get("text"), body.get("text")
        if not (isinstance(old, str) and isinstance(new, str)):
            return False
        if before | {"text": new} != body or len(old) + len(new) > MERGE_CHARS:
            return False
        joined = before | {"text": old + new}
        self._put(self._last, DELTA, wire.dump([self._last, t, "delta", joined]))
        self._tail = t, joined
        self._make_room()
        return True

    def _put(self, n: int, level: int, data: bytes) -> None:
        self.bytes += len(data) - len(self._facts.get(n, (0, b""))[1])
        self._facts[n] = level, data

    def _forget(self, n: int) -> None:
        size = len(self._facts.pop(n)[1])
        self.bytes -= size
        if n <= self._sent:
            self._flight -= size

    def _make_room(self) -> None:
        while len(self._facts) > self._max[0] or self.bytes > self._max[1]:
            level = next(level for level in range(3) if self._oldest(level))
            self._forget(self._ranks[level].popleft())
            self.dropped[_REASONS[level]] += 1

    def _oldest(self, level: int) -> int | None:
        numbers = self._ranks[level]
        while numbers and numbers[0] not in self._facts:
            numbers.popleft()  # acknowledged meanwhile
        return numbers[0] if numbers else None

    def ack(self, n: int) -> None:
        """Every fact up to n is on loomid's disk."""
        while self._facts and self.first <= n:
            self._forget(self.first)
        for level in range(3):
            self._oldest(level)

    def rewind(self, ack: int = 0) -> None:
        """A new connection: what is not acknowledged is to be sent again."""
        self.ack(ack)
        self._tail = None  # loomid may have it already: what is joined now would be lost
        self._sent = self._flight = 0

    def batch(self) -> list[bytes]:
        """The next facts to send, within the window; `sent` tells that they left."""
        out: list[bytes] = []
        size = 0
        if self._last == self._sent or self._flight >= WINDOW_BYTES:
            return out
        for n, (_, data) in self._facts.items():
            if n <= self._sent:
                continue
            # One fact always fits: it may be larger than a batch, or than the window.
            if out and size + len(data) > BATCH_BYTES:
                break
            out.append(data)
            size += len(data)
            self._batch = n
        return out

    def sent(self, batch: list[bytes]) -> None:
        """The facts of this batch, the last that `batch` gave, are on their way."""
        self._sent = self._batch
        self._flight += sum(map(len, batch))
