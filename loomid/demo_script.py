"""What the agent of `loomid --demo` does in a turn: the facts a real Hermes would tell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import struct
import tempfile
import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.demo_controls import KEY, PROVIDER, Controls
from loomid.lmp.preview import of_args

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from loomid.demo_book import Book

APPROVAL_S = 60.0
CHOICES = ["once", "session", "deny"]
COMMAND = "rm -rf ./build"
COLOURS = ["red", "blue"]
QUESTION = "Which colour?"
LONG = (
    "This answer is long on purpose, so that you can watch it arrive word by word, close "
    "the app in the middle, open it again and find that nothing is missing and nothing is "
    "there twice. "
)
HELP = {
    "tool": "uses a tool",
    "danger": "asks for approval before it runs a command",
    "ask": "asks a question with two choices",
    "long": "gives a long answer (to cancel it, or to reconnect in the middle)",
    "think": "thinks aloud before it answers",
    "file": "sends a picture",
    "fail": "fails",
    "notify": "answers, then sends a notification as a scheduled job would",
}
"""First word of a message → what the agent does. Anything else it says back."""


@dataclass
class Turn:
    """One run of the agent."""

    turn_id: str
    session_id: str
    session_key: str
    message_id: str
    text: str
    model: str
    files: list[dict[str, Any]] = field(default_factory=list)
    """What came with the message: `name`, `media_type` and `path` of each."""
    call: int = 0
    """Calls of the model so far."""
    task: asyncio.Task[None] | None = None
    folded: deque[str] = field(default_factory=deque)
    """Messages that came into the turn and have no answer yet."""

    @property
    def running(self) -> bool:
        """Its first call of the model was made, and it still takes messages."""
        task = self.task
        return self.call > 0 and task is not None and not (task.done() or task.cancelling())


@dataclass
class Call:
    """A call of a tool, and what becomes of it."""

    tool: str
    args: dict[str, Any]
    call_id: str = field(default_factory=lambda: f"call_{secrets.token_hex(4)}")
    status: str = "ok"
    result: dict[str, Any] = field(default_factory=dict)

    def stored(self) -> dict[str, Any]:
        """As a message of the model has it."""
        function = {"name": self.tool, "arguments": json.dumps(self.args)}
        return {"id": self.call_id, "type": "function", "function": function}


@dataclass
class Script:
    """Plays turns; `emit` takes facts, `pace` is the time between two words."""

    emit: Callable[[Any], None]
    pace: float
    book: Book
    controls: Controls
    approvals: dict[str, asyncio.Future[tuple[str, str]]] = field(default_factory=dict)
    """Those that wait: approval id → (choice, command id)."""
    questions: dict[str, asyncio.Future[tuple[str | None, str]]] = field(default_factory=dict)
    """Those that wait: question id → (the answer, or that there is none; command id)."""
    allowed: set[str] = field(default_factory=set)
    """Keys of the sessions that need not ask any more."""

    async def play(self, turn: Turn) -> str | None:
        """The turn that the first word asks for; returns the final text, None if it failed."""
        answer = await self._first(turn)
        while answer is not None and turn.folded:
            text = turn.folded.popleft()
            self.book.add(turn.session_id, "user", text, display_kind="steer")
            answer = await self._say(turn, f"You added: {text}")
        return answer

    async def _first(self, turn: Turn) -> str | None:
        word = (turn.text.lower().split() or [""])[0].strip(".,!?:")
        match word:
            case "tool":
                return await self._tool(turn)
            case "danger" | "approve":
                return await self._danger(turn)
            case "ask" | "question":
                return await self._question(turn)
            case "fail":
                await self._fail(turn)
                return None
            case "long":
                return await self._say(turn, LONG * 8)
            case "think":
                silent = self.controls.effort_of(turn.session_key) == "none"
                thought = "" if silent else "Six times seven. "
                return await self._say(turn, "The answer is 42.", thought=thought)
            case "file":
                return await self._file(turn)
            case "notify":
                return await self._notify(turn)
            case _:
                sent = [f"You wrote: {turn.text}"] if turn.text.strip() else []
                sent += [f"You sent {_described(file)}" for file in turn.files]
                return await self._say(turn, "\n".join(sent))

    def send(self, key: str, message_id: str, text: str) -> None:
        """A text delivered to the chat of a message, as Hermes does at the end of a turn."""
        id_ = f"m{secrets.token_hex(4)}"
        chat = key.removeprefix(KEY)
        self.emit(wire.Sent(chat, key, id_, text, message_id, True, False, False, None))

    def obey(self, key: str, message_id: str, command: str) -> None:
        """Answer a command; the demo has none that does anything."""
        self.send(key, message_id, f"Hermes would do what {command} says; the demo only says so.")

    async def _tool(self, turn: Turn) -> str:
        call = Call("terminal", {"command": "ls -l"})
        await self._say(turn, "Let me look.", call=call)
        async with self._tool_call(turn, call):
            await asyncio.sleep(self.pace * 10)
            call.result = {"output": "a.txt\nb.txt\nc.txt", "exit_code": 0, "error": None}
        return await self._say(turn, "There are three files: a.txt, b.txt and c.txt.")

    async def _danger(self, turn: Turn) -> str:
        call = Call("terminal", {"command": COMMAND})
        await self._say(turn, "", call=call)
        async with self._tool_call(turn, call):
            key = turn.session_key
            asks = key not in self.allowed and self.controls.asks(key)
            choice = await self._ask(turn, call) if asks else "once"
            if choice == "session":
                self.allowed.add(key)
            call.status = "ok" if choice in {"once", "session"} else "blocked"
            error = None if call.status == "ok" else f"not allowed: {choice}"
            call.result = {"output": "", "exit_code": -1 if error else 0, "error": error}
        told = {
            "deny": "You said no, so nothing was done.",
            "timeout": "Nobody answered in time, so nothing was done.",
        }
        return await self._say(turn, told.get(choice, "You allowed it. (Nothing was deleted.)"))

    async def _ask(self, turn: Turn, call: Call) -> str:
        """Ask for approval; returns Hermes' word for how it ended."""
        approval_id = f"a{secrets.token_hex(6)}"
        answer: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self.approvals[approval_id] = answer
        self.emit(
            wire.ApprovalAsked(
                approval_id=approval_id,
                session_key=turn.session_key,
                session_id=turn.session_id,
                turn_id=turn.turn_id,
                call_id=call.call_id,
                command=COMMAND,
                description="recursive delete",
                choices=CHOICES,
                smart_denied=False,
                timeout_s=APPROVAL_S,
                answerable=True,
            )
        )
        choice, command_id = "cancelled", None
        try:
            async with asyncio.timeout(APPROVAL_S):
                choice, command_id = await answer
        except TimeoutError:
            choice = "timeout"
        finally:
            del self.approvals[approval_id]
            self.emit(wire.ApprovalDone(approval_id, choice, command_id))
        return choice

    async def _question(self, turn: Turn) -> str:
        """Ask for a colour, as Hermes' clarify tool would."""
        call = Call("clarify", {"question": QUESTION, "choices": COLOURS})
        await self._say(turn, "", call=call)
        question_id = f"q{secrets.token_hex(6)}"
        answer: asyncio.Future[tuple[str | None, str]] = asyncio.get_running_loop().create_future()
        self.questions[question_id] = answer
        outcome, said, command_id = "cancelled", None, None
        async with self._tool_call(turn, call):
            where = turn.session_key, turn.session_id, turn.turn_id, call.call_id
            cards = [wire.Card(QUESTION, COLOURS)]
            self.emit(wire.QuestionAsked(question_id, "clarify", *where, "", cards, APPROVAL_S))
            try:
                async with asyncio.timeout(APPROVAL_S):
                    said, command_id = await answer
                outcome = "cancelled" if said is None else "answered"
            except TimeoutError:
                outcome = "timeout"
            finally:
                del self.questions[question_id]
                self.emit(wire.QuestionDone(question_id, outcome, command_id))
            call.result = {"question": QUESTION, "user_response": said or f"({outcome})"}
        return await self._say(turn, f"You chose {said}." if said else "You did not choose.")

    async def _fail(self, turn: Turn) -> None:
        error = "HTTP 500: the model's server failed (this is what the demo was asked for)"
        await self._say(turn, "I was about to", error=error)
        self.send(turn.session_key, turn.message_id, f"The model failed: {error}")

    async def _notify(self, turn: Turn) -> str:
        said = await self._say(turn, "A notification follows, as a scheduled job would send it.")
        text = "The nightly backup is done: 3 files, 12 MB."
        message_id = f"m{secrets.token_hex(4)}"
        home = wire.HOME_CHAT
        sent = wire.Sent(home, KEY + home, message_id, text, None, False, False, False, "backup")
        self.emit(sent)
        return said

    async def _file(self, turn: Turn) -> str:
        """Send a picture, as Hermes does with a file that the model names in its answer."""
        with tempfile.NamedTemporaryFile(prefix="demo-", suffix=".png", delete=False) as file:
            file.write(_picture())
        said = await self._say(turn, f"Here is a picture.\nMEDIA:{file.name}")
        key, name = turn.session_key, Path(file.name).name
        where = key.removeprefix(KEY), key, f"f{secrets.token_hex(4)}", file.name, ""
        # It is told to be a copy made for loomid, which removes those.
        self.emit(wire.FileSent(*where, name, "", turn.message_id, None, True))
        return said

    async def _say(
        self,
        turn: Turn,
        text: str,
        *,
        thought: str = "",
        call: Call | None = None,
        error: str | None = None,
    ) -> str:
        """One call of the model: its stream, then its end."""
        turn.call += 1
        id_, session_id, number = turn.turn_id, turn.session_id, turn.call
        model = turn.model, PROVIDER, wire.PLATFORM
        self.emit(wire.ApiStarted(id_, session_id, number, *model))
        self.emit(wire.StreamStarted(id_, number, session_id, *model))
        said = ""
        try:
            for channel, words in (("reasoning", thought), ("text", text)):
                for piece in re.findall(r"\S+\s*|\s+", words):
                    await asyncio.sleep(self.pace)
                    self.emit(wire.Delta(id_, number, piece, channel))
                    said += piece if channel == "text" else ""
        except asyncio.CancelledError:
            self.emit(wire.StreamEnded(id_, number, said, False, "interrupted"))
            raise
        self.emit(wire.StreamEnded(id_, number, said, error is None, error))
        if error is not None:
            failed = wire.ApiFailed(id_, session_id, number, 500, "server_error", False, error)
            self.emit(failed)
            return said
        finish = "tool_calls" if call else "stop"
        self.emit(wire.ApiEnded(id_, number, finish, said))
        if call and said:
            self.emit(wire.Interim(id_, number, said, True))
        calls = json.dumps([call.stored()]) if call else None
        more = {"reasoning": thought or None, "tool_calls": calls, "finish_reason": finish}
        self.book.add(session_id, "assistant", said, **more)
        return said

    @contextlib.asynccontextmanager
    async def _tool_call(self, turn: Turn, call: Call) -> AsyncIterator[None]:
        began = time.monotonic()
        where = turn.turn_id, turn.session_id, turn.call, call.call_id
        self.emit(wire.ToolStarted(*where, call.tool, of_args(call.args)))
        try:
            yield
            result = {"tool_call_id": call.call_id, "tool_name": call.tool}
            self.book.add(turn.session_id, "tool", json.dumps(call.result), **result)
        except asyncio.CancelledError:
            call.status = "cancelled"
            raise
        finally:
            ms = (time.monotonic() - began) * 1000
            self.emit(wire.ToolEnded(turn.turn_id, call.call_id, call.tool, call.status, ms))


def _described(file: dict[str, Any]) -> str:
    size = Path(file["path"]).stat().st_size
    return f"{file['name']} ({file['media_type']}, {size:,} bytes)."


def _picture() -> bytes:
    """A small PNG: a blend of colours."""
    rows = (bytes(b for x in range(64) for b in (x * 4, y * 4, 128)) for y in range(64))
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(b"".join(b"\0" + row for row in rows)),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
