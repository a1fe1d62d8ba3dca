"""A run's parts from the events that phones get of it (see parts): what an app makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomid.lmp.parts import Kind, Parts, Said

if TYPE_CHECKING:
    from loomid.lmp.payload import Payload

_UNMADE = frozenset({"cancelled", "expired", "timeout", "lost"})
"""How what was asked ends without an answer."""


class LiveRun:
    """One run, told by its events in order, from its beginning or from a snapshot of it."""

    def __init__(self) -> None:
        self._parts = Parts()
        self.status: str = "running"
        """Then how it ended: completed, cancelled or failed."""
        self.inputs: list[str] = []
        """Messages that were folded into it."""

    def parts(self) -> list[Any]:
        """What it consists of so far."""
        return self._parts.list()

    def take(self, type_: str, payload: Payload) -> None:
        """The next event of it, or of an approval or question of it."""
        p: Any = payload
        match type_:
            case "run.delta" | "run.text":
                whole = type_ == "run.text"
                kind: Said = "text" if whole else p.kind
                self._parts.say(kind, _round(p.part), p.iteration, p.text, whole=whole)
            case "run.tool_started":
                cut = p.truncated is True
                self._parts.tool(p.part, p.round, p.iteration, p.tool, p.preview, truncated=cut)
            case "run.tool_finished":
                self._parts.tool_ended(p.part, ok=p.ok)
            case "approval.required":
                self._parts.ask("approval", p.approval_id, p.part or None)
            case "question.required":
                part = self._parts.newest_of(p.call_id) if p.call_id else None
                self._parts.ask("question", p.question_id, part)
            case "approval.resolved" | "question.resolved":
                self._over(p)
            case "run.completed" | "run.failed":
                self.status = p.status
                self._parts.end(p.text if self.status == "completed" else None)
            case "run.input":
                self.inputs.append(p.text)
            case _:
                pass

    def _over(self, p: Any) -> None:  # noqa: ANN401 - the end of an approval or of a question
        unmade = p.outcome in _UNMADE
        kind: Kind = "approval" if hasattr(p, "approval_id") else "question"
        self._parts.answered(kind, getattr(p, f"{kind}_id"), cancelled=unmade)


def _round(part: str) -> int:
    return int(part.rpartition(":")[2])
