"""Drives the fold of runs as loomid's pump does: due ticks between arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomid.lmp.facts import Arrival, Tick, Unheard
from loomid.lmp.runs import Outcome, Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loomid.lmp.frames import Event
    from loomid.lmp.merging import Merge

KEY = b"k" * 32


class Driver:
    """One gateway's fold, with what the store would hold."""

    def __init__(self, gateway_id: str = "gw", *, boot: str = "boot", t0: float = 1_000.0) -> None:
        self.gateway_id = gateway_id
        self.boot = boot
        self.now = t0
        self.runs = Runs(gateway_id, KEY)
        self.events: list[Event] = []
        self.outcomes: list[Outcome] = []
        self.stored: list[tuple[str, Arrival]] = []
        self.ended: list[str] = []
        self._n = 0

    def take(self, arrival: Arrival) -> list[Event]:
        """Ticks that fall due before it, then the arrival; returns the events."""
        before = len(self.events)
        while (due := self.runs.deadline) is not None and due < arrival.at:
            self._fold(Arrival(self.gateway_id, "", 0, due, due, Tick()))
        self._fold(arrival)
        return self.events[before:]

    def fact(self, fact: Any, *, dt: float = 0.0, n: int | None = None) -> list[Event]:
        """A fact `dt` seconds after the last one."""
        self.now += dt
        self._n += 1
        number = 0 if type(fact).__module__.endswith("lmp.facts") else self._n
        return self.take(Arrival(self.gateway_id, self.boot, n or number, self.now, self.now, fact))

    def facts(self, facts: Iterable[Any], *, dt: float = 0.001) -> list[Event]:
        """Several facts, one after the other."""
        return [event for fact in facts for event in self.fact(fact, dt=dt)]

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass."""
        return self.fact(Tick(), dt=seconds)

    def sleep(self, seconds: float) -> None:
        """Let time pass while loomid is asleep: no ticks."""
        self.now += seconds
        self._fold(Arrival(self.gateway_id, "", 0, self.now, self.now, Unheard()))

    def recovered(self) -> Runs:
        """What a restarted loomid would make of what is stored."""
        runs = Runs(self.gateway_id, KEY, self.ended)
        for _, arrival in self.stored:
            runs.fold(arrival)
        return runs

    def _fold(self, arrival: Arrival) -> None:
        outcome = self.runs.fold(arrival)
        self.events += outcome.events
        self.outcomes.append(outcome)
        if outcome.retain is not None:
            self.stored.append((outcome.retain, arrival))
        if outcome.merge is not None:
            self._merge(outcome.merge)
        if outcome.release:
            gone = set(outcome.release)
            self.stored = [(tag, kept) for tag, kept in self.stored if tag not in gone]
            self.ended += [tag for tag in outcome.release if not tag.startswith("~")]

    def _merge(self, merge: Merge) -> None:
        """As the store does it: the first of them becomes what all were."""
        whole = merge.arrival
        merged = [
            i
            for i, (tag, one) in enumerate(self.stored)
            if tag == merge.tag and one.boot == whole.boot and merge.first <= one.n <= whole.n
        ]
        self.stored[merged[0]] = merge.tag, whole
        for i in reversed(merged[1:]):
            del self.stored[i]


_ROWS: dict[str, Callable[[Any], list[Any]]] = {
    "run.started": lambda p: ["started", p.title, p.surface, p.provider, ",".join(p.can)],
    "run.delta": lambda p: ["delta", p.kind, p.iteration, p.text],
    "run.text": lambda p: ["text", p.iteration, p.text],
    "run.input": lambda p: ["input", p.text],
    "run.interim": lambda p: ["interim", p.text, p.already_streamed],
    "run.tool_started": lambda p: ["tool", p.iteration, p.index, p.tool, p.preview],
    "run.tool_finished": lambda p: ["tool end", p.iteration, p.index, p.tool, p.ok],
    "run.completed": lambda p: ["completed", p.status, p.text, p.error, p.finished],
    "run.failed": lambda p: ["failed", p.error],
    "approval.required": lambda p: ["approval", p.command, [c.choice for c in p.choices]],
    "approval.resolved": lambda p: ["resolved", p.choice, p.decided_by, p.outcome],
    "notification": lambda p: ["notification", p.category, p.source, p.text],
    "gateway.status": lambda p: ["gateway", p.online],
    "task.updated": lambda p: ["task", p.status],
}


def brief(events: Iterable[Event]) -> list[list[Any]]:
    """Events as short rows, ids and times left out, adjacent deltas joined."""
    rows: list[list[Any]] = []
    for event in events:
        row = _ROWS[event.type](event.payload)
        if row[0] == "delta" and rows and rows[-1][:3] == row[:3]:
            rows[-1][3] += row[3]
        else:
            rows.append(row)
    return rows


def views(events: Iterable[Event]) -> dict[str, dict[int, str]]:
    """run id → iteration → text, as a phone that follows the events would show it."""
    shown: dict[str, dict[int, str]] = {}
    for event in events:
        p: Any = event.payload
        texts = shown.setdefault(event.run_id or "", {})
        if event.type == "run.delta" and p.kind == "text":
            texts[p.iteration] = texts.get(p.iteration, "") + p.text
        elif event.type == "run.text":
            texts[p.iteration] = p.text
    return shown
