"""What one phone asks of loomid, and whether it is answered truthfully."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomid.errors import PhoneError
from tests.chaos import answers
from tests.support.view import asked_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.frame import Frame
    from tests.chaos.journal import Truth
    from tests.chaos.trace import Violated

VOID = "already_resolved"
"""Another answer won."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`code`: of an error, "" for a result. `body`: the answer without its number."""

    code: str
    body: str
    restored: int
    """How often an earlier database had been put in place by then."""

    @property
    def nothing_ran(self) -> bool:
        """It says that the request did not run."""
        return bool(self.code) and PhoneError.codes[self.code].proves_nothing_ran


@dataclass(slots=True)
class Ask:
    """One request under its id, however often it is made."""

    type: str
    payload: dict[str, Any]
    restored: int
    """How often an earlier database had been put in place when it was first made."""
    answers: list[Answer] = field(default_factory=list)
    wrong: bool = False
    """It is no answer to its question."""
    waits: bool = False
    """It was made on the connection that is there, and not answered on it."""

    @property
    def frame(self) -> str:
        return json.dumps({"v": 1, "type": self.type, "payload": self.payload})


class Asking:
    """All requests of one device."""

    def __init__(self, name: str, truth: Truth, violated: Violated) -> None:
        self.device_id = ""
        self.asks: dict[str, Ask] = {}
        self.restored = 0
        self._name = name
        self._truth = truth
        self._violated = violated

    @property
    def next_id(self) -> str:
        """What the next request will be called."""
        return f"{self._name}-{len(self.asks)}"

    def new(self, type_: str, /, *, wrong: bool = False, **payload: Any) -> Ask:
        """A request under a new id."""
        request_id = self.next_id
        ask = self.asks[request_id] = Ask(
            type_, {**payload, "request_id": request_id}, self.restored, wrong=wrong
        )
        return ask

    def recent(self, count: int = 40) -> list[Ask]:
        """The last ones: loomid remembers 256 of a device."""
        return list(self.asks.values())[-count:]

    def open(self) -> Iterator[Ask]:
        """Those without an answer."""
        return (ask for ask in self.asks.values() if not ask.answers)

    def hung_up(self) -> None:
        """The connection is gone, and with it the answers that were on their way."""
        for ask in self.recent():
            ask.waits = False

    def answer(self, frame: Frame) -> str | None:
        """Take a result or an error; its code ("" for a result), None if it answers nothing."""
        request_id = frame.payload.get("request_id")
        ask = self.asks.get(request_id or "")
        if ask is None or request_id is None:
            return None
        ask.waits = False
        code = frame.payload["code"] if frame.type == "error" else ""
        answer = Answer(code, frame.body.decode(), self.restored)
        if code == "rate_limited":
            return code  # not about the request
        self._truth.read()
        if ask.type == "session.send":
            self._sent(request_id, ask, answer)
        if (not code and ask.wrong) or (code == "bad_answer" and not ask.wrong):
            self._violated("wrong answer", request_id=request_id, code=code)
        ask.answers.append(answer)
        return code

    def _sent(self, request_id: str, ask: Ask, answer: Answer) -> None:
        ran = self._truth.injected.get((self.device_id, request_id), [])
        where = {"request_id": request_id, "code": answer.code}
        # An earlier database may not know what ran.
        if answer.nothing_ran and ran and ask.restored == answer.restored:
            self._violated("untrue answer", what="it ran", **where)
        if not answer.code and not ran and self._truth.at_once:
            self._violated("untrue answer", what="it never ran", **where)
        before = [one for one in ask.answers if not one.nothing_ran]
        same_file = before and before[-1].restored == answer.restored
        # One that ran twice is judged in the end: an answer from before an earlier database came
        # may have waited for a phone that stalled.
        if same_file and len(ran) < 2 and before[-1].body != answer.body:
            self._violated("another answer", **where, before=before[-1].code)

    def choices(self) -> Iterator[tuple[str, str]]:
        """(approval, choice) or (question, what was said) of the answers that may have been
        carried out."""
        for ask in self.asks.values():
            # (An earlier database may not know any more what was accepted.)
            counts = [not one.nothing_ran and one.code != VOID for one in ask.answers] or [True]
            if any(counts) and ask.type == "approval.resolve":
                yield asked_id(ask.payload), ask.payload["choice"]
            elif any(counts) and ask.type in {"question.answer", "question.cancel"}:
                yield asked_id(ask.payload), answers.said(ask.payload.get("answers"))

    def conclude(self, restored_at: list[int]) -> None:
        """All is quiet. `restored_at`: lines of the journal where earlier databases came."""
        self._truth.read()
        for request_id, ask in self.asks.items():
            if not ask.answers:
                self._violated("no answer", request_id=request_id, type=ask.type)
            ran = self._truth.injected.get((self.device_id, request_id), [])
            # For an earlier database it may be a new request.
            most = 1 + sum(ran[0].line < line < ran[-1].line for line in restored_at) if ran else 1
            if len(ran) > most:
                self._violated("ran twice", request_id=request_id, times=len(ran))
            said_no = bool(ask.answers) and ask.answers[-1].nothing_ran
            if said_no and ran and ask.restored == self.restored:
                self._violated("untrue answer", what="it ran", request_id=request_id)
