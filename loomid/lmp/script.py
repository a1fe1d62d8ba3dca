"""What a turn has yet to tell, in causal order, and when it may be told (docs/protocol.md).

A queue of steps. An attempt at a model call is a step that shows text while it is at the
head, and stays there until its text is complete or a short drain passed; tools,
approvals and the end are steps that wait behind the text they follow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from loomid.lmp.attempts import DRAIN_S, REASONING_DRAIN_S, Attempt

if TYPE_CHECKING:
    from collections import Counter

    from loomid.lmp.folding import Folding
    from loomid.lmp.run import Run
    from loomid.lmp.text import Iteration
    from loomid.lmp.tools import Tool

MAX_STEPS = 10_000

Act = Callable[["Folding"], None]
Redirected = Callable[["Folding", Attempt, Attempt], None]


class Step(NamedTuple):
    """Something to tell when all that comes before it was told."""

    at: float
    act: Act


class Script:
    """Shows attempts and tells what stands between them.

    `redirected(out, before, attempt)` is called when an attempt's turn has come that
    asks the same call again, before anything of it is shown.
    """

    def __init__(
        self, run: Run, redirected: Redirected, dropped: Counter[str], *, streamed: bool
    ) -> None:
        self.streaming = 0
        """The latest call that a delta came for: deltas are FIFO, so all earlier are here."""
        self._run = run
        self._redirected = redirected
        self._dropped = dropped
        self._streamed = streamed
        self._steps: deque[Attempt | Step] = deque()
        self._shown: Attempt | None = None
        self._end: Step | None = None
        self._reasons = False

    def open(self, attempt: Attempt) -> None:
        """An attempt begins, after all that waits already."""
        self._steps.append(attempt)

    def after(self, out: Folding, attempt: Attempt | None, act: Act) -> None:
        """Do this after that attempt's text and after all that waits already.

        A later attempt may be streaming by then; its text need not be waited for. What is of
        no attempt (an approval, a message) must be told even when the end waits already, or much.
        Dropped when far too much waits.
        """
        if attempt is None and self._end is not None:
            self._steps.insert(self._steps.index(self._end), Step(self._end.at, act))
            return
        waits = any(isinstance(step, Step) or step is attempt for step in self._steps)
        if not waits and self._run.begun:
            act(out)
        elif attempt is None or len(self._steps) < MAX_STEPS:
            self._steps.append(Step(out.at, act))
        else:
            self._dropped["too_many_steps"] += 1

    def finish(self, out: Folding, act: Act) -> None:
        """Do this at the very end, after all attempts."""
        self._end = Step(out.at, act)
        self._steps.append(self._end)

    def go(self, out: Folding, *, force: bool = False) -> None:
        """Tell what can be told now; with `force`, all."""
        while self._steps and self._run.live:
            head = self._steps[0]
            if isinstance(head, Step):
                self._steps.popleft()
                head.act(out)
                continue
            self._flow(out, head)
            if not force and not self._finished(head, out.at):
                return
            self._settle(out, head)
            self._steps.popleft()

    def clear(self) -> None:
        """The run has ended: nothing may follow."""
        self._steps.clear()

    def drained_at(self) -> float | None:
        """When the attempt at the head will have been waited for long enough."""
        head = self._steps[0] if self._steps else None
        if not isinstance(head, Attempt):
            return None
        if head.over_at is not None:
            # When it is complete, only reasoning may be missing; nothing tells how much.
            return head.over_at + (REASONING_DRAIN_S if head.complete() else DRAIN_S)
        if len(self._steps) == 1:
            return None
        follower = self._steps[1]
        return (follower.at if isinstance(follower, Step) else follower.opened_at) + DRAIN_S

    def tell_interim(self, out: Folding, attempt: Attempt) -> None:
        """The attempt's text turned out to accompany tool calls."""
        if attempt.iteration is not None:
            self._run.interim(out, attempt.iteration, attempt.interim or "")

    def tell_tool(self, out: Folding, tool: Tool) -> None:
        """A tool of an attempt begins."""
        attempt = tool.attempt
        self._run.tool_started(out, tool, attempt.iteration or self._place(out, attempt))

    def _finished(self, attempt: Attempt, at: float) -> bool:
        """Whether what follows this attempt may be told."""
        if not self._streamed and (attempt.concluded or attempt.truth is not None):
            return True  # there are no deltas to wait for
        if attempt.complete() and (attempt.length or not self._reasons):
            return True
        if attempt.over_at is not None and attempt.call < self.streaming:
            return True
        drained = self.drained_at()
        return drained is not None and at >= drained

    def _flow(self, out: Folding, attempt: Attempt) -> None:
        """Show what the attempt at the head has received."""
        iteration = attempt.iteration or self._place(out, attempt)
        for kind, piece in attempt.waiting:
            self._reasons |= kind == "reasoning"
            track = iteration.text if kind == "text" else iteration.reasoning
            self._run.show(out, iteration, kind, track.add(piece))
        attempt.waiting.clear()

    def _place(self, out: Folding, attempt: Attempt) -> Iteration:
        """Its turn has come: in an iteration of its own, unless it retries a failed one."""
        before, self._shown = self._shown, attempt
        if before is None or before.iteration is None:
            attempt.iteration = self._run.next_iteration()
            return attempt.iteration
        if attempt.requested and attempt.call == before.call and not before.failed:
            self._redirected(out, before, attempt)
        if before.ok:
            attempt.iteration = self._run.next_iteration()
        else:
            attempt.iteration = before.iteration
            before.iteration.retry(continues=attempt.call > before.call)
        return attempt.iteration

    def _settle(self, out: Folding, attempt: Attempt) -> None:
        """Say what is still missing of this attempt's text, as Hermes gives it."""
        attempt.settled = True
        iteration, truth = attempt.iteration, attempt.truth
        if iteration is not None and attempt.asked_for_tools:
            iteration.asks_for_tools = True
        if iteration is not None and truth is not None:
            self._run.show(out, iteration, "text", iteration.text.settle(truth))
            iteration.certain = True
        if attempt.interim is not None:
            self.tell_interim(out, attempt)
