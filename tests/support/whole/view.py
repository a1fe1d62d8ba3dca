"""What a phone shows, by docs/protocol.md; and what has truly been said, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loomid.lmp.frames import LASTING, RUN_ENDS


@dataclass
class RunView:
    """A live run."""

    texts: dict[tuple[int, str], str] = field(default_factory=dict)
    """By iteration and kind."""
    tools: dict[tuple[int, int], str] = field(default_factory=dict)
    """Those that are open, by iteration and index."""
    said: list[tuple[str, str]] = field(default_factory=list)
    """Messages folded in, and interims that were not streamed."""

    def text(self, iteration: int) -> str:
        return self.texts.get((iteration, "text"), "")


@dataclass
class View:
    """What is alive. Grows with each event; a snapshot's events are told like any other."""

    runs: dict[str, RunView] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    gateways: dict[str, bool] = field(default_factory=dict)
    ended: dict[str, tuple[str, RunView, dict[str, Any]]] = field(default_factory=dict)
    """Type of the end, what was shown, payload of the end."""

    def forget(self) -> None:
        """`truncated: true`: live runs and pending approvals are no longer known."""
        self.runs.clear()
        self.pending.clear()

    def apply(self, type_: str, p: dict[str, Any]) -> None:
        """The next event, replayed or new."""
        match type_:
            case "run.started":
                self.runs[p["run_id"]] = RunView()
            case "approval.required":
                self.pending.add(p["approval_id"])
            case "approval.resolved":
                self.pending.discard(p["approval_id"])
            case "gateway.status":
                self.gateways[p["gateway_id"]] = p["online"]
            case _ if (run := self.runs.get(p.get("run_id", ""))) is not None:
                self._of_run(type_, p, run)

    def _of_run(self, type_: str, p: dict[str, Any], run: RunView) -> None:
        match type_:
            case "run.delta":
                key = p["iteration"], p["kind"]
                run.texts[key] = run.texts.get(key, "") + p["text"]
            case "run.text":
                run.texts[p["iteration"], "text"] = p["text"]
            case "run.input":
                run.said.append((type_, p["text"]))
            case "run.interim" if not p["already_streamed"]:
                run.said.append((type_, p["text"]))
            case "run.tool_started":
                run.tools[p["iteration"], p["index"]] = p["call_id"]
            case "run.tool_finished":
                run.tools.pop((p["iteration"], p["index"]), None)
            case _ if type_ in RUN_ENDS:
                del self.runs[p["run_id"]]
                self.ended[p["run_id"]] = type_, run, p
                self._check_end(p, run)

    def _check_end(self, p: dict[str, Any], run: RunView) -> None:
        """What was shown is the final text, as far as there is one."""
        if p.get("text"):
            shown = [key[0] for key, text in run.texts.items() if key[1] == "text" and text]
            assert run.text(max(shown, default=0)) == p["text"]

    def alive(self) -> dict[str, Any]:
        """To compare: what is empty says nothing."""
        runs = {
            name: ({k: t for k, t in run.texts.items() if t}, run.tools, run.said)
            for name, run in self.runs.items()
        }
        return {"runs": runs, "pending": self.pending, "gateways": self.gateways}


@dataclass(frozen=True)
class Said:
    """One event of the log."""

    position: int
    type: str
    payload: dict[str, Any]
    body: bytes
    at: float


class Truth:
    """All events of one database, in order; checks that they make sense."""

    def __init__(self) -> None:
        self.events: list[Said] = []
        self.positions: list[int] = []
        self.view = View()
        self.tools = Counter[str]()
        self.runs: dict[str, str] = {}
        """Whether each run is live or over."""
        self.approvals: dict[str, str] = {}

    @property
    def last(self) -> int:
        return self.positions[-1] if self.positions else 0

    def between(self, after: int, upto: int) -> list[Said]:
        """The events of (after, upto]."""
        positions = self.positions
        return self.events[bisect_right(positions, after) : bisect_right(positions, upto)]

    def story(self, run_id: str) -> list[Said]:
        """All that was said of a run."""
        return [one for one in self.events if one.payload.get("run_id") == run_id]

    def lasting(self, after: int, upto: int) -> list[bytes]:
        return [one.body for one in self.between(after, upto) if one.type in LASTING]

    def add(self, position: int, type_: str, body: bytes, at: float) -> None:
        """The next one."""
        assert position > self.last, "positions must rise"
        payload = msgspec.json.decode(body)
        self.events.append(Said(position, type_, payload, body, at))
        self.positions.append(position)
        if type_.startswith("run."):
            self._check_run(type_, payload)
        elif type_.startswith("approval."):
            self._check_approval(type_, payload["approval_id"])
        self.view.apply(type_, payload)

    def _check_run(self, type_: str, p: dict[str, Any]) -> None:
        run_id = p["run_id"]
        state = self.runs.get(run_id)
        if type_ == "run.started":
            assert state is None, "a run began twice"
            self.runs[run_id] = "live"
        else:
            assert state == "live", f"{type_} of a run that is {state}"
        if type_ in RUN_ENDS:
            self.runs[run_id] = "over"
        if type_ == "run.tool_started":
            self.tools[run_id] += 1
            assert (p["iteration"], p["index"]) not in self.view.runs[run_id].tools
        if type_ == "run.tool_finished":
            shown = self.view.runs[run_id].tools
            assert shown.get((p["iteration"], p["index"])) == p["call_id"]

    def _check_approval(self, type_: str, name: str) -> None:
        before = self.approvals.get(name)
        if type_ == "approval.required":
            assert before is None, "an approval was asked twice"
            self.approvals[name] = "pending"
        else:
            assert before == "pending", f"an approval that is {before} was decided"
            self.approvals[name] = "over"
