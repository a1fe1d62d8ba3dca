"""When each of the newest events came along: hook, received, committed, written.

All times are epoch seconds of this host's clock, the hook's included. Bounded memory, and
nothing on disk: it is for the owner who wonders what is slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loomid.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from loomid.lmp.frames import Event

TOLD_KEPT = 4096
WRITES_KEPT = 16_384


class Told(NamedTuple):
    """When one event came along; `cause` and `folded` are the event's own `cause` and `ts`.

    What was held back on purpose (joined deltas, the end of a turn) is folded later than it
    was received.
    """

    cause: tuple[float, float] | None
    folded: float
    committed: float


_Batch = tuple[int, list[tuple[tuple[float, float] | None, float]], float]
"""Position of the first event, `cause` and `ts` of each, and when they were committed."""
_Write = tuple[str, int, int, float]
"""device, after, upto, at: the events of (after, upto] were handed to its socket."""
_first = itemgetter(0)


class Stamps:
    """Stamps of the newest events, and what can be counted on the way."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.events: Counter[str] = Counter()
        """Events made visible, by type."""
        self.commits = Histogram()
        self.hook_to_phone = Histogram()
        """Each event that a hook caused, once, at its first write to any phone, without the
        time that it was held back on purpose."""
        self._clock = clock
        self._told: deque[_Batch] = deque()
        self._kept = 0
        self._writes: deque[_Write] = deque(maxlen=WRITES_KEPT)
        self._observed = 0  # up to here hook_to_phone has them, or never will

    def shown(self, first: int, types: Iterable[str], events: Sequence[Event]) -> None:
        """These became visible, under positions from `first` on."""
        self.events.update(types)
        self._told.append((first, [(event.cause, event.ts) for event in events], self._clock()))
        self._kept += len(events)
        while self._kept - len(self._told[0][1]) >= TOLD_KEPT:
            self._kept -= len(self._told.popleft()[1])

    def wrote(self, device_id: str, after: int, upto: int) -> None:
        """All of (after, upto] is handed to a device's socket now."""
        now = self._clock()
        self._writes.append((device_id, after, upto, now))
        if upto > self._observed:
            self._observe(upto, now)

    def skip(self, upto: int) -> None:
        """No phone was there for these: what they waited for says nothing of us."""
        self._observed = max(self._observed, upto)

    def _observe(self, upto: int, now: float) -> None:
        for first, origins, _ in reversed(self._told):
            if first + len(origins) <= self._observed + 1:
                break
            for cause, folded in origins[
                max(self._observed + 1 - first, 0) : max(upto + 1 - first, 0)
            ]:
                if cause is not None:
                    hook, received = cause
                    self.hook_to_phone.observe(now - folded + received - hook)
        self._observed = upto

    # ── looking back ────────────────────────────────────────────────────────

    def of(self, position: int) -> Told | None:
        """When the event there came along; None: too long ago, or before our start."""
        at = bisect_right(self._told, position, key=_first) - 1
        if at < 0:
            return None
        first, origins, committed = self._told[at]
        if position >= first + len(origins):
            return None
        return Told(*origins[position - first], committed)

    def writes(self, position: int) -> dict[str, list[float]]:
        """When the event there was handed to a socket, by device, each oldest first."""
        found: dict[str, list[float]] = {}
        for device_id, after, upto, at in self._writes:
            if after < position <= upto:
                found.setdefault(device_id, []).append(at)
        return found

    def remembers(self, at: float) -> bool:
        """Whether every write since then is still known."""
        return len(self._writes) < WRITES_KEPT or self._writes[0][3] <= at
