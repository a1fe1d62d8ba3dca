"""One paired device: what it keeps, and what it checks of every frame."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chaos.frame import ASKING, EVENTS, LASTING, Frame
from tests.chaos.history import Follower, History, Seen, Told
from tests.support.view import View, asked_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.chaos.judge import Judge
    from tests.chaos.trace import Violated

SEEN_KEPT = 8_000
WINDOW = 400
"""Who missed no more than this must not be told `truncated` (docs/protocol.md says 512; the
witness may not have seen the newest)."""
AHEAD = 10**10
ABSURD = 2**51 + 5
"""A last_seq that no server of this kind has given; it is refused."""
CHECKPOINT_ODDS = 0.03


@dataclass(frozen=True, slots=True)
class Stored:
    """What lies on the phone's disk: a state that it may go on from."""

    seq: int
    view: View
    at: int
    whole: bool
    recent: tuple[float, tuple[int, ...]] = (0.0, ())


@dataclass(slots=True)
class Resuming:
    """What a hello said, and what may come of it."""

    how: str
    last_seq: int | None
    missed: int | None
    """Events since then, at least; None: nothing can be said of it."""


class Device:
    """The state of a device over all its connections; `oracle` knows the witness' history."""

    def __init__(
        self, name: str, oracle: Oracle, rng: Random, violated: Violated, *, witness: bool = False
    ) -> None:
        self.name = name
        self.witness = witness
        self.device_id = self.credential = ""
        self.view = View()
        self.seq = 0
        self.follower = Follower(oracle.history, violated)
        self.truncations = 0
        self.frames = 0
        self._oracle, self._rng, self._violated = oracle, rng, violated
        self._older: Stored | None = None
        self._era = oracle.era
        self._top = 0  # the highest seq of its life
        self._seen: OrderedDict[int, int] = OrderedDict()  # seq → content
        self._here = 0  # the last seq of this connection
        self._again: set[str] | None = None  # what it was asked on this connection, until judged
        self._amid = False  # a snapshot has begun and is not complete
        self._unsure = False  # the last snapshot was cut off
        self._lasting: list[int] = []
        self._told_at = 0.0  # the time of the last task.updated
        self._recent: list[int] = []  # all of that time
        self._went_back = False
        self._resuming = Resuming("right", None, None)
        self._after: int | None = None

    # ── hello ───────────────────────────────────────────────────────────────

    def hello(self, how: str) -> int | None:
        """The last_seq to say: `right`, `lower` (an earlier state), `low` (as new), `high`
        (far beyond), `absurd` or `none`."""
        if self._amid:
            self._unsure, self._amid = True, False
        if how == "lower" and self._older is not None and self._older.seq < self.seq:
            self._go_back(self._older)
        elif how == "low":
            self._go_back(Stored(0, View(), -1, whole=True))
            self._unsure = True
        said = {"none": None, "high": self.seq + AHEAD, "absurd": ABSURD}.get(how, self.seq)
        if how == "high":
            said = self.seq = self._top = max(self._top, self.seq + AHEAD)
            self._unsure = True
        place = self.follower.place
        here = len(self._oracle.history)
        missed = None if place is None else here - 1 - place
        self._resuming = Resuming(how, said, missed)
        return said

    def _go_back(self, stored: Stored) -> None:
        self._went_back = True
        self.seq, self.view = stored.seq, stored.view.copy()
        self._told_at, recent = stored.recent
        self._recent = list(recent)
        self.follower.back_to(stored.at, whole=stored.whole)

    def greeted(self, frame: Frame, era: int, *, snapshot: bool) -> None:
        """hello.ok on a connection that was made in that era, with that capability."""
        truncated, said = frame.payload["truncated"], self._resuming
        if not self.device_id:  # newly paired
            self.device_id = frame.payload["device_id"]
            self.credential = frame.payload["credential"]
        else:
            self._check_truncated(truncated, era)
        if frame.seq != frame.payload["last_seq"]:
            self._violated("hello", what="last_seq", device=self.name)
        if said.last_seq is not None and self.device_id and frame.seq < said.last_seq:
            self._violated("seq went back", device=self.name, seq=frame.seq, said=said.last_seq)
        if said.how == "none" and era != self._era:
            # It has forgotten what it saw, and an exchanged file may not know of the numbers
            # that it was given for those it once claimed.
            self._top = 0
        known = said.how in {"right", "lower"} and not self._unsure and era == self._era
        self._here = frame.seq
        self._again = set()
        self._era = era
        self._lasting = []
        if truncated:
            self.truncations += 1
            self._missed(snapshot=snapshot, since=self.follower.place if known else None)
            self.seq = self.seq if snapshot else frame.seq
        if not self._amid:
            self._unsure = False

    def _check_truncated(self, truncated: bool, era: int) -> None:
        said = self._resuming
        must = era != self._era or said.how in {"none", "high"}
        if must and not truncated:
            self._violated("not truncated", device=self.name, how=said.how)
        sure = said.how in {"right", "lower"} and not self._unsure and era == self._era
        few = said.missed is not None and said.missed <= WINDOW
        if truncated and sure and few:
            self._violated("truncated", device=self.name, missed=said.missed, seq=said.last_seq)

    def _missed(self, *, snapshot: bool, since: int | None) -> None:
        self.view.forget()
        self._recent.clear()
        self._older = None
        self._amid = snapshot
        self._after = since
        self.follower.truncated(self._oracle.history, whole=snapshot)
        if self.witness:
            self._oracle.witness_missed(expected=self._resuming.last_seq)

    # ── frames ──────────────────────────────────────────────────────────────

    def take(self, frame: Frame) -> None:
        """Any frame after hello.ok."""
        self.frames += 1
        self._number(frame)
        if frame.type in ASKING and self._again is not None:
            self._again.add(asked_id(frame.payload))
        if frame.type == "snapshot.done":
            self._complete()
        elif frame.type not in EVENTS:
            self._asked_again()
        elif frame.replay:
            self._told(frame)
        else:
            self._event(frame)
        if not self._amid:
            self.seq = frame.seq

    def _number(self, frame: Frame) -> None:
        """Numbers rise, and none ever stands for two things."""
        seq, content = frame.seq, frame.content
        if seq <= self._here:
            self._violated("reordered", device=self.name, seq=seq, after=self._here)
        self._here = seq
        before = self._seen.get(seq)
        if before is not None and before != content:
            self._violated("two contents", device=self.name, seq=seq, type=frame.type)
        elif before is None and seq <= self._top and not self._went_back:
            self._violated("seq went back", device=self.name, seq=seq, top=self._top)
        if seq > self._top:
            self._top, self._went_back = seq, False
        self._seen[seq] = content
        if len(self._seen) > SEEN_KEPT:
            self._seen.popitem(last=False)

    def _asked_again(self) -> None:
        """All that waits comes again on each connection, before the first answer to it."""
        if self._again is not None:
            missing = self.view.approvals.keys() - self._again
            if missing:
                self._violated("not asked again", device=self.name, missing=sorted(missing))
            self._again = None

    def _told(self, frame: Frame) -> None:
        """What is told again: of a snapshot, or what still waits."""
        if frame.type in LASTING:
            self._lasting.append(frame.content)
        else:
            self.view.apply(frame.type, frame.payload)
        if not self._amid and frame.type not in ASKING:
            self._violated("replay", device=self.name, type=frame.type)

    def _complete(self) -> None:
        if not self._amid:
            self._violated("snapshot", device=self.name, what="done without a beginning")
        self._amid = self._unsure = False
        self.follower.told(Told(self._lasting, self._after))
        self._lasting = []
        if self.witness and self._era == self._oracle.era:  # not of a loomid that is gone
            self._oracle.witness_back(self.view.digests)
            self.follower.truncated(self._oracle.history, whole=True)

    def _content(self, frame: Frame) -> int:
        """What makes an event itself. loomid may tell the same of a task twice in one step, as
        when two runs of it end at once: these are counted."""
        if frame.type != "task.updated":
            return frame.content
        if frame.ts != self._told_at:
            self._told_at = frame.ts
            self._recent.clear()
        self._recent.append(frame.content)
        return hash((frame.content, self._recent.count(frame.content)))

    def _event(self, frame: Frame) -> None:
        if self._amid:
            self._violated("snapshot", device=self.name, what="an event amid it")
        before = self.view.digests
        ended = self.view.apply(frame.type, frame.payload)
        seen = Seen(self._content(frame), frame.type, before, self.view.digests)
        if self.witness:
            self._oracle.witnessed(frame, seen)
            self._oracle.judge.event(frame, ended)
            self.follower.at = len(self._oracle.history) - 1
            return
        self.follower.event(seen)
        at = self.follower.at
        if at is not None and not self.follower.behind and self._rng.random() < CHECKPOINT_ODDS:
            recent = self._told_at, tuple(self._recent)
            self._older = Stored(frame.seq, self.view.copy(), at, self.follower.whole, recent)


class Oracle:
    """The witness' history of this era, and who follows it."""

    def __init__(self, judge: Judge, violated: Violated) -> None:
        self.era = 0
        self.judge = judge
        self.history = History((0, 0))
        self.devices: list[Device] = []
        self.events = 0
        self.complete = True
        """The witness stands in this era's history: others may connect."""
        self._violated = violated

    def new_era(self) -> None:
        """Events may be lost now, while no loomid runs: everyone must be told."""
        self.era += 1
        self.complete = False
        self.judge.new_era()

    def witness_missed(self, **details: Any) -> None:
        """The witness was told that it missed something."""
        if self.complete:
            self._violated("witness truncated", **details)
        self.complete = False

    def witness_back(self, digests: tuple[int, int]) -> None:
        """Its snapshot is complete: this is where the era's history begins."""
        self.history = History(digests)
        self.complete = True
        self.judge.begin()

    def witnessed(self, frame: Frame, seen: Seen) -> None:
        """The witness saw an event."""
        self.events += 1
        if not self.history.add(seen.content, seen.type, seen.after):
            self._violated("twice", what="event", type=frame.type, payload=frame.payload)
        for device in self.devices:
            if device.follower.history is self.history:
                device.follower.follow()

    def conclude(self, restored_at: Sequence[int] = ()) -> None:
        """All is quiet: everyone has seen the same, and it is what the host did."""
        for device in self.devices:
            follower = device.follower
            if follower.behind:
                self._violated("unknown event", device=device.name, events=follower.behind)
            place = follower.at
            if place is not None and place != len(self.history) - 1:
                self._violated("lost", what="events", device=device.name, at=place)
            mine, witness = device.view.digests, self.history.digests(len(self.history) - 1)
            if mine != witness:
                self._violated("view", what="in the end", device=device.name)
        self.judge.conclude(restored_at)
