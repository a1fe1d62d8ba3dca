"""A gateway whose shim is a real Link in this process, and loomid's side as far as commands go.

`Host` answers commands as a test wants it; `Side` is one start of loomid on a state
directory: real SQLite, a real socket, real folding, no phones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from hermes_shim.link import Link
from loomid import wire
from loomid.commands import Commands
from loomid.errors import PhoneError
from loomid.files import Files
from loomid.gateway import Gateways
from loomid.history import History
from loomid.intake import Intake
from loomid.lmp import envelope, frames, ids
from loomid.log import Log
from loomid.pump import Pump
from loomid.store import Store
from loomid.vault import Device, Vault
from tests.support.host import identity
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from loomid.lmp.decisions import Entry

BEAT_S = 0.5
"""Of a `Side`."""
LIMITS = frames.Limits(
    max_frame_bytes=1 << 20, max_text_chars=1000, max_inline_bytes=1 << 19, max_file_bytes=1 << 22
)
PHONE = Device("dev_1", "Pixel", b"", 0, 0.0)
TABLET = Device("dev_2", "Tab", b"", 0, 0.0)


def key_of(chat: str) -> str:
    """The session key of one of our chats."""
    return f"agent:main:loomi:dm:{chat}"


class Host:
    """A gateway process. `errors` and `silent` are per op; `sessions` is its session list.

    `beat_s` is that of loomid's side, or each would take the other for silent.
    """

    def __init__(
        self,
        socket: Path,
        gateway_id: str = "gw1",
        boot: str = "boot1",
        *,
        beat_s: float = wire.BEAT_S,
        **said: Any,
    ) -> None:
        self.gateway_id, self.boot = gateway_id, boot
        self._home = said.get("home", "")
        self.commands: list[wire.Command] = []
        self.sessions: list[dict[str, Any]] = []
        self.values: dict[str, dict[str, Any]] = {"commands": {}}
        """Op → the value it has."""
        self.errors: dict[str, str] = {}
        self.silent: set[str] = set()
        self.dropped: list[str] = []
        self.decided: list[tuple[str, str, str | None]] = []
        """Each end of an approval or question: its id, the choice or outcome, the command."""
        self._running: dict[str, str] = {}
        self._pending: list[str] = []
        self._questions: list[str] = []
        self._deciding = threading.Lock()
        self.link = Link(
            identity(
                gateway_id, boot, home_key=key_of(wire.HOME_CHAT), **{"ops": ["answer"]} | said
            ),
            [f"ipc://{socket}"],
            lambda: self,
            beat_s=beat_s,
        )

    def ops(self, op: str) -> list[wire.Command]:
        """The commands of one kind that came."""
        return [command for command in self.commands if command.op == op]

    def ready(self) -> bool:
        return True

    def execute(self, message: dict[str, Any]) -> None:
        command = wire.typed(message)
        if command.op == "running":
            alive = {"keys": [*self._running.values()], "approvals": [*self._pending]}
            alive["questions"] = [*self._questions]
            self.link.emit(command.args["fact"], alive)
            return
        self.commands.append(command)
        if command.op not in self.silent:
            self.answer(command)

    def answer(self, command: wire.Command) -> None:
        """Say how a command ended."""
        error = self.errors.get(command.op)
        if error is not None:
            result = {"error": error}
        elif command.op in self.values:
            result = {"value": self.values[command.op]}
        else:
            run = getattr(self, f"_{command.op}", None)
            result = run(command) if run else {"error": "unknown_op"}
        self.link.reply({"id": command.id, **result})

    def _inject(self, command: wire.Command) -> dict[str, Any]:
        chat_id, message_id = command.args["chat_id"], command.args["message_id"]
        return {"value": {"session_key": key_of(chat_id), "message_id": message_id}}

    def _inject_files(self, command: wire.Command) -> dict[str, Any]:
        serial = len(self.ops("inject_files"))
        copies = [
            f"{self._home}/cache/documents/doc_{serial:06x}{number:06x}_{file['name']}"
            for number, file in enumerate(command.args["files"])
        ]
        told = self._inject(command)["value"]
        return {"value": told | {"copies": copies}}

    def _cancel(self, _: wire.Command) -> dict[str, Any]:
        return {"value": {"state": "cancelling", "dropped": self.dropped}}

    def _approve(self, command: wire.Command) -> dict[str, Any]:
        args = command.args
        if self.decide(args["approval_id"], args["choice"], command.id):
            return {"value": {"applied": True}}
        return {"error": "not_pending"}

    def _answer(self, command: wire.Command) -> dict[str, Any]:
        args = command.args
        outcome = "cancelled" if args["answers"] is None else "answered"
        if self.end_question(args["question_id"], outcome, command.id):
            return {"value": {"applied": True}}
        return {"error": "not_pending"}

    def _sessions(self, command: wire.Command) -> dict[str, Any]:
        found = sorted(self.sessions, key=lambda s: -s["last_active"])
        args = command.args
        return {"value": {"sessions": found[args["offset"] :][: args["limit"]]}}

    def start_turn(self, turn: str, chat: str = "c1", platform: str = "loomi") -> None:
        """Hermes begins a turn."""
        turn_of = {"turn_id": turn, "session_id": f"s-{chat}", "platform": platform, "model": "m"}
        session_key = key_of(chat).replace("loomi", platform)
        self._running[turn] = session_key
        self.link.emit("turn.started", {**turn_of, "session_key": session_key, "text": "hi"})
        provider = {"call": 1, "provider": "p"}
        self.link.emit("api.started", turn_of | provider)

    def end_turn(self, turn: str, chat: str = "c1", *, interrupted: bool = False) -> None:
        """Hermes ends a turn."""
        self._running.pop(turn, None)
        ended = {"completed": not interrupted, "interrupted": interrupted, "failed": False}
        body = {"turn_id": turn, "session_id": f"s-{chat}", "reason": ""}
        self.link.emit("turn.ended", body | ended)

    def ask(self, shim_id: str, turn: str | None = None, **more: Any) -> None:
        """Hermes asks for an approval."""
        body = {
            "approval_id": shim_id,
            "session_key": key_of("c1"),
            "session_id": "s-c1",
            "turn_id": turn,
            "call_id": None,
            "command": "rm -rf /tmp/x",
            "description": "",
            "choices": ["once", "session", "deny"],
            "smart_denied": False,
            "timeout_s": 60.0,
            "answerable": True,
        }
        self._pending.append(shim_id)
        self.link.emit("approval.asked", body | more)

    def decide(self, shim_id: str, choice: str, command_id: str | None = None) -> bool:
        """Hermes tells that an approval is over; False: it was already."""
        with self._deciding:
            if shim_id not in self._pending:
                return False
            self._pending.remove(shim_id)
            self.decided.append((shim_id, choice, command_id))
        how = {"approval_id": shim_id, "command_id": command_id, "choice": choice}
        self.link.emit("approval.done", how)
        return True

    def question(self, shim_id: str, turn: str | None = None, **more: Any) -> None:
        """Hermes asks its user: one question with two choices, unless `more` says otherwise."""
        card = {"question": "Which?", "choices": ["red (Recommended)", "blue"]}
        body = {
            "question_id": shim_id,
            "source": "clarify",
            "session_key": key_of("c1"),
            "session_id": "s-c1",
            "turn_id": turn,
            "tool_call_id": None,
            "title": "",
            "questions": [card | {"multi_select": False}],
            "timeout_s": 60.0,
        }
        self._questions.append(shim_id)
        self.link.emit("question.asked", body | more)

    def end_question(self, shim_id: str, outcome: str, command_id: str | None = None) -> bool:
        """Hermes tells that a question is over; False: it was already."""
        with self._deciding:
            if shim_id not in self._questions:
                return False
            self._questions.remove(shim_id)
            self.decided.append((shim_id, outcome, command_id))
        how = {"question_id": shim_id, "outcome": outcome, "command_id": command_id}
        self.link.emit("question.done", how)
        return True

    def expire_at(self, shim_id: str, at: float) -> None:
        """Hermes takes silence for a no then, in seconds of `time.monotonic`."""
        timer = threading.Timer(at - time.monotonic(), self.decide, (shim_id, "timeout"))
        timer.daemon = True
        timer.start()


class Counting(asyncio.TaskGroup):
    """Knows how many of its tasks are not done."""

    busy = 0

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **options)
        self.busy += 1
        task.add_done_callback(self._less)
        return task

    def _less(self, _: asyncio.Task[Any]) -> None:
        self.busy -= 1


class Side:
    """One start of loomid; leaving the context ends it at once, whatever it was doing."""

    def __init__(
        self, directory: Path, *, patience_s: float = 10.0, deadline_s: float = 5.0
    ) -> None:
        self.socket = directory / "h.sock"
        self._path = directory / "state.db"
        self._patience_s, self._deadline_s = patience_s, deadline_s
        self.reminded: list[tuple[str, frames.Returned]] = []
        """What every phone was told again."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        store = await self._stack.enter_async_context(await Store.open(self._path, time.time))
        self.log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        self.vault = Vault(store)
        self.ledger = store.ledger
        self.key = await self.vault.secret()
        self.gateways = Gateways(
            self.socket,
            version="0.1.0",
            instance="i",
            clock=time.time,
            acked=await store.acks(),
            known=await store.gateways(),
            beat_s=BEAT_S,
            deadline_s=self._deadline_s,
        )
        self.files = Files(self._path.parent, store, time.time)
        await self.files.open()
        self.intake = Intake(self.files, self.gateways.arrive, time.time)
        self.pump = Pump(self.gateways, self.log, store, self.key, time.time, want=self.intake.want)
        self._group = Counting()
        started = asyncio.Event()
        life = asyncio.create_task(self._live(started))  # noqa: TID251 - not a part of the daemon
        self._stack.push_async_callback(self._end, life)
        await started.wait()
        return self

    async def _live(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group, self._group:
            group.create_task(self.gateways.run())
            group.create_task(self.pump.run())
            group.create_task(self.intake.run())
            await self.gateways.ready.wait()
            await self.pump.ready.wait()
            self.commands = Commands(
                self.vault,
                self.ledger,
                self.gateways,
                self.pump.runs,
                self.key,
                time.time,
                LIMITS,
                alive=self.log.projection,
                files=self.files,
                remind=self._remind,
                group=self._group,
                patience_s=self._patience_s,
            )
            history = History(
                *(self.commands.tasks, self.gateways, self.log.projection, self.key),
                LIMITS.max_frame_bytes,
                self.files.sent,
                self.commands.controls,
            )
            self._stack.callback(history.close)
            self.commands.queries.update(history.queries())
            await self.commands.recover()
            started.set()
            await asyncio.Future()

    @property
    def under_way(self) -> int:
        """How many requests are being carried out or settled."""
        return self._group.busy

    async def _remind(self, approval_id: str, returned: frames.Returned) -> None:
        self.reminded.append((approval_id, returned))

    async def _end(self, life: asyncio.Task[None]) -> None:
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    # ── what a phone does and sees ──

    async def ask(self, type_: str, device: Device = PHONE, /, **payload: Any) -> dict[str, Any]:
        """The payload of a request's result. Raises PhoneError."""
        frame = envelope.decode_client(json.dumps({"v": 1, "type": type_, "payload": payload}))
        answer, result = await self.commands.execute(device, frame)
        assert answer == f"{type_}.result"
        fields: dict[str, Any] = json.loads(envelope.encode_payload(result))
        return fields

    async def refused(self, type_: str, device: Device = PHONE, /, **payload: Any) -> PhoneError:
        """The error of a request that must have one."""
        try:
            answer = await self.ask(type_, device, **payload)
        except PhoneError as error:
            return error
        raise AssertionError(answer)

    async def online(self, host: Host) -> Host:
        """Start a gateway and wait until it can take commands."""
        host.link.start()
        await until(lambda: self.gateways.boot_of(host.gateway_id) == host.boot)
        return host

    def run_id(self, turn: str, gateway_id: str = "gw1") -> str:
        return ids.run_id(self.key, gateway_id, turn)

    def task_id(self, session: str, gateway_id: str = "gw1") -> str:
        return ids.task_id(self.key, gateway_id, session)

    def approval_id(self, shim_id: str, boot: str = "boot1") -> str:
        return ids.approval_id(self.key, "gw1", boot, shim_id)

    async def run_begun(self, turn: str) -> str:
        """Wait until a run is visible; its id."""
        await until(lambda: self.run_id(turn) in self.log.projection.live_runs())
        return self.run_id(turn)

    async def run_over(self, turn: str) -> str:
        await until(lambda: self.run_id(turn) not in self.log.projection.live_runs())
        return self.run_id(turn)

    def waiting(self) -> list[str]:
        """Ids of the approvals that phones see pending."""
        events = (placed.event.payload for placed in self.log.projection.pending())
        return [e.approval_id for e in events if isinstance(e, frames.ApprovalRequired)]

    async def entry(self, approval_id: str) -> Entry:
        """What the ledger says."""
        entry = await self.ledger.get(approval_id)
        assert entry is not None
        return entry

    async def asked(self, shim_id: str, boot: str = "boot1") -> str:
        """Wait until an approval is visible; its id."""
        name = self.approval_id(shim_id, boot)
        await until(lambda: name in self.waiting())
        return name

    async def only_claimed(self, shim_id: str) -> dict[str, str]:
        """An answer that wins, as if loomid ended before its command left; the request."""
        self.commands._resolver.deliver = lambda *_: None  # type: ignore[method-assign]
        approval_id = await self.asked(shim_id)
        body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
        await self.ask("approval.resolve", **body)
        return body

    async def decided(self, shim_id: str, boot: str = "boot1") -> str:
        name = self.approval_id(shim_id, boot)
        await until(lambda: name not in self.waiting())
        return name
