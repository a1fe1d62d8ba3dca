"""What the model and its tools do in one turn: their facts, made steps of its script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomid import wire
from loomid.lmp.attempts import Attempts
from loomid.lmp.endings import Ending, concluded, of_turn
from loomid.lmp.facts import Deltas
from loomid.lmp.merging import kind_of
from loomid.lmp.tools import Tools

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from loomid.lmp.attempts import Attempt
    from loomid.lmp.folding import Folding
    from loomid.lmp.run import Run
    from loomid.lmp.script import Script
    from loomid.lmp.start import Start


class Work:
    """Calls of the model, what they say, and the tools they use."""

    def __init__(self, run: Run, start: Start, script: Script, dropped: Counter[str]) -> None:
        self.attempts = Attempts()
        self.tools = Tools()
        self.failure: wire.ApiFailed | None = None
        """The last model call failed, and nothing has followed it yet."""
        self.answer: str | None = None
        """The final text, where Hermes said one."""
        self._run = run
        self._start = start
        self._script = script
        self._dropped = dropped
        self._api_end: wire.ApiEnded | None = None

    @property
    def conclusion(self) -> Ending:
        """How the turn ended if it is over without Hermes having said so."""
        return concluded(self.failure, answered=self.answer is not None, last=self.attempts.last)

    def ending(self, fact: wire.TurnEnded) -> Ending:
        """How the turn ended, as Hermes says."""
        return of_turn(fact, self.failure, self._api_end)

    def take(self, out: Folding, fact: object) -> None:
        """One of WORK_FACTS."""
        _TAKE[type(fact)](self, out, fact)

    def conclude(self, out: Folding) -> None:
        """The last attempt's text is there, or will be told with the end."""
        if self.attempts.last is not None:
            self.attempts.last.concluded = True
            self.attempts.last.close(out.at)

    def _api_started(self, out: Folding, fact: wire.ApiStarted) -> None:
        self._start.known(fact.session_id, fact.platform, fact.model, fact.provider)
        self.failure = None
        attempt, new = self.attempts.requested(fact.call, out.at)
        self._open(attempt, new=new)

    def _stream_started(self, out: Folding, fact: wire.StreamStarted) -> None:
        self._start.known(fact.session_id, fact.surface, fact.model, fact.provider)
        attempt, new = self.attempts.lacking(fact.iteration, "started", out.at)
        if attempt is not None:
            attempt.started, attempt.started_at = True, out.at
            self._open(attempt, new=new)

    def _delta(self, out: Folding, fact: wire.Delta | Deltas) -> None:
        self._script.streaming = max(self._script.streaming, fact.iteration)
        kind = kind_of(fact)
        attempt, new = self.attempts.for_delta(fact.iteration, kind, fact.text, out.at)
        late = attempt is None or attempt.settled
        if attempt is not None:
            self._open(attempt, new=new)
            attempt.receive(kind, fact.text)
        if late:
            self._dropped["late_delta"] += 1

    def _stream_ended(self, out: Folding, fact: wire.StreamEnded) -> None:
        attempt, new = self.attempts.lacking(fact.iteration, "stream_end", out.at)
        if attempt is not None:
            attempt.stream_end = fact
            attempt.close(out.at)
            self._open(attempt, new=new)

    def _api_ended(self, out: Folding, fact: wire.ApiEnded) -> None:
        attempt = self._attempt(fact.call, out.at)
        if attempt.api_end is None:
            attempt.api_end = self._api_end = fact
            self._run.tally.add(fact.usage, fact.context_length)
            attempt.close(out.at)
            self.failure = None

    def _api_failed(self, out: Folding, fact: wire.ApiFailed) -> None:
        attempt = self._attempt(fact.call, out.at)
        attempt.failed = True
        attempt.close(out.at)
        self.failure = fact

    def _interim(self, out: Folding, fact: wire.Interim) -> None:
        attempt = self._attempt(fact.iteration, out.at)
        attempt.interim = fact.text
        if attempt.settled:
            self._script.after(out, attempt, lambda then: self._script.tell_interim(then, attempt))

    def _tool_started(self, out: Folding, fact: wire.ToolStarted) -> None:
        attempt = self._attempt(fact.call, out.at)
        attempt.used_tools = True
        self.failure = None
        tool = self.tools.start(fact, out.t, attempt, self._run.rounds)
        if tool is None:
            self._dropped["duplicate"] += 1
        else:
            self._script.after(out, attempt, lambda then: self._script.tell_tool(then, tool))

    def _tool_ended(self, out: Folding, fact: wire.ToolEnded) -> None:
        tool = self.tools.end(fact.call_id)
        if tool is None:
            self._dropped["unpaired_tool_end"] += 1
            return
        t, run = out.t, self._run
        self._script.after(
            out, tool.attempt, lambda then: run.tell(then, tool.finish(run.run_id, fact, t))
        )

    def _turn_answered(self, out: Folding, fact: wire.TurnAnswered) -> None:
        self.answer = fact.text
        self.failure = None
        self.conclude(out)

    def _open(self, attempt: Attempt, *, new: bool) -> None:
        if new:
            self._script.open(attempt)

    def _attempt(self, call: int, at: float) -> Attempt:
        """The attempt that a synchronous fact speaks of, opened late if it is unknown."""
        attempt = self.attempts.of(call)
        if attempt is None:
            attempt = self.attempts.open(call, at)
            self._script.open(attempt)
        return attempt


_TAKE: dict[type, Callable[..., None]] = {
    wire.ApiStarted: Work._api_started,
    wire.StreamStarted: Work._stream_started,
    wire.Delta: Work._delta,
    Deltas: Work._delta,
    wire.StreamEnded: Work._stream_ended,
    wire.ApiEnded: Work._api_ended,
    wire.ApiFailed: Work._api_failed,
    wire.Interim: Work._interim,
    wire.ToolStarted: Work._tool_started,
    wire.ToolEnded: Work._tool_ended,
    wire.TurnAnswered: Work._turn_answered,
}
WORK_FACTS = frozenset(_TAKE)
