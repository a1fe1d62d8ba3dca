"""What a phone shows: the client's side of docs/protocol.md, folded from frames.

Two views that are equal have equal digests, so that a device can be compared with another at
every event for the price of one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LASTING = frozenset({"run.completed", "run.failed", "approval.resolved", "notification"})
RUN_ENDS = frozenset({"run.completed", "run.failed"})
EVENTS = LASTING | {
    *("run.started", "run.input", "run.delta", "run.text", "run.interim"),
    *("run.tool_started", "run.tool_finished"),
    *("approval.required", "gateway.status", "task.updated"),
}


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


@dataclass(slots=True)
class Run:
    """A run as it is shown. Items keep the order in which they came first."""

    started: dict[str, Any]
    items: dict[tuple[str, int, str], Any] = field(default_factory=dict)
    tools_done: int = 0

    def copy(self) -> Run:
        return Run(self.started, dict(self.items), self.tools_done)

    def text(self, iteration: int, kind: str = "text") -> str:
        """What was said in a call of the model."""
        return str(self.items.get(("said", iteration, kind), ""))

    def digest(self) -> int:
        return hash((str(self.started), tuple(self.items.items())))


class View:
    """Live runs and pending approvals; `digests` of both."""

    def __init__(self) -> None:
        self.forget()

    def copy(self) -> View:
        """What would be stored on the phone's disk."""
        other = View()
        other.runs = {name: run.copy() for name, run in self.runs.items()}
        other.approvals = dict(self.approvals)
        other._digest = dict(self._digest)
        other._runs_digest = self._runs_digest
        other._approvals_digest = self._approvals_digest
        return other

    @property
    def digests(self) -> tuple[int, int]:
        """Of the runs and of the approvals."""
        return self._runs_digest, self._approvals_digest

    def forget(self) -> None:
        """`truncated`: what is alive is not known any more."""
        self.runs: dict[str, Run] = {}
        self.approvals: dict[str, dict[str, Any]] = {}
        self._digest: dict[str, int] = {}
        self._runs_digest = self._approvals_digest = 0

    def apply(self, frame: Frame) -> Run | None:
        """Take in one event or a frame of a snapshot; the run that it ended, as it was shown."""
        payload = frame.payload
        match frame.type:
            case "approval.required":
                # Whose answer failed is told once, to whom is there: no part of what waits.
                waits = {name: value for name, value in payload.items() if name != "returned"}
                self._approval(payload["approval_id"], waits)
            case "approval.resolved":
                self._approval(payload["approval_id"], None)
            case "run.started":
                self.runs[payload["run_id"]] = Run(payload)
                self._changed(payload["run_id"])
            case type_ if type_ in RUN_ENDS:
                ended = self.runs.pop(payload["run_id"], None)
                self._changed(payload["run_id"])
                return ended
            case type_ if type_.startswith("run."):
                run = self.runs.get(payload["run_id"])
                if run is not None:
                    _take(run, frame)
                    self._changed(payload["run_id"])
        return None

    def _approval(self, approval_id: str, payload: dict[str, Any] | None) -> None:
        before = self.approvals.pop(approval_id, None)
        if before is not None:
            self._approvals_digest ^= hash(str(before))
        if payload is not None:
            self.approvals[approval_id] = payload
            self._approvals_digest ^= hash(str(payload))

    def _changed(self, run_id: str) -> None:
        run = self.runs.get(run_id)
        now = 0 if run is None else run.digest()
        self._runs_digest ^= self._digest.pop(run_id, 0) ^ now
        if run is not None:
            self._digest[run_id] = now


def _take(run: Run, frame: Frame) -> None:
    payload = frame.payload
    match frame.type:
        case "run.delta":
            key = ("said", payload["iteration"], payload["kind"])
            run.items[key] = run.items.get(key, "") + payload["text"]
        case "run.text":
            key = ("said", payload["iteration"], "text")
            run.items[key] = payload["text"]
            if not payload["text"]:
                del run.items[key]
        case "run.tool_started":
            run.items["tool", payload["iteration"], payload["call_id"]] = str(payload)
        case "run.tool_finished":
            run.tools_done += 1
            run.items.pop(("tool", payload["iteration"], payload["call_id"]), None)
        case "run.input":
            run.items["input", len(run.items), str(payload)] = True
        case "run.interim" if not payload["already_streamed"]:
            run.items["interim", len(run.items), str(payload)] = True
