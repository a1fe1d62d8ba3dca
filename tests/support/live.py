"""A run's parts from the events that phones get of it (see loomid/lmp/parts.py): what an app
makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from loomid.lmp.history_frames import Part, PartAsk
from loomid.lmp.parts import Parts, Said, attachment

if TYPE_CHECKING:
    from loomid.lmp.payload import Payload

_UNMADE = frozenset({"cancelled", "expired", "timeout", "lost"})
"""How what was asked ends without an answer."""


@dataclass
class _Ask:
    """What Hermes asks: of a tool's part, if that is known."""

    kind: Literal["approval", "question"]
    part: str | None
    status: Literal["waiting", "resolved", "cancelled"]


class LiveRun:
    """One run, told by its events in order, from its beginning or from a snapshot of it."""

    def __init__(self) -> None:
        self._parts = Parts()
        self._asks: dict[str, _Ask] = {}
        self.status: str = "running"
        """Then how it ended: completed, cancelled or failed."""
        self.inputs: list[str] = []
        """Messages that were folded into it."""

    def parts(self) -> list[Part]:
        """What it consists of so far; last what was asked on behalf of no tool."""
        asks = self._asks.items()
        found = []
        for part in self._parts.list():
            its = [PartAsk(part=name, status=a.status) for name, a in asks if a.part == part.part]
            found.append(replace(part, asks=its or UNSET))
        for name, ask in asks:
            if ask.part is None:
                status = "completed" if ask.status == "resolved" else ask.status
                found.append(Part(part=name, kind=ask.kind, status=status))
        return found

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
            case "approval.required" | "question.required":
                self._asked(p)
            case "approval.resolved" | "question.resolved":
                self._over(p)
            case "run.completed" | "run.failed":
                self.status = p.status
                self._parts.end(p.text if self.status == "completed" else None)
                for ask in self._asks.values():
                    self._end(ask, "cancelled")
            case "run.input":
                self.inputs.append(p.text)
            case "run.attachment":
                self._parts.attach(attachment(p))
            case _:
                pass

    def _newest_of(self, call_id: str) -> str | None:
        """The part of the newest call with that id."""
        name = f"tool:{call_id}"
        names = [part.part for part in self._parts.list()]
        return next((p for p in names[::-1] if p == name or p.startswith(f"{name}#")), None)

    def _asked(self, p: Any) -> None:
        if hasattr(p, "approval_id"):
            self._ask("approval", p.approval_id, p.part or None)
        else:
            part = self._newest_of(p.call_id) if p.call_id else None
            self._ask("question", p.question_id, part)

    def _ask(self, kind: Literal["approval", "question"], id_: str, part: str | None) -> None:
        known = part in [one.part for one in self._parts.list()]
        waits = self.status == "running"
        status: Literal["waiting", "cancelled"] = "waiting" if waits else "cancelled"
        self._asks[f"{kind}:{id_}"] = _Ask(kind, part if known else None, status)

    def _over(self, p: Any) -> None:
        kind = "approval" if hasattr(p, "approval_id") else "question"
        ask = self._asks.get(f"{kind}:{getattr(p, f'{kind}_id')}")
        if ask is not None:
            self._end(ask, "cancelled" if p.outcome in _UNMADE else "resolved")

    def _end(self, ask: _Ask, status: Literal["resolved", "cancelled"]) -> None:
        if ask.status == "waiting":
            ask.status = status


def _round(part: str) -> int:
    return int(part.rpartition(":")[2])
