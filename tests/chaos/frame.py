"""A frame as a phone gets it, and which types are events (docs/protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.view import RUN_ENDS

ASKING = frozenset({"approval.required", "question.required"})
LASTING = RUN_ENDS | {"approval.resolved", "question.resolved", "notification"}
EVENTS = (
    LASTING
    | ASKING
    | {
        *("run.started", "run.input", "run.delta", "run.text", "run.interim"),
        *("run.tool_started", "run.tool_finished"),
        *("gateway.status", "task.updated"),
    }
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the server. `body` is its payload's JSON as it came, `payload` decoded."""

    seq: int
    type: str
    replay: bool
    ts: float
    run_id: str | None
    body: bytes
    payload: dict[str, Any]

    @property
    def content(self) -> int:
        """What the frame tells, without its number: the same for the same event anywhere."""
        return hash((self.type, self.ts, self.run_id, self.body))
