"""A stand-in for the gateway process that keeps a journal of the truth.

    python -m tests.chaos.host ENDPOINT JOURNAL SEED

It plays turns of its own and those that phones ask for, and runs loomid's commands. Each fact
is in the journal before it is emitted, each command before it is carried out, and each
acknowledgement of loomid when it came: one JSON object a line, appended with one system call,
so that the file is right whenever the process is killed:

    {"boot", "up": pid}                     this process began
    {"boot", "n", "fact": kind, "body"}     fact n of this process
    {"boot", "ack": n}                      loomid has said that it has all up to n
    {"boot", "run": command id, "op", "args"}
    {"boot", "rest": true}                  after SIGUSR1: no turn runs, none will begin

Everything but the acknowledgements happens on one thread, so the numbers are the link's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hermes_shim.link import Link
from loomid import wire
from tests.chaos.play import Asks, Play
from tests.support.host import identity

GATEWAY = "chaos"
KEY = "agent:main:{}:dm:{}"
SESSIONS = 6
"""Chats on another surface, in which the host itself has turns."""
ENTRY_POINTS = {"inject", "cancel", "approve", "answer", "running", "sessions"}


class Journal:
    """The file, and the boot that each line belongs to."""

    def __init__(self, path: Path, boot: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._boot = boot
        os.write(self._file, b"\n")  # ends what a killed process left half written

    def note(self, **what: Any) -> None:
        """Append a line; it outlives the process when this returns."""
        line = json.dumps({"boot": self._boot, **what}) + "\n"
        os.write(self._file, line.encode())


class WatchedLink(Link):
    """The shim's link; notes what loomid has acknowledged."""

    journal: Journal

    def _on(self, message: dict[str, Any]) -> None:
        super()._on(message)
        match message:
            case {"m": "welcome", "ack": n} | {"m": "ack", "n": n}:
                self.journal.note(ack=n)
            case _:
                pass


@dataclass
class Session:
    """One chat: a turn after the other."""

    key: str
    platform: str
    session_id: str
    waiting: deque[tuple[str, str]] = field(default_factory=deque)
    """message id, text"""
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    turn_id: str | None = None
    task: asyncio.Task[None] | None = None
    count: int = 0
    started_at: float = field(default_factory=time.time)


class Refusal(Exception):
    """A command that does not run; the argument is a code of wire.RESULT_ERRORS."""


class Host:
    """Sessions, turns and commands."""

    def __init__(self, endpoint: str, journal: Path, seed: int) -> None:
        self.boot = secrets.token_hex(8)
        self.rng = Random(seed)
        self.journal = Journal(journal, self.boot)
        self.sessions: dict[str, Session] = {}
        self.approvals = Asks(self.emit, "approval", "deny")
        self.questions = Asks(self.emit, "question", "cancelled")
        self.resting = asyncio.Event()
        self.n = 0
        self.serial = 0
        more = {
            "name": "Chaos",
            "hooks": ["on_stream_delta"],
            "ops": sorted(ENTRY_POINTS),
            "home_key": self.key("loomi", "home"),
        }
        self.link = WatchedLink(identity(GATEWAY, self.boot, **more), [endpoint], lambda: self)
        self.link.journal = self.journal

    @staticmethod
    def key(platform: str, chat: str) -> str:
        return KEY.format(platform, chat)

    def emit(self, fact: Any) -> None:
        """Tell a fact, noted before."""
        self.n += 1
        kind, body = wire.KINDS[type(fact)], asdict(fact)
        self.journal.note(n=self.n, fact=kind, body=body)
        self.link.emit(kind, body)

    # ── commands of loomid ──────────────────────────────────────────────────

    def ready(self) -> bool:
        """On the link's thread."""
        return True

    def execute(self, command: dict[str, Any]) -> None:
        """On the link's thread: have a command carried out on our loop."""
        self.loop.call_soon_threadsafe(self._run, command)

    def _run(self, command: dict[str, Any]) -> None:
        op, args, id_ = command["op"], command["args"], command["id"]
        self.journal.note(run=id_, op=op, args=args)
        try:
            if op not in ENTRY_POINTS:
                raise Refusal("unknown_op")
            value = getattr(self, f"_{op}")(id_, **args)
        except Refusal as refusal:
            self.link.reply({"id": id_, "error": str(refusal)})
        else:
            self.link.reply({"id": id_, "value": value})

    def _inject(
        self, _id: str, chat_id: str, text: str, message_id: str, mode: str, **origin: Any
    ) -> dict[str, Any]:
        session = self.session("loomi", chat_id)
        shown, busy = text[: wire.LIMIT], session.turn_id is not None
        self.emit(wire.Injected(session.key, message_id, shown, mode, busy, **origin))
        session.waiting.append((message_id, text))
        session.woken.set()
        return {"session_key": session.key, "message_id": message_id}

    def _cancel(self, _id: str, session_key: str, turn_id: str, **_: Any) -> dict[str, Any]:
        session = self.sessions.get(session_key)
        if session is None or session.task is None or session.turn_id != turn_id:
            raise Refusal("not_active")
        dropped = [message_id for message_id, _ in session.waiting]
        session.waiting.clear()
        session.task.cancel()
        return {"state": "cancelling", "dropped": dropped}

    def _approve(self, id_: str, approval_id: str, choice: str, **_: Any) -> dict[str, Any]:
        if not self.approvals.decide(approval_id, choice, id_):
            raise Refusal("not_pending")
        return {"applied": True}

    def _answer(self, id_: str, question_id: str, answers: Any, **_: Any) -> dict[str, Any]:
        outcome = "cancelled" if answers is None else "answered"
        if not self.questions.decide(question_id, outcome, id_):
            raise Refusal("not_pending")
        return {"applied": True}

    def _running(self, _id: str, fact: str, **_: Any) -> dict[str, Any]:
        keys = [key for key, session in self.sessions.items() if session.turn_id is not None]
        if fact == "inventory":
            asked = list(self.approvals.pending), list(self.questions.pending)
            self.emit(wire.Inventory(keys, *asked))
        else:
            self.emit(wire.Running(keys))
        return {"keys": keys}

    def _sessions(self, _id: str, limit: int, offset: int, **_: Any) -> dict[str, Any]:
        rows = [
            {
                "id": session.session_id,
                "session_key": session.key,
                "source": session.platform,
                "started_at": session.started_at,
                "last_active": session.started_at,
                "message_count": session.count,
            }
            for session in self.sessions.values()
        ]
        return {"sessions": rows[offset : offset + limit]}

    # ── turns ───────────────────────────────────────────────────────────────

    def session(self, platform: str, chat: str) -> Session:
        """The chat, begun if need be."""
        key = self.key(platform, chat)
        if key not in self.sessions:
            session = Session(key, platform, f"s_{self.boot}_{len(self.sessions)}")
            self.sessions[key] = session
            self.group.create_task(self._serve(session))
        return self.sessions[key]

    async def _serve(self, session: Session) -> None:
        """One message after the other, as Hermes does for one chat."""
        while True:
            while session.waiting:
                message_id, text = session.waiting.popleft()
                self.serial += 1
                session.turn_id = f"{session.session_id}:{self.boot[:6]}:{self.serial}"
                session.count += 2
                play = Play(self, session, message_id, text)
                session.task = self.group.create_task(play.run())
                await asyncio.wait([session.task])
                session.turn_id = session.task = None
            session.woken.clear()
            await session.woken.wait()

    async def _ambient(self, chat: str) -> None:
        """Turns that nobody asked for, on another surface."""
        session = self.session("telegram", chat)
        while not self.resting.is_set():
            await asyncio.sleep(self.rng.uniform(0.0, 0.8))
            if session.turn_id is None and not session.waiting and not self.resting.is_set():
                session.waiting.append((f"tg{self.rng.randrange(2**40)}", "by itself"))
                session.woken.set()

    async def _come_to_rest(self) -> None:
        """Once asked to, until nothing runs; again when a message comes after all."""
        await self.resting.wait()
        told = False
        while True:
            self.approvals.hurry()
            self.questions.hurry()
            busy = any(s.turn_id is not None or s.waiting for s in self.sessions.values())
            if not busy and not told:
                self.journal.note(rest=True)
            told = not busy
            await asyncio.sleep(0.05)

    async def serve(self) -> None:
        """Until the process is killed, or its parent is gone."""
        self.loop = asyncio.get_running_loop()
        self.loop.add_signal_handler(signal.SIGUSR1, self.resting.set)
        self.journal.note(up=os.getpid())
        async with asyncio.TaskGroup() as self.group:
            self.group.create_task(self._come_to_rest())
            for number in range(SESSIONS):
                self.group.create_task(self._ambient(f"room{number}"))
            self.link.start()
            parent = os.getppid()
            while os.getppid() == parent:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(1.0)
            os._exit(0)


async def main(endpoint: str, journal: str, seed: str) -> None:
    await Host(endpoint, Path(journal), int(seed)).serve()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
