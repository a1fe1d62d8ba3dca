"""What is alive, by the events that phones can see: runs, approvals, questions, gateways.

Snapshots and what each connecting phone is told are read from here, so it follows
visible events only. Its memory is bounded by what is alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loomid.lmp import frames
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.frames import Event
from loomid.lmp.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import UnsetType


DECISIONS = frozenset({"approval", "question"})
"""What waits for a decision."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How an event changes what is alive; `kind` is run, gateway, or one of DECISIONS."""

    kind: str
    id: str
    alive: bool


_MARKS: dict[type[frames.Payload], tuple[str, bool]] = {
    frames.RunStarted: ("run", True),
    frames.RunCompleted: ("run", False),
    frames.RunFailed: ("run", False),
    frames.ApprovalRequired: ("approval", True),
    frames.ApprovalResolved: ("approval", False),
    frames.QuestionRequired: ("question", True),
    frames.QuestionResolved: ("question", False),
    frames.GatewayStatus: ("gateway", True),
    frames.GatewayForgotten: ("gateway", False),
}


def mark(event: Event) -> Mark | None:
    """What begins or ceases to be alive with this event."""
    # By a table: almost all events are deltas, and a thousand a second pass here.
    found = _MARKS.get(type(event.payload))
    if found is None:
        return None
    kind, alive = found
    return Mark(kind, getattr(event.payload, f"{kind}_id"), alive)


@dataclass(frozen=True, slots=True)
class Placed:
    """An event and its position in the log."""

    position: int
    event: Event


@dataclass(slots=True)
class _Text:
    """All text so far of one (iteration, kind)."""

    last: Event
    text: Text
    part: str | UnsetType


@dataclass(slots=True)
class _Run:
    started: Event
    # In the order of first appearance: ("text", iteration, kind), ("tool", iteration, call_id),
    # and what was said beside the stream, or sent: ("said", position, "").
    shown: dict[tuple[str, int, str], _Text | Event] = field(default_factory=dict)

    def events(self) -> Iterator[Event]:
        yield self.started
        for (_, iteration, kind), item in self.shown.items():
            if isinstance(item, Event):
                yield item
                continue
            payload = frames.RunDelta(
                run_id=item.last.run_id or "",
                text=str(item.text),
                kind="reasoning" if kind == "reasoning" else "text",
                iteration=iteration,
                part=item.part,
            )
            yield Event(payload, item.last.ts, item.last.task_id, item.last.run_id)


class Projection:
    """Folds visible events, in order, into what is alive after them."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, Placed] = {}
        self._gateways: dict[str, Event] = {}

    def apply(self, event: Event, position: int) -> None:
        """Take in the next visible event."""
        change = mark(event)
        if change is None:
            self._show(event, position)
        elif change.kind == "gateway" and change.alive:
            self._gateways[change.id] = event
        elif change.kind == "gateway":
            self._gateways.pop(change.id, None)
        elif change.kind == "run":
            self._runs.pop(change.id, None)
            if change.alive:
                self._runs[change.id] = _Run(event)
        elif change.alive:
            self._waiting[change.id] = Placed(position, event)
        else:
            self._waiting.pop(change.id, None)

    def _show(self, event: Event, position: int) -> None:
        run = self._runs.get(event.run_id or "")
        if run is None:
            return
        match event.payload:
            case frames.RunDelta(text=text, kind=kind, iteration=iteration, part=part):
                item = run.shown.get(("text", iteration, kind))
                if isinstance(item, _Text):
                    item.last = event
                    item.text.add(text)
                else:
                    run.shown["text", iteration, kind] = _Text(event, Text(text), part)
            case frames.RunText(text=text, iteration=iteration, part=part):
                key = ("text", iteration, "text")
                # Replaced where it stands, so that the causal order stays.
                run.shown[key] = _Text(event, Text(text), part)
                if not text:
                    del run.shown[key]
            case frames.RunInput() | frames.RunInterim(already_streamed=False) | RunAttachment():
                run.shown["said", position, ""] = event
            case frames.RunToolStarted(iteration=iteration, call_id=call_id):
                run.shown["tool", iteration, call_id] = event
            case frames.RunToolFinished(iteration=iteration, call_id=call_id):
                run.shown.pop(("tool", iteration, call_id), None)
            case _:
                pass

    def gateway(self, gateway_id: str) -> Event | None:
        """The last `gateway.status` of one."""
        return self._gateways.get(gateway_id)

    def gateways(self) -> list[Event]:
        """The last `gateway.status` of each gateway."""
        return list(self._gateways.values())

    def snapshot(self) -> list[Event]:
        """The gateways, then each live run with its text and open tools (docs/protocol.md), and
        with what nothing else in it tells: messages folded in, interims not streamed, files."""
        return [*self.gateways(), *(e for run in self._runs.values() for e in run.events())]

    def pending(self, *types: type[frames.Payload]) -> list[Placed]:
        """What still waits for a decision, oldest first: all, or the events of these types."""
        return [p for p in self._waiting.values() if not types or type(p.event.payload) in types]

    def waiting(self) -> Mapping[str, Placed]:
        """The same by id; not a copy."""
        return self._waiting

    def live_runs(self) -> list[str]:
        """Ids of the runs without an end, oldest first."""
        return list(self._runs)

    def run_of(self, task_id: str) -> str | None:
        """The newest live run of a task."""
        return next(
            (name for name, run in reversed(self._runs.items()) if run.started.task_id == task_id),
            None,
        )

    def status(self, task_id: str) -> frames.TaskStatus:
        """Whether a task waits for a decision, runs, or neither."""
        if any(placed.event.task_id == task_id for placed in self._waiting.values()):
            return "waiting"
        return "running" if self.run_of(task_id) else "idle"
