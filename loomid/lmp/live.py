"""A run's parts from the events that phones get of it (see parts): what an app makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from loomid.lmp.frames import EVENT_NAMES
from loomid.lmp.parts import Kind, Parts

if TYPE_CHECKING:
    from loomid.lmp.payload import Payload


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

    def take(self, payload: Payload) -> None:
        """The next event of it, or of an approval or question of it."""
        p: Any = payload
        match EVENT_NAMES[type(payload)]:
            case "run.delta":
                self._parts.say(p.kind, _round(p.part), p.iteration, p.text)
            case "run.text":
                self._parts.say("text", _round(p.part), p.iteration, p.text, whole=True)
            case "run.tool_started":
                cut = p.truncated is True
                self._parts.tool(p.part, p.round, p.iteration, p.tool, p.preview, truncated=cut)
            case "run.tool_finished":
                self._parts.tool_ended(p.part, ok=p.ok)
            case "run.input":
                self.inputs.append(p.text)
            case "approval.required" | "question.required" as type_:
                kind: Kind = "approval" if type_ == "approval.required" else "question"
                part = None if p.part is UNSET else p.part
                self._parts.ask(kind, getattr(p, f"{kind}_id"), part)
            case "approval.resolved" | "question.resolved" as type_:
                kind = "approval" if type_ == "approval.resolved" else "question"
                unmade = p.outcome in ("cancelled", "lost", "expired", "timeout")
                self._parts.answered(kind, getattr(p, f"{kind}_id"), cancelled=unmade)
            case "run.completed" | "run.failed":
                self.status = p.status
                self._parts.end(p.text if self.status == "completed" else None)
            case _:
                pass


def _round(part: str) -> int:
    return int(part.rpartition(":")[2])
