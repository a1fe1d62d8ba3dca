"""A Hermes gateway in a simulation: what it does, and what it was told to do.

The link is the shim's own, with its backlog and its orders; only its socket is not.
"""

from __future__ import annotations

import asyncio
import atexit
import math
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hermes_shim.link import POLL_S, Link
from loomid import wire
from tests.support import plain, turns
from tests.support.host import identity

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.turns import Script
    from tests.support.whole.loop import VirtualLoop
    from tests.support.whole.wire import Wire

CHOICES = ["once", "session", "always", "deny"]
THINKS_S = 0.3
CHATTER_S = 3.0
LONG_S = 100.0
PATIENCE_S = 1.5
"""How long its own turns wait for an answer."""


class _StepwiseLink(Link):
    """Without a thread: `_take` does not wait for what hooks say."""

    def _take(self) -> None:
        while not self._queue.empty():
            item = self._queue.get_nowait()
            if isinstance(item, tuple):
                self._backlog.add(*item)
            else:
                self._orders.settle(item)


@dataclass
class Turn:
    """One turn that a host has begun."""

    turn_id: str
    session_key: str
    texts: list[str | None] | None
    """What a phone must show in the end, by iteration; None: it was meddled with."""
    status: str
    tools: int
    origin: tuple[str | None, str | None] | None = None
    over: bool = False


@dataclass
class Ran:
    """What became of commands, whichever process ran them."""

    ids: Counter[str] = field(default_factory=Counter)
    sends: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By device and request."""
    answered: Counter[str] = field(default_factory=Counter)
    """Approvals and questions."""


QUESTION = "question"
"""What the ids of questions begin with."""


class Host:
    """One gateway; `start` begins a new process of it, `kill` ends that."""

    def __init__(self, loop: VirtualLoop, line: Wire, socket: Path, name: str, ran: Ran) -> None:
        self.name = name
        self.ran = ran
        self.boots = 0
        self.link: _StepwiseLink | None = None
        self.turns: list[Turn] = []
        self.pending: dict[str, tuple[str, list[str]]] = {}
        self.answers = True
        self.busy = True
        """It begins turns of its own."""
        self.late = False
        """Some of its facts come late."""
        self._severed_at = math.inf
        self._loop = loop
        self._wire = line
        self._socket = socket
        self._due: list[asyncio.TimerHandle] = []
        self._later: list[asyncio.TimerHandle] = []
        self._count = 0

    # ── the process ──

    @property
    def boot(self) -> str:
        return f"{self.name}-boot{self.boots}"

    @property
    def socket(self) -> Any:
        return None if self.link is None else self.link._socket

    def start(self, features: list[str]) -> None:
        """A new process."""
        self.boots += 1
        hooks = ["pre_llm_call", *features]
        # Without its stat nobody can tell by its pid that it is gone.
        who = identity(self.name, self.boot, stat="", hooks=hooks, home_key=None)
        self.link = _StepwiseLink(who, [f"ipc://{self._socket}"], lambda: self)
        atexit.unregister(self.link.stop)
        self.link.state = "connecting"
        self._step()
        if features:
            self._later.append(self._loop.call_later(CHATTER_S, self._chatter))

    def kill(self) -> None:
        """The process is gone, with all that loomid has not got."""
        if self.link is not None:
            if self.link._backlog.facts or not self.link._queue.empty():
                self.give_up()
            if self.link._socket is not None:
                self.link._socket.sever()
            self.link._close()
            self.link = None
        for timer in (*self._due, *self._later):
            timer.cancel()
        self._due.clear()
        self._later.clear()
        self.pending.clear()
        for turn in self.turns:
            if not turn.over:
                turn.over, turn.texts, turn.origin = True, None, None

    def _soon(self) -> None:
        """The link thread looks around this often."""
        self._due.append(self._loop.call_later(POLL_S, self._step))

    def _step(self) -> None:
        link = self.link
        if link is None:
            return
        for timer in self._due:
            timer.cancel()
        self._due.clear()
        link._step(self._wire)  # type: ignore[arg-type]
        if link._socket is not None:
            link._socket.readable = self._soon
        if not link._queue.empty() or link._orders.results:
            self._soon()
        self._due.append(self._loop.call_at(max(link._due, self._loop.now + 1e-3), self._step))

    def ready(self) -> bool:
        return True

    def sever(self) -> None:
        """The link breaks."""
        if self.socket is not None:
            self.socket.sever()
            if self.late:  # loomid, which is there, waits for late text no longer
                self.give_up()
            self._severed_at = min(self._severed_at, self._loop.now)

    def mend(self) -> None:
        """The link is there again; silent for two minutes, loomid took the process for lost."""
        if self.socket is not None:
            self.socket.mend()
        if self._loop.now - self._severed_at > LONG_S:
            self.give_up()
        self._severed_at = math.inf

    def give_up(self) -> None:
        """What phones are told of its turns so far is not known any more."""
        for turn in self.turns:
            turn.texts = turn.origin = None

    # ── what it does ──

    def emit(self, fact: Any) -> None:
        """A hook is called."""
        if self.link is not None:
            self.link.emit(wire.KINDS[type(fact)], asdict(fact))
            self._soon()

    def _follow(self, timed: deque[tuple[float, Any]]) -> None:
        """Play facts at their times, in their order: the loop's own timers keep none."""
        while timed and timed[0][0] <= self._loop.now + 1e-6:
            self._play(timed.popleft()[1])
        if timed:
            self._later.append(self._loop.call_at(timed[0][0], self._follow, timed))

    def _play(self, fact: Any) -> None:
        match fact:
            case wire.ApprovalAsked(approval_id=name):
                self.pending[name] = fact.session_key, fact.choices
            case wire.QuestionAsked(question_id=name):
                self.pending[name] = fact.session_key, []
            case wire.QuestionDone(question_id=name) if self.pending.pop(name, None) is None:
                return  # answered meanwhile
            case wire.ApprovalDone(approval_id=name) if self.pending.pop(name, None) is None:
                return  # answered meanwhile
            case wire.TurnEnded() | wire.ProcessingEnded():
                self._over(fact)
        self.emit(fact)

    def _over(self, fact: Any) -> None:
        for turn in self.turns:
            if turn.turn_id == getattr(fact, "turn_id", "") or (
                turn.session_key == getattr(fact, "session_key", "")
            ):
                turn.over = True

    def fresh(self) -> tuple[str, str, str]:
        """A new turn's id, its session key and chat."""
        self._count += 1
        chat = f"chat{self._count}"
        return f"s1:{self.name}:t{self._count}", f"agent:main:loomi:dm:{chat}", chat

    def play(self, script: Script, timed: list[tuple[float, Any]], key: str, chat: str) -> None:
        """Begin a turn: its facts at their times."""
        self.turns.append(Turn(script.turn_id, key, script.texts, script.status, script.tools))
        begin = self._loop.now - timed[0][0]
        self._follow(deque((begin + at, _in_chat(fact, key, chat)) for at, fact in timed))

    def _chatter(self) -> None:
        """A turn that asks before it runs its one tool; and the next one later."""
        if not self.busy:
            return
        turn_id, key, _ = self.fresh()
        texts: list[str | None] = ["I look.", "It is done."]
        self.turns.append(Turn(turn_id, key, texts, "completed", 1))
        tool = wire.ToolStarted(turn_id, "s1", 1, "call_0", "terminal", "ls")
        first = [plain.started(turn_id, key), plain.asked(turn=turn_id)]
        first += [*plain.answered("I look.", turn=turn_id)[:-1]]
        first += [wire.ApiEnded(turn_id, 1, "tool_calls", "I look."), tool]
        first += [wire.Injected(key, f"in-{turn_id}", "Well?", "steer", True)]
        first += [replace(turns._asked(turn_id, "call_0", turn_id), session_key=key)]
        then = [wire.ApprovalDone(turn_id, "timeout", None)]
        then += [wire.ToolEnded(turn_id, "call_0", "terminal", "ok", 5.0)]
        then += [plain.asked(2, turn_id), *plain.answered("It is done.", 2, turn_id)]
        then += [wire.TurnAnswered(turn_id, "It is done."), plain.ended(turn_id)]
        now = self._loop.now
        timed = [(now + 0.02 * i, fact) for i, fact in enumerate(first)]
        timed += [(now + PATIENCE_S + 0.02 * i, fact) for i, fact in enumerate(then)]
        self._follow(deque(timed))
        self._later.append(self._loop.call_later(CHATTER_S, self._chatter))

    def ask(self, number: int) -> None:
        """Something wants to be allowed, or known, outside of any turn."""
        if number % 2:
            self._play(plain.question(f"{QUESTION}{self.boots}-{number}"))
            return
        asked = turns._asked("", "", f"ask{self.boots}-{number}")
        self._play(replace(asked, turn_id=None, call_id=None))

    def decide(self, name: str, choice: str) -> None:
        """Somebody at the gateway itself decides."""
        if name.startswith(QUESTION):
            outcome = "timeout" if choice == "timeout" else "cancelled"
            self._play(wire.QuestionDone(name, outcome, None))
            return
        self._play(wire.ApprovalDone(name, choice, None))

    @property
    def keys(self) -> list[str]:
        """The sessions whose agents run."""
        return [turn.session_key for turn in self.turns if not turn.over]

    # ── what it is told ──

    def execute(self, order: dict[str, Any]) -> None:
        """One command, on the link thread."""
        if order["op"] == "running":
            alive = {"keys": self.keys, "approvals": [*self.pending]}
            alive["questions"] = [name for name in self.pending if name.startswith(QUESTION)]
            assert self.link is not None
            self.link.emit(order["args"]["fact"], alive)
            self._reply(order["id"], value={"keys": self.keys})
            return
        self.ran.ids[order["id"]] += 1
        assert self.ran.ids[order["id"]] == 1, "a command ran twice"
        value, error = getattr(self, f"_{order['op']}")(order["args"], order["id"])
        if self.answers:
            self._reply(order["id"], error=error, value=value)

    def _reply(self, name: str, *, value: dict[str, Any], error: str | None = None) -> None:
        assert self.link is not None
        self.link.reply({"id": name, "error": error, "value": value})
        self._soon()

    def _inject(self, args: dict[str, Any], _: str) -> tuple[dict[str, Any], str | None]:
        who = args["device_id"], args.get("request_id", "")
        self.ran.sends[who] += 1
        turn_id, _, _ = self.fresh()
        key = f"agent:main:loomi:dm:{args['chat_id']}"
        text, message = args["text"], args["message_id"]
        busy = key in self.keys
        self._play(wire.Injected(key, message, text, args["mode"], busy, *who))
        value = {"session_key": key, "message_id": message}
        if busy:
            return value, None  # folded into the turn that runs, perhaps
        facts = [
            wire.ProcessingStarted(key, message),
            plain.started(turn_id, key, text=text),
            plain.asked(turn=turn_id),
            *plain.answered(f"to {text}", turn=turn_id),
            wire.TurnAnswered(turn_id, f"to {text}"),
            plain.ended(turn_id),
            wire.ProcessingEnded(key, message, "success"),
        ]
        self.turns.append(Turn(turn_id, key, [f"to {text}"], "completed", 0, who))
        now = self._loop.now
        self._follow(deque((now + THINKS_S * i, fact) for i, fact in enumerate(facts, 1)))
        return value, None

    def _cancel(self, args: dict[str, Any], _: str) -> tuple[dict[str, Any], str | None]:
        turn = next((t for t in self.turns if t.turn_id == args["turn_id"]), None)
        if turn is None or turn.over:
            return {}, "not_active"
        turn.texts = None
        over = plain.ended(turn.turn_id, interrupted=True)
        self._follow(deque([(self._loop.now + 0.05, over)]))
        return {"state": "cancelling", "dropped": []}, None

    def _approve(self, args: dict[str, Any], command: str) -> tuple[dict[str, Any], str | None]:
        name = args["approval_id"]
        if name not in self.pending:
            return {}, "not_pending"
        self.ran.answered[f"{self.boot}/{name}"] += 1
        self._play(wire.ApprovalDone(name, args["choice"], command))
        return {"applied": True}, None

    def _answer(self, args: dict[str, Any], command: str) -> tuple[dict[str, Any], str | None]:
        name, answers = args["question_id"], args["answers"]
        if name not in self.pending:
            return {}, "not_pending"
        self.ran.answered[f"{self.boot}/{name}"] += 1
        outcome = "cancelled" if answers is None else "answered"
        self._play(wire.QuestionDone(name, outcome, command))
        return {"applied": True}, None

    def _sessions(self, _: dict[str, Any], __: str) -> tuple[dict[str, Any], str | None]:
        return {"sessions": []}, None


def _in_chat(fact: Any, key: str, chat: str) -> Any:
    """A fact of the generated turns, in a session of its own."""
    if getattr(fact, "session_key", None) == turns.KEY:
        fact = replace(fact, session_key=key)
    if getattr(fact, "chat_id", None) == "chat":
        fact = replace(fact, chat_id=chat)
    return fact
