"""Tool calls of one run: starts and finishes paired by call id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET

from loomid.lmp.frames import RunToolFinished, RunToolStarted
from loomid.lmp.preview import cut

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.attempts import Attempt
    from loomid.lmp.parts import Rounds
    from loomid.lmp.text import Iteration

_OK = frozenset({"ok", "success", "completed"})


@dataclass(slots=True)
class Tool:
    """One call of a tool."""

    fact: wire.ToolStarted
    t: float
    attempt: Attempt
    part: str
    iteration: int = 0
    index: int = 0
    shown: bool = False

    def start(self, run_id: str, iteration: Iteration) -> RunToolStarted:
        """The event that begins it, as the next tool of that iteration."""
        self.iteration, self.index, self.shown = iteration.number, iteration.tools, True
        iteration.tools += 1
        preview = cut(self.fact.preview)
        return RunToolStarted(
            run_id=run_id,
            iteration=self.iteration,
            tool=self.fact.tool,
            preview=preview.text,
            index=self.index,
            call_id=self.fact.call_id,
            truncated=preview.truncated or UNSET,
            part=self.part,
            round=iteration.round,
        )

    def finish(self, run_id: str, fact: wire.ToolEnded, t: float) -> RunToolFinished:
        """The event that ends it."""
        seconds = fact.ms / 1_000 if fact.ms is not None else t - self.t
        return RunToolFinished(
            run_id=run_id,
            iteration=self.iteration,
            tool=self.fact.tool,
            ok=fact.status in _OK,
            index=self.index,
            call_id=self.fact.call_id,
            duration=max(seconds, 0.0),
            part=self.part,
        )


class Tools:
    """The calls of one turn. An id may come again once its call has ended."""

    def __init__(self) -> None:
        self.open: dict[str, Tool] = {}
        self._known: set[tuple[str, str]] = set()

    def start(
        self, fact: wire.ToolStarted, t: float, attempt: Attempt, rounds: Rounds
    ) -> Tool | None:
        """A call begins; None if that very call is open already."""
        if fact.call_id in self.open:
            return None
        tool = self.open[fact.call_id] = Tool(fact, t, attempt, rounds.tool(fact.call_id))
        self._known.add((fact.tool, fact.preview.strip()))
        return tool

    def end(self, call_id: str) -> Tool | None:
        """A call ended; None if its start never came."""
        return self.open.pop(call_id, None)

    def part(self, call_id: str | None) -> str | None:
        """The part of a call that is open."""
        tool = self.open.get(call_id or "")
        return None if tool is None else tool.part

    def is_progress(self, text: str) -> bool:
        """Whether a plain message of the gateway is its chatter about a tool.

        Its wording is not stable (docs/hermes.md); what the tool does is quoted in it.
        """
        return bool(self.open) or any(
            tool in text or (preview and preview in text) for tool, preview in self._known
        )
