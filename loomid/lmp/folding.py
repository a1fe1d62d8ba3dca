"""One fold: what comes of it, what must be kept to repeat it, when time matters.

Recovery rests on one rule: the state of each *owner* (a turn, an approval, a message on
its way, the gateway) follows from the arrivals that touched it. An arrival is kept while
an owner that it touched lives, so folding the kept ones again gives the same state.
Its tag follows from the arrival alone: folded again, it may touch fewer owners, as
some are gone by then, but must be found under the same tag.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loomid.lmp.frames import Event, Payload
from loomid.wire import ApprovalAsked, FileSent, QuestionAsked

if TYPE_CHECKING:
    from loomid.lmp.facts import Arrival
    from loomid.lmp.history_frames import Part
    from loomid.lmp.merging import Merge

_ASKED = (ApprovalAsked, QuestionAsked)
"""They touch more than the turn that they name."""


@dataclass(frozen=True)
class TaskSeen:
    """A task showed a sign of life."""

    task_id: str
    gateway_id: str
    session_key: str | None
    session_id: str
    surface: str
    model: str | None
    at: float
    prompt: str | None


@dataclass(frozen=True)
class FileSeen:
    """A file of the agent's is to be taken in; what became of it is a fact `file.taken`."""

    boot: str
    task_id: str | None
    fact: FileSent


@dataclass(frozen=True)
class FileTold:
    """A file that the agent sent was told as a part of its run, for the history of that. In this
    time, on Hermes' clock, the run's hooks were called until then."""

    task_id: str
    began: float
    until: float
    part: Part


@dataclass(frozen=True)
class Outcome:
    """What one arrival came to.

    A turn's own facts have its id as their tag; all other tags begin with "~". No tag
    is used again once it was released.
    """

    events: tuple[Event, ...] = ()
    retain: str | None = None
    """Tag under which the store keeps this fact; None: it need not be kept."""
    release: tuple[str, ...] = ()
    """Tags whose stored facts, this one's included, may be deleted with this commit."""
    tasks: tuple[TaskSeen, ...] = ()
    files: tuple[FileSeen, ...] = ()
    told: tuple[FileTold, ...] = ()
    merge: Merge | None = None
    """Stored facts, this one included, that may be replaced by one."""


class Folding:
    """Collects what one arrival causes."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.at = arrival.at
        self.t = arrival.t
        self.cause = (arrival.t, arrival.at) if arrival.n else None
        """What an event's cause is, as it has it."""
        self.boot = arrival.boot
        self.events: list[Event] = []
        self.tasks: list[TaskSeen] = []
        self.files: list[FileSeen] = []
        self.told: list[FileTold] = []
        self.touched: set[str] = set()
        """Owners whose state changed."""
        self.gone: set[str] = set()
        """Owners that are no more."""
        self.released: list[str] = []
        self.merge: Merge | None = None

    def emit(
        self, payload: Payload, *, task_id: str | None = None, run_id: str | None = None
    ) -> None:
        """One event, in order."""
        self.events.append(Event(payload, self.at, task_id, run_id, self.cause))


def tag_of(arrival: Arrival) -> str:
    """A turn's own facts, which touch nothing else, share its id; others stand alone."""
    turn_id: str | None = getattr(arrival.fact, "turn_id", None)
    if turn_id is not None and type(arrival.fact) not in _ASKED:
        return turn_id
    if arrival.n:
        return f"~{arrival.boot}:{arrival.n}"
    return f"~{arrival.kind}:{arrival.boot}:{arrival.at!r}"


class Retention:
    """Which tags are still needed, and by which owners."""

    def __init__(self) -> None:
        self._tags: dict[str, set[str]] = {}  # owner → tags
        self._owners: dict[str, set[str]] = {}  # tag → owners

    def keep(self, arrival: Arrival, touched: set[str]) -> str | None:
        """The tag for an arrival that touched these owners; None if there are none."""
        if not touched:
            return None
        tag = tag_of(arrival)
        for owner in touched:
            self._hold(tag, owner)
        return tag

    def adopt(self, owner: str, former: str) -> None:
        """What the former owner needed, this one needs from now on."""
        for tag in self._tags.pop(former, ()):
            self._owners[tag].discard(former)
            self._hold(tag, owner)

    def share(self, owner: str, other: str) -> None:
        """What the other owner needs, this one needs as well."""
        for tag in self._tags.get(other, ()):
            self._hold(tag, owner)

    def renew(self, out: Folding, owner: str) -> None:
        """The owner needs this arrival, and none before it."""
        out.touched.add(owner)
        tag = tag_of(out.arrival)
        self._hold(tag, owner)
        out.released += self.drop(owner, [other for other in self._tags[owner] if other != tag])

    def release(self, owner: str) -> list[str]:
        """The owner is gone: the tags that nobody needs any more."""
        return self._free(owner, sorted(self._tags.pop(owner, ())))

    def drop(self, owner: str, tags: list[str]) -> list[str]:
        """The owner needs these no longer: those that nobody needs any more."""
        held = self._tags.get(owner, set())
        going = held.intersection(tags)
        held -= going
        return self._free(owner, sorted(going))

    def _free(self, owner: str, tags: list[str]) -> list[str]:
        free: list[str] = []
        for tag in tags:
            owners = self._owners[tag]
            owners.discard(owner)
            if not owners:
                del self._owners[tag]
                free.append(tag)
        return free

    def _hold(self, tag: str, owner: str) -> None:
        self._tags.setdefault(owner, set()).add(tag)
        self._owners.setdefault(tag, set()).add(owner)


class Alarms:
    """When each owner wants to be woken, the earliest first."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, owner: str, at: float | None) -> None:
        """Wake this owner then; None: not at all."""
        if at is None:
            self._at.pop(owner, None)
        elif self._at.get(owner) != at:
            self._at[owner] = at
            heapq.heappush(self._heap, (at, owner))
            if len(self._heap) > 2 * len(self._at) + 64:
                # Alarms that were moved lie here until their time, which may be hours away.
                self._heap = [(due, name) for name, due in self._at.items()]
                heapq.heapify(self._heap)

    @property
    def next(self) -> float | None:
        """The earliest alarm."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, at: float) -> list[str]:
        """Owners whose time has come, in order; their alarms are spent."""
        owners: list[str] = []
        while (first := self.next) is not None and first <= at:
            owner = heapq.heappop(self._heap)[1]
            del self._at[owner]
            owners.append(owner)
        return owners
