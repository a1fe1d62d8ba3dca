"""A witness and a phone that are fed by hand, to break promises before the checker."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.chaos.device import Device, Oracle
from tests.chaos.frame import Frame
from tests.chaos.journal import Truth
from tests.chaos.judge import Judge

TURN = "s:abc:1"
PROMPT = "hi «abc.1»"


def frame(seq: int, type_: str, *, replay: bool = False, ts: float = 0.0, **payload: Any) -> Frame:
    body = json.dumps(payload).encode()
    return Frame(seq, type_, replay, ts or 1.0, payload.get("run_id"), body, payload)


def delta(seq: int, text: str, **more: Any) -> Frame:
    return frame(seq, "run.delta", run_id="r1", iteration=1, kind="text", text=text, **more)


def started(seq: int, **more: Any) -> Frame:
    return frame(seq, "run.started", run_id="r1", prompt=PROMPT, **more)


def ended(seq: int, text: str = "a b", *, status: str = "completed", **more: Any) -> Frame:
    payload = {"status": status, "text": text, "error": None}
    return frame(seq, "run.completed", run_id="r1", **payload, **more)


def required(seq: int, **more: Any) -> Frame:
    return frame(seq, "approval.required", approval_id="a1", command="rm -rf call_1", **more)


def resolved(seq: int, outcome: str, choice: str, by: str, **more: Any) -> Frame:
    payload = {"approval_id": "a1", "outcome": outcome, "choice": choice, "decided_by": by}
    return frame(seq, "approval.resolved", **payload, **more)


QUESTIONS: list[dict[str, Any]] = [
    {"id": "q0", "question": "call_1 which?", "options": [{"label": "red"}, {"label": "blue"}]}
]


def question(seq: int, **more: Any) -> Frame:
    return frame(seq, "question.required", question_id="q1", questions=QUESTIONS, **more)


def closed(seq: int, outcome: str, by: str, **more: Any) -> Frame:
    payload = {"question_id": "q1", "outcome": outcome, "decided_by": by}
    return frame(seq, "question.resolved", **payload, **more)


class Bench:
    """A witness and a phone that are fed by hand; `found` has what was violated."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.truth = Truth(None)  # type: ignore[arg-type]
        self.truth.read = lambda: None  # type: ignore[method-assign]
        self.judge = Judge(self.truth, self.violated)
        self.oracle = Oracle(self.judge, self.violated)
        rng = Random(1)
        self.witness = Device("w", self.oracle, rng, self.violated, witness=True)
        self.phone = Device("p", self.oracle, rng, self.violated)
        self.oracle.devices.append(self.phone)
        self.n = 0
        for device in (self.witness, self.phone):
            new = {"device_id": device.name, "credential": "c"}
            device.hello("right")
            device.greeted(self.ok(0, **new), 0, snapshot=False)

    def violated(self, kind: str, /, **_: Any) -> None:
        self.found.append(kind)

    @staticmethod
    def ok(seq: int, *, truncated: bool = False, **more: Any) -> Frame:
        return frame(seq, "hello.ok", last_seq=seq, truncated=truncated, **more)

    def both(self, *frames: Frame) -> None:
        for one in frames:
            self.witness.take(one)
            self.phone.take(one)

    def back(self, how: str = "right", *, truncated: bool = False, seq: int | None = None) -> None:
        """The phone connects again."""
        said = self.phone.hello(how)
        there = said or 0 if seq is None else seq
        self.phone.greeted(self.ok(there, truncated=truncated), self.oracle.era, snapshot=True)

    def done(self, seq: int) -> None:
        self.phone.take(frame(seq, "snapshot.done", replay=True))

    def fact(self, kind: str, **body: Any) -> None:
        self.n += 1
        self.truth.take({"boot": "b", "n": self.n, "fact": kind, "body": body})

    def turn(self, *pieces: str) -> None:
        """The host's side of the run."""
        self.fact("turn.started", turn_id=TURN, text=PROMPT, platform="loomi")
        for text in pieces:
            self.fact("delta", turn_id=TURN, iteration=1, channel="text", text=text)
        self.fact("turn.ended", turn_id=TURN, interrupted=False)

    def ask(self) -> None:
        """The host's side of the approval."""
        self.fact("approval.asked", approval_id="a_call_1")

    def decide(self, choice: str, command_id: str | None = None) -> None:
        self.fact("approval.done", approval_id="a_call_1", choice=choice, command_id=command_id)

    def ask_question(self) -> None:
        """The host's side of the question."""
        choices = ["red (Recommended)", "blue"]
        cards = [{"question": "call_1 which?", "choices": choices, "multi_select": False}]
        self.fact("question.asked", question_id="q_call_1", questions=cards)

    def answer(self, command_id: str, place: int | None) -> None:
        """A command that answers it so; None cancels it."""
        answers = None if place is None else [{"selected": [place]}]
        args = {"question_id": "q_call_1", "answers": answers}
        self.truth.take({"boot": "b", "run": command_id, "op": "answer", "args": args})

    def close(self, outcome: str, command_id: str | None = None) -> None:
        told = {"question_id": "q_call_1", "outcome": outcome, "command_id": command_id}
        self.fact("question.done", **told)

    def inject(self, command_id: str, request_id: str = "p-0") -> None:
        args = {"device_id": "p", "request_id": request_id}
        self.truth.take({"boot": "b", "run": command_id, "op": "inject", "args": args})
