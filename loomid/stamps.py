"""When each of the newest events came along: hook, received, committed, written.

All times are epoch seconds of this host's clock, the hook's included. Bounded memory, and
nothing on disk: it is for the owner who wonders what is slow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loomid.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loomid.lmp.frames import Event

TOLD_KEPT = 4096
WRITES_KEPT = 16_384


class Told(NamedTuple):
    """The events first … last (positions), which came of one fact at one time.

    `cause` and `folded` are the events' own `cause` and `ts`: what was held back on purpose
    (joined deltas, the end of a turn) is folded later than it was received.
    """

    first: int
    last: int
    cause: tuple[float, float] | None
    folded: float
    committed: float


_ToldRow = tuple[int, int, tuple[float, float] | None, float, float]
"""As Told: no class of its own while nobody asks, as one is made for each event."""
_Write = tuple[str, int, int, float]
"""device, after, upto, at: the events of (after, upto] were handed to its socket."""
_origin = attrgetter("cause", "ts")
_last = itemgetter(1)


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
        self._told: deque[_ToldRow] = deque(maxlen=TOLD_KEPT)
        self._writes: deque[_Write] = deque(maxlen=WRITES_KEPT)
        self._observed = 0  # up to here hook_to_phone has them, or never will

    def shown(self, first: int, events: Iterable[Event]) -> None:
        """These became visible, under positions from `first` on."""
        now = self._clock()
        for (cause, folded), caused in groupby(events, key=_origin):
            before = first
            for event in caused:
                self.events[event.type] += 1
                first += 1
            self._told.append((before, first - 1, cause, folded, now))

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
        for first, last, cause, folded, _ in reversed(self._told):
            if last <= self._observed:
                break
            count = min(last, upto) - max(first - 1, self._observed)
            if cause is not None and count > 0:
                hook, received = cause
                self.hook_to_phone.observe(now - folded + received - hook, count)
        self._observed = upto

    # ── looking back ────────────────────────────────────────────────────────

    def of(self, position: int) -> Told | None:
        """When the event there came along; None: too long ago, or before our start."""
        at = bisect_left(self._told, position, key=_last)
        if at == len(self._told) or self._told[at][0] > position:
            return None
        return Told(*self._told[at])

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
