"""What the stand-in host does in a turn: the facts of one, each text with marks of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loomid import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.lmp.decisions import Kind
    from tests.chaos.host import Host, Session

MODEL, PROVIDER = "m", "p"
CHOICES = ["once", "session", "deny"]
CARDS = (
    wire.Card("which colour?", ["red (Recommended)", "blue", "1"]),
    wire.Card("which sizes?", ["S", "M", "L"], multi_select=True),
    wire.Card("what for?", None),
)
TIMEOUTS = (1.5, 5.0, 12.0)
FILL = ("", "ä", "👩‍👩‍👦", "%d %s", "\n", '"}', "x" * 60)


class Cut(Exception):
    """The model failed; the argument is what it said."""


class Asks:
    """What Hermes waits for, approvals or questions: each has one end, decided in one place.

    `hurried` is how those end that still wait when the host is to come to rest.
    """

    def __init__(self, emit: Callable[[Any], None], kind: Kind, hurried: str) -> None:
        self._emit = emit
        self._done = wire.ApprovalDone if kind == "approval" else wire.QuestionDone
        self._end = hurried
        self.pending: dict[str, asyncio.Future[str]] = {}
        self._hurried = False

    async def ask(
        self, name: str, fact: Any, timeout_s: float, local: tuple[float, str] | None
    ) -> str:
        """Ask, and wait until it is decided: by a command, `local` (after so long), or time."""
        answer = self.pending[name] = asyncio.get_running_loop().create_future()
        self._emit(fact)
        try:
            if local is not None:
                done, _ = await asyncio.wait([answer], timeout=local[0])
                if not done:
                    self.decide(name, local[1], None)
            if self._hurried:
                self.decide(name, self._end, None)
            await asyncio.wait([answer], timeout=timeout_s)
            self.decide(name, "timeout", None)
        finally:
            self.decide(name, "cancelled", None)
        return answer.result()

    def decide(self, name: str, how: str, command_id: str | None) -> bool:
        """End it, if it still waits: the one place where that happens."""
        answer = self.pending.pop(name, None)
        if answer is None:
            return False
        self._emit(self._done(name, how, command_id))
        answer.set_result(how)
        return True

    def hurry(self) -> None:
        """Whoever sits at the host ends all that still waits."""
        self._hurried = True
        for name in list(self.pending):
            self.decide(name, self._end, None)


class Play:
    """One turn."""

    def __init__(self, host: Host, session: Session, message_id: str, text: str) -> None:
        assert session.turn_id is not None
        self.host, self.session, self.rng = host, session, host.rng
        self.turn_id, self.message_id, self.text = session.turn_id, message_id, text
        self.ours = session.platform == wire.PLATFORM
        self.mark = f"{host.boot[:6]}.{host.serial}"
        self.call = 0
        self.marks = 0

    async def run(self) -> None:
        """The turn from its first fact to its last."""
        emit, id_, session = self.host.emit, self.turn_id, self.session
        if self.ours:
            emit(wire.ProcessingStarted(session.key, self.message_id))
        shown = f"{self.text[: wire.PREVIEW_CHARS - 40]} «{self.mark}»"
        emit(wire.TurnStarted(id_, session.session_id, session.key, session.platform, MODEL, shown))
        try:
            answer = await self._calls()
        except asyncio.CancelledError:
            emit(wire.LoopStopped(session.key, "stop"))
            emit(wire.TurnEnded(id_, session.session_id, False, True, False, "interrupted"))
            self._processed("cancelled")
            raise
        except Cut:
            self._processed("success")  # such a turn has no turn.ended, in Hermes neither
            return
        emit(wire.TurnAnswered(id_, answer))
        emit(wire.TurnEnded(id_, session.session_id, True, False, False, "text_response"))
        self._processed("success")

    def _processed(self, outcome: str) -> None:
        if self.ours:
            self.host.emit(wire.ProcessingEnded(self.session.key, self.message_id, outcome))

    async def _calls(self) -> str:
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            await self._say(tools=True)
            for _ in range(self.rng.choice((1, 1, 2))):
                await self._tool()
        return await self._say(fails=self.rng.random() < 0.08)

    async def _say(self, *, tools: bool = False, fails: bool = False) -> str:
        """One call of the model: its stream, then its end."""
        self.call += 1
        emit, id_, call = self.host.emit, self.turn_id, self.call
        where = (self.session.session_id, MODEL, PROVIDER, self.session.platform)
        emit(wire.ApiStarted(id_, where[0], call, *where[1:]))
        emit(wire.StreamStarted(id_, call, *where))
        pace = self.rng.choice((0.0, 0.005, 0.02, 0.06))
        said = ""
        try:
            for channel, count in (("reasoning", self.rng.choice((0, 0, 3))), ("text", None)):
                for _ in range(self.rng.randint(2, 40) if count is None else count):
                    await asyncio.sleep(pace * self.rng.uniform(0.3, 1.7))
                    piece = self._piece()
                    emit(wire.Delta(id_, call, piece, channel))
                    said += piece if channel == "text" else ""
        except asyncio.CancelledError:
            emit(wire.StreamEnded(id_, call, said, False, "interrupted"))
            raise
        if fails:
            emit(wire.StreamEnded(id_, call, said, False, "broken"))
            emit(wire.ApiFailed(id_, where[0], call, 500, "server_error", False, "the model broke"))
            raise Cut
        emit(wire.StreamEnded(id_, call, said, True, None))
        emit(wire.ApiEnded(id_, call, "tool_calls" if tools else "stop", said))
        if tools:
            emit(wire.Interim(id_, call, said, True))
        return said

    def _piece(self) -> str:
        """Begins and ends with what no one strips, and comes once in all time."""
        self.marks += 1
        return f"«{self.mark}.{self.marks}»{self.rng.choice(FILL)}»"

    async def _tool(self) -> None:
        self.marks += 1
        id_, call_id = self.turn_id, f"call_{self.mark}_{self.marks}"
        emit, session_id = self.host.emit, self.session.session_id
        name = self.rng.choice(("terminal", "terminal", "clarify"))
        emit(wire.ToolStarted(id_, session_id, self.call, call_id, name, call_id))
        status = "cancelled"
        try:
            if name == "clarify":
                await self._answer(call_id)
                status = "ok"
            else:
                allowed = await self._allowed(call_id) in {"once", "session", ""}
                status = "ok" if allowed else "blocked"
            await asyncio.sleep(self.rng.uniform(0.0, 0.3))
        finally:
            emit(wire.ToolEnded(id_, call_id, name, status, 1.0))

    async def _answer(self, call_id: str) -> None:
        """Ask one question or several at once."""
        cards = self.rng.choices(CARDS, k=self.rng.choice((1, 1, 2, 3)))
        timeout = self.rng.choice(TIMEOUTS)
        asked = wire.QuestionAsked(
            question_id=f"q_{call_id}",
            source="clarify",
            session_key=self.session.key,
            session_id=self.session.session_id,
            turn_id=self.turn_id,
            call_id=call_id,
            title="",
            questions=[replace(card, question=f"{call_id} {card.question}") for card in cards],
            timeout_s=timeout,
        )
        local = (self.rng.uniform(0.2, 3.0), "answered") if self.rng.random() < 0.2 else None
        await self.host.questions.ask(asked.question_id, asked, timeout, local)

    async def _allowed(self, call_id: str) -> str:
        """Perhaps ask for approval first; the answer, "" when it was not asked."""
        if self.rng.random() < 0.4:
            return ""
        timeout = self.rng.choice(TIMEOUTS)
        asked = wire.ApprovalAsked(
            approval_id=f"a_{call_id}",
            session_key=self.session.key,
            session_id=self.session.session_id,
            turn_id=self.turn_id,
            call_id=call_id,
            command=f"rm -rf {call_id}",
            description="delete",
            choices=CHOICES,
            smart_denied=False,
            timeout_s=timeout,
            answerable=True,
        )
        local = (self.rng.uniform(0.2, 3.0), "once") if self.rng.random() < 0.2 else None
        return await self.host.approvals.ask(asked.approval_id, asked, timeout, local)
