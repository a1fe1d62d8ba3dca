"""What has truly been said, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from loomid.lmp.frames import LASTING, RUN_ENDS
from tests.support.view import Run, View, asked_id


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
        self.ended: dict[str, tuple[str, Run, dict[str, Any]]] = {}
        """Type of the end, what was shown, payload of the end."""
        self.tools = Counter[str]()
        self.open: dict[tuple[str, int, int], str] = {}
        """Tools by run, iteration and index."""
        self.runs: dict[str, str] = {}
        """Whether each run is live or over."""
        self.asked: dict[str, str] = {}
        """Whether each approval or question is pending or over."""

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
        elif type_.startswith(("approval.", "question.")):
            self._check_asked(type_, asked_id(payload))
        ended = self.view.apply(type_, payload)
        if ended is not None:
            self.ended[payload["run_id"]] = type_, ended, payload
            assert payload.get("text") in {None, "", ended.last_text}, "not what was shown"

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
        tool = run_id, p.get("iteration", 0), p.get("index", 0)
        if type_ == "run.tool_started":
            self.tools[run_id] += 1
            assert tool not in self.open
            self.open[tool] = p["call_id"]
        if type_ == "run.tool_finished":
            assert self.open.pop(tool, None) == p["call_id"]

    def _check_asked(self, type_: str, name: str) -> None:
        before = self.asked.get(name)
        if type_.endswith(".required"):
            assert before is None, "it was asked twice"
            self.asked[name] = "pending"
        else:
            assert before == "pending", f"what is {before} was decided"
            self.asked[name] = "over"
