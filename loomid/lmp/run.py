"""One run as phones see it: its events, told in the order they are given."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from loomid.lmp import ids
from loomid.lmp.coalesce import Coalescer, Kind
from loomid.lmp.folding import TaskSeen
from loomid.lmp.frames import (
    Origin,
    Payload,
    RunCompleted,
    RunFailed,
    RunInput,
    RunInterim,
    RunText,
    TaskUpdated,
)
from loomid.lmp.parts import Rounds
from loomid.lmp.preview import cut
from loomid.lmp.text import Change, Iteration
from loomid.lmp.usage import Tally

if TYPE_CHECKING:
    from loomid.lmp.endings import Ending
    from loomid.lmp.folding import Folding
    from loomid.lmp.host import Host
    from loomid.lmp.start import Start
    from loomid.lmp.tools import Tool


@dataclass(frozen=True)
class RunView:
    """A run as commands see it."""

    run_id: str
    task_id: str
    turn_id: str
    session_key: str | None
    surface: str
    can: tuple[str, ...]
    active: bool


class Run:
    """Turns what a turn has to tell into events; joins deltas on the way (docs/protocol.md)."""

    def __init__(self, turn_id: str, host: Host) -> None:
        self.run_id = ids.run_id(host.key, host.gateway_id, turn_id)
        self.task_id = ""
        self.begun = False
        self.ended_at: float | None = None
        self.iterations: list[Iteration] = []
        self.waiting_for: set[str] = set()
        """Approvals and questions that this run waits for."""
        self._host = host
        self.outgoing = Coalescer(self.run_id, host.dropped)
        self.rounds = Rounds()
        self.tally = Tally()

    @property
    def live(self) -> bool:
        """Not over yet (perhaps not even begun)."""
        return self.ended_at is None

    @property
    def last(self) -> Iteration | None:
        """The iteration that is shown now."""
        return self.iterations[-1] if self.iterations else None

    @property
    def due(self) -> float | None:
        """When held deltas must go out."""
        return self.outgoing.due

    def begin(self, out: Folding, start: Start, can: tuple[str, ...]) -> None:
        """run.started, and the task it belongs to."""
        host = self._host
        self.begun = True
        self.task_id = ids.task_id(host.key, host.gateway_id, start.session)
        host.running[self.task_id] += 1
        self.tell(out, start.event(self.run_id, self.task_id, can))
        self._status(out)
        seen = TaskSeen(
            task_id=self.task_id,
            gateway_id=host.gateway_id,
            session_key=start.own_key,
            session_id=start.session_id,
            surface=start.platform,
            model=start.model or None,
            at=out.at,
            prompt=start.text,
        )
        out.tasks.append(seen)

    def next_iteration(self) -> Iteration:
        """A new place for an answer of the model."""
        last = self.last
        round_ = self.rounds.answer(after_tools=last is not None and last.asks_for_tools)
        iteration = Iteration(len(self.iterations) + 1, round_)
        self.iterations.append(iteration)
        return iteration

    def iteration_of(self, text: str) -> Iteration | None:
        """The iteration whose text a new message of the gateway shows (0.19).

        Messages come in the order of the texts they show; a blank text has none.
        """
        text = text.strip()
        later = takewhile(lambda i: i.message is None, reversed(self.iterations))
        unsent = list(later)[::-1]
        if not text or not unsent:
            return None
        for iteration in unsent:
            known = iteration.text.text if iteration.certain else ""
            if known and (known.startswith(text) or text.startswith(known)):
                return iteration
        return None if unsent[-1].certain else unsent[-1]

    def show(self, out: Folding, iteration: Iteration, kind: Kind, change: Change | None) -> None:
        """More text, or another text instead of what was shown."""
        if change is None:
            return
        if change.restated or (kind == "text" and iteration is not self.last):
            # No delta of an iteration may follow those of a later one.
            text = iteration.text.text
            number, part = iteration.number, iteration.part["text"]
            self.tell(out, RunText(run_id=self.run_id, iteration=number, text=text, part=part))
            return
        part = iteration.part[kind]
        for delta in self.outgoing.add(out.at, kind, iteration.number, part, change.text):
            self._emit(out, delta)

    def input(self, out: Folding, text: str, origin: Origin) -> None:
        """A message was folded into the running turn."""
        shown = cut(text)
        payload = RunInput(
            run_id=self.run_id, text=shown.text, origin=origin, truncated=shown.truncated or UNSET
        )
        self.tell(out, payload)

    def interim(self, out: Folding, iteration: Iteration, said: str) -> None:
        """Text that accompanies tool calls; it was streamed unless it is a text of its own."""
        text = said.strip()
        streamed = text in iteration.text.text
        if text and not (streamed and iteration.interim):
            iteration.interim |= streamed
            self.tell(out, RunInterim(run_id=self.run_id, text=text, already_streamed=streamed))

    def tool_started(self, out: Folding, tool: Tool, iteration: Iteration) -> None:
        """A tool begins. The text before it was an interim one, whether or not the hook for
        that has come (it may be late, and 0.19 has none)."""
        self.interim(out, iteration, iteration.text.text)
        iteration.asks_for_tools = True
        self.tell(out, tool.start(self.run_id, iteration))

    def waits(self, out: Folding, name: str, *, pending: bool) -> None:
        """The run waits for a decision, or no longer does."""
        before = bool(self.waiting_for)
        (self.waiting_for.add if pending else self.waiting_for.discard)(name)
        if self.live and before != bool(self.waiting_for):
            self._status(out)

    def end(self, out: Folding, ending: Ending, answer: str | None) -> None:
        """The one end. `answer`: the final text, where Hermes said one."""
        if ending.status == "failed":
            self.tell(out, RunFailed(run_id=self.run_id, error=ending.error or "unknown"))
        else:
            if answer is not None and answer.strip() and ending.status == "completed":
                self._answer(out, answer)
            payload = RunCompleted(
                run_id=self.run_id,
                status=ending.status,
                text=self.last.text.text if self.last is not None else "",
                error=ending.error,
                finished=ending.finished,
                usage=self.tally.usage(),
            )
            self.tell(out, payload)
        self.ended_at = out.at
        self._host.running[self.task_id] -= 1
        if self._host.running[self.task_id] <= 0:
            del self._host.running[self.task_id]
        self._status(out)

    def tell(self, out: Folding, payload: Payload) -> None:
        """Any event but a delta: what was held before it goes out first."""
        self.flush(out)
        self._emit(out, payload)

    def flush(self, out: Folding) -> None:
        """Send held deltas."""
        for delta in self.outgoing.flush(out.at):
            self._emit(out, delta)

    def _answer(self, out: Folding, answer: str) -> None:
        last = self.last
        if last is None or last.tools or last.interim:
            last = self.next_iteration()  # an answer that no attempt gave
        self.show(out, last, "text", last.text.become(answer))

    def _status(self, out: Folding) -> None:
        status: Literal["running", "waiting", "idle"] = "idle"
        if self._host.running[self.task_id]:
            status = "waiting" if self.live and self.waiting_for else "running"
        out.emit(TaskUpdated(task_id=self.task_id, status=status), task_id=self.task_id)

    def _emit(self, out: Folding, payload: Payload) -> None:
        out.emit(payload, task_id=self.task_id, run_id=self.run_id)
