"""The host's journal, read as it grows: what was emitted, acknowledged and carried out."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomid.wire import PLATFORM
from tests.chaos import answers
from tests.support.view import asked_id

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(slots=True)
class Turn:
    """One turn as the host told it."""

    boot: str
    turn_id: str
    line: int
    """Where in the journal it begins."""
    text: str
    surface: str
    said: dict[tuple[int, str], list[tuple[int, str]]] = field(default_factory=dict)
    """(call, channel) → (n, piece)"""
    tools: int = 0
    status: str | None = None
    """completed, cancelled or failed, once it is over."""
    end_n: int = 0
    """The number of the fact that ended it; 0: none did."""

    def whole(self, call: int, channel: str, upto: int | None = None) -> str:
        """What was said, in all facts or those up to a number."""
        pieces = self.said.get((call, channel), ())
        return "".join(piece for n, piece in pieces if upto is None or n <= upto)


@dataclass(slots=True)
class Asked:
    """One approval or question as the host told it."""

    boot: str
    line: int
    asked_n: int
    cards: list[dict[str, Any]] | None
    """Of a question."""
    how: str | None = None
    """What was decided of an approval, or the outcome of a question."""
    command_id: str | None = None
    answer: str = ""
    """What that command said."""
    done_n: int = 0


@dataclass(slots=True)
class Ran:
    """A command that was carried out."""

    boot: str
    line: int
    op: str
    args: dict[str, Any]


class Truth:
    """All that the journal tells."""

    at_once = True
    """A command is in here before it is answered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self.lines = 0
        self.boot = ""
        """The process that began last."""
        self.pid = 0
        self.emitted: dict[str, int] = {}
        """boot → number of its last fact"""
        self.acked: dict[str, int] = {}
        """boot → what loomid has acknowledged; what a killed process knew of, if it was killed."""
        self.rested = False
        self.turns: dict[str, Turn] = {}
        """by the mark in their prompts and texts"""
        self.asked: dict[str, Asked] = {}
        """Approvals and questions, by the host's ids."""
        self.commands: dict[str, list[Ran]] = defaultdict(list)
        self.injected: dict[tuple[str, str], list[Ran]] = defaultdict(list)
        """(device, request) → the commands that brought it"""

    def read(self) -> None:
        """Take in what was written since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in data[:end].split(b"\n"):
            if line.startswith(b"{") and line.endswith(b"}"):
                self.take(json.loads(line))

    def take(self, line: dict[str, Any]) -> None:
        """One line of the journal."""
        self.lines += 1
        boot = line["boot"]
        match line:
            case {"fact": kind, "n": n, "body": body}:
                self.emitted[boot] = n
                self._fact(boot, n, kind, body)
            case {"ack": n}:
                self.acked[boot] = max(n, self.acked.get(boot, 0))
            case {"run": command_id, "op": op, "args": args}:
                self._ran(command_id, Ran(boot, self.lines, op, args))
            case {"up": pid}:
                self.boot, self.pid, self.rested = boot, pid, False
            case {"rest": _}:
                self.rested = True

    def _ran(self, command_id: str, ran: Ran) -> None:
        if ran.op in {"running", "sessions"}:
            return  # changes nothing
        self.commands[command_id].append(ran)
        if ran.op == "inject" and "request_id" in ran.args:
            self.injected[ran.args["device_id"], ran.args["request_id"]].append(ran)

    def _fact(self, boot: str, n: int, kind: str, body: dict[str, Any]) -> None:
        match kind:
            case "turn.started":
                what = body["turn_id"], self.lines, body["text"], body["platform"]
                self.turns[mark_of(body["turn_id"])] = Turn(boot, *what)
            case "approval.asked" | "question.asked":
                self.asked[asked_id(body)] = Asked(boot, self.lines, n, body.get("questions"))
            case "approval.done" | "question.done":
                self._done(self.asked[asked_id(body)], n, body)
            case _ if (turn := self.turns.get(mark_of(body.get("turn_id", "")))) is not None:
                _of_turn(turn, n, kind, body)

    def _done(self, asked: Asked, n: int, body: dict[str, Any]) -> None:
        asked.how = body["choice"] if asked.cards is None else body["outcome"]
        asked.command_id, asked.done_n = body["command_id"], n
        if asked.command_id is None:
            return
        asked.answer = asked.how
        if asked.cards is not None:
            args = self.commands[asked.command_id][0].args
            asked.answer = answers.placed(asked.cards, args["answers"])


def mark_of(turn_id: str) -> str:
    """What the prompt of a turn ends with, between « and »."""
    return ".".join(turn_id.split(":")[-2:])


def _of_turn(turn: Turn, n: int, kind: str, body: dict[str, Any]) -> None:
    match kind:
        case "delta":
            said = turn.said.setdefault((body["iteration"], body["channel"]), [])
            said.append((n, body["text"]))
        case "tool.started":
            turn.tools += 1
        case "api.failed":
            # Such a turn of ours ends with processing.ended, the next fact; of another surface
            # Hermes says nothing more, and loomid has to ask what runs.
            turn.status, turn.end_n = "failed", n + 1 if turn.surface == PLATFORM else 0
        case "turn.ended":
            turn.status = "cancelled" if body["interrupted"] else "completed"
            turn.end_n = n
