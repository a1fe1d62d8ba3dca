"""The scripted agent of `loomid --demo`: tells what a Hermes gateway would tell.

It runs in a process of its own and goes through the shim's own link, so that
everything beyond this file is what a real gateway uses. It ends when its stdin does.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import signal
import sys
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_shim.link import Link
from loomid import demo_controls, wire
from loomid.demo_book import Book, TitleTaken
from loomid.demo_controls import KEY, Controls, Refusal
from loomid.demo_script import CHOICES, COLOURS, Script, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger("loomid.demo")

PACE_S = 0.05
"""Between two words."""


@dataclass
class Message:
    """One text from a phone."""

    message_id: str
    text: str
    files: list[dict[str, Any]]
    copies: list[str]
    """Where Hermes would keep its own of the files."""

    @property
    def stored(self) -> str:
        """As Hermes stores it: the text with notes for the model before it."""
        notes = [f"[The user sent a file. It is saved at: {copy}]" for copy in self.copies]
        return "\n\n".join([*notes, self.text])


@dataclass
class Session:
    """One chat; its messages are in the book."""

    key: str
    session_id: str
    waiting: deque[Message] = field(default_factory=deque)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    turn: Turn | None = None


class Agent:
    """Sessions, turns, approvals and questions of the demo; `home` stands for Hermes' own."""

    def __init__(
        self,
        emit: Callable[[Any], None],
        group: asyncio.TaskGroup,
        pace: float,
        home: Path | None,
    ) -> None:
        self._emit = emit
        self._group = group
        self._home = home
        self._book = Book(home)
        self._controls = Controls(self._idle)
        self._script = Script(emit, pace, self._book, self._controls)
        self._sessions: dict[str, Session] = {}
        for row in self._book.sessions():
            self._keep(Session(row["session_key"], row["id"]))
        self.operations: dict[str, Callable[..., dict[str, Any]]] = {
            "inject": self._inject,
            "inject_files": self._inject,
            "cancel": self._cancel,
            "approve": self._approve,
            "answer": self._answer,
            "running": self._running,
            "sessions": self._list,
            "rename": self._rename,
            "open": self._open,
            "branch": self._branch,
            "host": self._host,
            **self._controls.operations(),
        }

    # ── commands of loomid ──────────────────────────────────────────────────

    def execute(self, command: wire.Command) -> wire.Result:
        """Do what a command says; the answer goes back over the link."""
        operation = self.operations.get(command.op)
        if operation is None:
            return wire.Result(command.id, "unknown_op")
        try:
            return wire.Result(command.id, value=operation(command.id, **command.args))
        except Refusal as refusal:
            return wire.Result(command.id, str(refusal))
        except TypeError:
            return wire.Result(command.id, "bad_args")

    def _inject(
        self,
        _id: str,
        chat_id: str,
        text: str,
        message_id: str,
        mode: str = "queue",
        device_id: str | None = None,
        request_id: str | None = None,
        files: Sequence[dict[str, Any]] = (),
        attachments: list[dict[str, Any]] | None = None,
        **_more: object,
    ) -> dict[str, Any]:
        session = self._session(KEY + chat_id)
        turn = session.turn if session.turn is not None and session.turn.running else None
        busy = turn is not None
        shown = text[: wire.PREVIEW_CHARS + 1]
        origin = device_id, request_id, attachments
        copies = [self._copy(file["name"]) for file in files]
        self._emit(wire.Injected(session.key, message_id, shown, mode, busy, *origin))
        if mode == "command":
            self._script.obey(session.key, message_id, text)
        elif mode == "steer" and turn is not None and not files:
            turn.folded.append(text)
        else:
            if mode == "interrupt":
                self._stop(session)
            session.waiting.append(Message(message_id, text, list(files), copies))
            session.woken.set()
        return {"session_key": session.key, "message_id": message_id, "copies": copies}

    def _copy(self, name: str) -> str:
        """A path as Hermes makes them, by which loomid knows the message again."""
        return f"{self._home or ''}/cache/documents/doc_{secrets.token_hex(6)}_{name}"

    def _cancel(self, _id: str, session_key: str, turn_id: str, **_more: object) -> dict[str, Any]:
        session = self._sessions.get(session_key)
        if session is None or session.turn is None or session.turn.turn_id != turn_id:
            raise Refusal("not_active")
        dropped = [message.message_id for message in session.waiting]
        session.waiting.clear()
        self._stop(session)
        return {"state": "cancelling", "dropped": dropped}

    def _approve(self, id_: str, approval_id: str, choice: str, **_more: object) -> dict[str, Any]:
        answer = self._script.approvals.get(approval_id)
        if answer is None or answer.done():
            raise Refusal("not_pending")
        if choice not in CHOICES:
            raise Refusal("bad_args")
        answer.set_result((choice, id_))
        return {"applied": True}

    def _answer(
        self, id_: str, question_id: str, answers: list[dict[str, Any]] | None, **_more: object
    ) -> dict[str, Any]:
        waits = self._script.questions.get(question_id)
        if waits is None or waits.done():
            raise Refusal("not_pending")
        said = None
        if answers is not None:
            chosen = [COLOURS[place] for place in answers[0]["selected"]]
            said = answers[0].get("custom") or chosen[0]
        waits.set_result((said, id_))
        return {"applied": True}

    def _running(self, _id: str, fact: str, **_more: object) -> dict[str, Any]:
        keys = self._running_keys()
        if fact == "inventory":
            asked = list(self._script.approvals), list(self._script.questions)
            self._emit(wire.Inventory(keys, *asked))
        else:
            self._emit(wire.Running(keys))
        return {"keys": keys}

    def _list(self, _id: str, limit: int, offset: int, **_more: object) -> dict[str, Any]:
        return {"sessions": self._book.sessions(limit, offset)}

    def _rename(
        self, _id: str, title: str, session_key: str | None = None, **_more: object
    ) -> dict[str, Any]:
        session = self._sessions.get(session_key or "")
        if session is None:
            raise Refusal("not_found")
        try:
            return {"title": self._book.title(session.session_id, title)}
        except TitleTaken:
            raise Refusal("title_taken") from None

    def _open(
        self, _id: str, chat_id: str, title: str | None = None, **_more: object
    ) -> dict[str, Any]:
        if title is not None and self._book.taken(title):
            raise Refusal("title_taken")
        session = self._session(KEY + chat_id)
        named = {} if title is None else {"title": self._book.title(session.session_id, title)}
        return {"session_key": session.key, **named}

    def _branch(
        self, _id: str, chat_id: str, session_key: str | None = None, **_more: object
    ) -> dict[str, Any]:
        """All sessions here are of phones, which share none."""
        old = self._sessions.get(session_key or "")
        if old is None or self._book.empty(old.session_id):
            raise Refusal("not_found")
        self._idle(old.key)
        new = self._session(KEY + chat_id, old.session_id)
        self._book.heading(new.session_id, self._book.title(old.session_id) or "branch")
        title = self._book.title(new.session_id)
        return {"session_key": new.key, "shared": False, "title": title}

    def _host(self, _id: str, **_more: object) -> dict[str, Any]:
        return demo_controls.host(self._home, len(self._running_keys()))

    def _idle(self, key: str | None) -> None:
        """Raises Refusal where a turn runs."""
        if key in self._running_keys():
            raise Refusal("busy")

    def _running_keys(self) -> list[str]:
        return [key for key, session in self._sessions.items() if session.turn is not None]

    def _session(self, key: str, origin: str | None = None) -> Session:
        """The session of a chat; a new one has a copy of the messages of `origin`."""
        if key not in self._sessions:
            session = Session(key, f"demo_{secrets.token_hex(6)}")
            self._book.begin(session.session_id, key, self._controls.model_of(key), origin)
            self._keep(session)
        return self._sessions[key]

    def _keep(self, session: Session) -> None:
        self._sessions[session.key] = session
        self._group.create_task(self._serve(session))

    # ── turns ───────────────────────────────────────────────────────────────

    def _stop(self, session: Session) -> None:
        if session.turn is not None and session.turn.task is not None:
            session.turn.task.cancel()

    async def _serve(self, session: Session) -> None:
        """One message after the other, as Hermes does for one chat."""
        while True:
            while session.waiting:
                message = session.waiting.popleft()
                id_ = session.session_id
                session.turn = Turn(
                    turn_id=f"{id_}:{id_}:{secrets.token_hex(4)}",
                    session_id=id_,
                    session_key=session.key,
                    message_id=message.message_id,
                    text=message.text,
                    model=self._controls.model_of(session.key),
                    files=message.files,
                )
                self._book.add(id_, "user", message.stored)
                self._book.heading(id_, message.text)
                self._book.model(id_, session.turn.model)
                session.turn.task = self._group.create_task(self._turn(session.turn))
                await asyncio.wait([session.turn.task])
                session.turn = None
            session.woken.clear()
            await session.woken.wait()

    async def _turn(self, turn: Turn) -> None:
        id_, key, message_id = turn.turn_id, turn.session_key, turn.message_id
        shown = turn.text[: wire.PREVIEW_CHARS + 1]
        self._emit(wire.ProcessingStarted(key, message_id))
        started = wire.TurnStarted(id_, turn.session_id, key, wire.PLATFORM, turn.model, shown)
        self._emit(started)
        try:
            answer = await self._script.play(turn)
        except asyncio.CancelledError:
            self._emit(wire.LoopStopped(key, "stop"))
            self._emit(wire.TurnEnded(id_, turn.session_id, False, True, False, "interrupted"))
            self._emit(wire.ProcessingEnded(key, message_id, "cancelled"))
            raise
        if answer is not None:  # a failed turn has no such end, in Hermes neither
            self._emit(wire.TurnAnswered(id_, answer))
            self._emit(wire.TurnEnded(id_, turn.session_id, True, False, False, "text_response"))
            self._script.send(key, message_id, answer)
        self._emit(wire.ProcessingEnded(key, message_id, "success"))


class _Owner:
    """What the link talks to, on a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answer: Callable[[Any], None]) -> None:
        self._loop, self._answer = loop, answer

    def ready(self) -> bool:
        """The demo takes messages at once."""
        return True

    def execute(self, message: dict[str, Any]) -> None:
        """Have a command carried out on our loop."""
        self._loop.call_soon_threadsafe(self._answer, wire.typed(message))


async def serve(endpoint: str, pace: float, home: Path | None) -> None:
    """Link to loomid and answer until stdin ends."""

    def emit(fact: Any) -> None:  # noqa: ANN401 - any fact of the wire
        link.emit(wire.KINDS[type(fact)], asdict(fact))

    def answer(command: wire.Command) -> None:
        link.reply(asdict(agent.execute(command)))

    owner = _Owner(asyncio.get_running_loop(), answer)
    try:
        async with asyncio.TaskGroup() as group:
            agent = Agent(emit, group, pace, home)
            link = Link(_identity(home, [*agent.operations]), [endpoint], lambda: owner)
            link.start()
            try:
                await _stdin_ends()
            finally:
                await asyncio.to_thread(link.stop)
            raise _Done
    except* _Done:
        pass


class _Done(Exception):
    """Ends the task group."""


async def _stdin_ends() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass


def _identity(home: Path | None, ops: list[str]) -> dict[str, Any]:
    stat = Path("/proc/self/stat")
    return {
        "gateway_id": _gateway_id(home),
        "boot": secrets.token_hex(8),
        "pid": os.getpid(),
        "stat": stat.read_text() if stat.exists() else "",
        "name": "Demo",
        "hermes_version": "demo",
        "shim_version": "demo",
        "hooks": ["on_stream_delta"],
        "ops": ops,
        "home": str(home or ""),
        "home_key": KEY + wire.HOME_CHAT,
    }


def _gateway_id(home: Path | None) -> str:
    """The id kept there, made once; without a home that of this process."""
    fresh = secrets.token_hex(8)
    if home is None:
        return fresh
    path = home / "gateway_id"
    with suppress(FileExistsError), path.open("x") as new:
        new.write(fresh)
    return path.read_text() or fresh


def main() -> None:
    """`python -m loomid.demo_agent ENDPOINT [SECONDS BETWEEN WORDS] [--home DIR]`"""
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    parser.add_argument("pace", type=float, nargs="?", default=PACE_S)
    parser.add_argument("--home", type=Path)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="demo agent: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for loomid, which closes our stdin
    if asked.home is not None:
        asked.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    asyncio.run(serve(asked.endpoint, asked.pace, asked.home))


if __name__ == "__main__":
    main()
