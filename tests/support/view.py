"""What a phone shows: the client's side of docs/protocol.md, folded from events.

Two views that are equal have equal digests, so that a device can be compared with another at
every event for the price of one number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RUN_ENDS = frozenset({"run.completed", "run.failed"})


@dataclass(slots=True)
class Run:
    """A run as it is shown. Items keep the order in which they came first."""

    started: dict[str, Any]
    items: dict[tuple[str, int, str], Any] = field(default_factory=dict)
    tools_done: int = field(default=0, compare=False)
    asides: int = 0
    """Messages folded in, and interims that were not streamed."""

    def copy(self) -> Run:
        return Run(self.started, dict(self.items), self.tools_done, self.asides)

    def text(self, iteration: int, kind: str = "text") -> str:
        """What was said in a call of the model."""
        return str(self.items.get(("said", iteration, kind), ""))

    @property
    def last_text(self) -> str:
        """Of the last iteration that has any."""
        said = [number for what, number, kind in self.items if (what, kind) == ("said", "text")]
        return self.text(max(said, default=0))

    @property
    def tools(self) -> set[str]:
        """Call ids of those that are open."""
        return {name for what, _, name in self.items if what == "tool"}

    def digest(self) -> int:
        return hash((str(self.started), tuple(self.items.items())))

    def take(self, type_: str, payload: dict[str, Any]) -> None:
        """An event of it but its beginning and its end."""
        match type_:
            case "run.delta":
                key = ("said", payload["iteration"], payload["kind"])
                self.items[key] = self.items.get(key, "") + payload["text"]
            case "run.text":
                key = ("said", payload["iteration"], "text")
                self.items[key] = payload["text"]
                if not payload["text"]:
                    del self.items[key]
            case "run.tool_started":
                self.items["tool", payload["iteration"], payload["call_id"]] = str(payload)
            case "run.tool_finished":
                self.tools_done += 1
                self.items.pop(("tool", payload["iteration"], payload["call_id"]), None)
            case "run.input":
                self._aside(type_, payload)
            case "run.interim" if not payload["already_streamed"]:
                self._aside(type_, payload)

    def _aside(self, type_: str, payload: dict[str, Any]) -> None:
        self.items[type_, self.asides, ""] = str(payload)
        self.asides += 1


def asked_id(payload: dict[str, Any]) -> str:
    """Which approval or question an event is about."""
    return str(payload.get("approval_id") or payload["question_id"])


class View:
    """Live runs, pending approvals (and questions) and gateways; `digests` of the first two."""

    def __init__(self) -> None:
        self.gateways: dict[str, bool] = {}
        """Whether each is online."""
        self.forget()

    def copy(self) -> View:
        """What would be stored on the phone's disk."""
        other = View()
        other.runs = {name: run.copy() for name, run in self.runs.items()}
        other.approvals = dict(self.approvals)
        other.gateways = dict(self.gateways)
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

    def apply(self, type_: str, payload: dict[str, Any]) -> Run | None:
        """Take in one event, of a snapshot or new; the run that it ended, as it was shown."""
        match type_:
            case "approval.required" | "question.required":
                # Whose answer failed is told once, to whom is there: no part of what waits.
                waits = {name: value for name, value in payload.items() if name != "returned"}
                self._approval(asked_id(payload), waits)
            case "approval.resolved" | "question.resolved":
                self._approval(asked_id(payload), None)
            case "gateway.status":
                self.gateways[payload["gateway_id"]] = payload["online"]
            case "gateway.forgotten":
                self.gateways.pop(payload["gateway_id"], None)
            case "run.started":
                self.runs[payload["run_id"]] = Run(payload)
                self._changed(payload["run_id"])
            case _ if type_ in RUN_ENDS:
                ended = self.runs.pop(payload["run_id"], None)
                self._changed(payload["run_id"])
                return ended
            case _ if type_.startswith("run."):
                run = self.runs.get(payload["run_id"])
                if run is not None:
                    run.take(type_, payload)
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
