"""The platform adapter: what Hermes delivers becomes facts, commands become Hermes' calls.

All of it runs on the gateway's event loop. Private parts of Hermes are used where no
public one exists; tests/hermes runs each of those paths in every release.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import secrets
import socket
import time
import traceback
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult
from hermes_cli import __version__ as hermes_version
from hermes_cli.plugins import VALID_HOOKS
from hermes_constants import get_hermes_home

from . import sessions, wire
from .cli import runtime_dirs
from .facts import HOOKS, LIMIT, log, state, watch
from .link import Identity, Link
from .wire import HOME_CHAT, OPS, PLATFORM, SOCKET_NAME

SHIM_VERSION = "0.1.0"
HOLD_S = 10.0
SET_UP_S = 2.0
STREAMS = "on_stream_delta" in VALID_HOOKS
CONTROL = "allow_gateway_control" in {f.name for f in dataclasses.fields(MessageEvent)}
MODES = ("queue", "steer", "interrupt", "command")
FEATURES = ["request_id", "control_off", "steer", "interrupt", "cancel_foreign"]


class Refused(Exception):
    """The command was not run; `args` are a code of wire.RESULT_ERRORS and a detail."""


class _Plain(MessageEvent):  # type: ignore[misc]
    """0.19: a message that is no command, whatever its text."""

    def is_command(self) -> bool:
        return False


def gateway_id() -> str:
    """The id of this Hermes home, made once; of this process where that cannot be kept."""
    path = Path(get_hermes_home()) / "loomi" / "gateway_id"
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            draft = path.with_name(f"gateway_id.{os.getpid()}")
            draft.write_text(secrets.token_hex(8))
            with suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
        return path.read_text().strip()
    except OSError as error:
        log.warning(
            "loomi: %s cannot be kept (%s): new gateway id each start", path, error.strerror
        )
        return str(vars(state).setdefault("lost_id", secrets.token_hex(8)))


def _wanted(args: dict[str, Any], *names: str) -> list[str]:
    values = [args.get(name) for name in names]
    if not all(isinstance(value, str) and value.strip() for value in values):
        raise Refused("bad_args", " ".join(names))
    return values  # type: ignore[return-value]


class LoomiAdapter(BasePlatformAdapter):  # type: ignore[misc]
    """Chats of phones. One chat id a task; authorisation is loomid's (the link is private)."""

    MAX_MESSAGE_LENGTH = 1_000_000_000
    splits_long_messages = True
    supports_code_blocks = True
    SUPPORTS_MESSAGE_EDITING = not STREAMS
    """Where hooks give the deltas, previews by send and edit would only repeat them."""
    authorization_is_upstream = True

    def __init__(self, config: Any) -> None:
        super().__init__(config=config, platform=Platform(PLATFORM))
        self._gates: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._loop: Any = None

    # ── lifecycle ──

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start the link; True also while loomid is away, for the link keeps trying."""
        del is_reconnect
        state.adapter, self._loop = self, asyncio.get_running_loop()
        if state.link is None:
            state.wire = wire  # the link knows the message types of this module instance
            state.link = Link(
                self._identity(),
                self._endpoints(),
                execute=lambda command: state.adapter.execute(command),
                inventory=lambda: state.adapter.take_stock(),
                log=log,
            )
        state.link.start()
        watch()
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        """Stop the link, unless a newer adapter has taken it over."""
        self._mark_disconnected()
        if state.link is not None and state.adapter is self:
            await asyncio.to_thread(state.link.stop, 1.0)

    def _identity(self) -> Identity:
        extra = self.config.extra
        return Identity(
            gateway_id=gateway_id(),
            boot=state.boot,
            pid=os.getpid(),
            pid_started=wire.process_started(os.getpid()),
            name=str(extra.get("name") or socket.gethostname()),
            hermes_version=hermes_version,
            shim_version=SHIM_VERSION,
            hooks=sorted(HOOKS.keys() & VALID_HOOKS),
            features=["stream" if STREAMS else "edits", *FEATURES],
            home_chat=HOME_CHAT,
            home_key=self._key(self.build_source(chat_id=HOME_CHAT, chat_type="dm")),
        )

    def _endpoints(self) -> list[str]:
        named = self.config.extra.get("endpoint")
        return [str(named)] if named else [f"ipc://{d / SOCKET_NAME}" for d in runtime_dirs()]

    # ── what Hermes delivers ──

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Tell loomid of a text; always a success, or Hermes would send it twice."""
        meta = metadata or {}
        message_id = f"out-{state.boot}-{next(state.serial)}"
        job = meta.get("job_id")
        state.link.emit(
            "sent",
            {
                "chat_id": str(chat_id),
                "session_key": self._key(self.build_source(chat_id=str(chat_id), chat_type="dm")),
                "message_id": message_id,
                "text": str(content),
                "reply_to": None if reply_to is None else str(reply_to),
                "notify": bool(meta.get("notify")),
                "expect_edits": bool(meta.get("expect_edits")),
                "interim": bool(meta.get("_interim_send")),
                "job_id": None if job is None else str(job),
            },
        )
        return SendResult(success=True, message_id=message_id)

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, *, finalize: bool = False, **_: Any
    ) -> Any:
        """Tell loomid of the text that replaces a sent one."""
        body = {"chat_id": str(chat_id), "message_id": str(message_id), "text": str(content)}
        state.link.emit("edited", {**body, "finalize": bool(finalize)})
        return SendResult(success=True, message_id=message_id)

    async def send_exec_approval(
        self, chat_id: str, command: str, session_key: str, **_: Any
    ) -> Any:
        """Nothing to send: hook pre_approval_request has told it (0.19 and 0.20)."""
        return SendResult(success=True)

    async def _send_exec_approval_prompt(self, prompt: Any) -> Any:
        return SendResult(success=True)  # the same in 0.22

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """A chat is named by loomid, not here."""
        return {"name": str(chat_id), "type": "dm"}

    async def on_processing_start(self, event: Any) -> None:
        """Hermes takes up one of our messages."""
        self._processing("processing.started", event)

    async def on_processing_complete(self, event: Any, outcome: Any) -> None:
        """Hermes is done with it."""
        self._processing("processing.ended", event, outcome=str(outcome.value))

    def _processing(self, kind: str, event: Any, **more: str) -> None:
        ids = {"session_key": self._key(event.source), "message_id": str(event.message_id)}
        state.link.emit(kind, ids | more)

    # ── commands ──

    def execute(self, command: Any) -> None:
        """On the link's thread: run a command on the gateway's loop."""
        asyncio.run_coroutine_threadsafe(self._run(command), self._loop)

    def take_stock(self) -> None:
        """On the link's thread: have the inventory emitted."""
        self._loop.call_soon_threadsafe(self._take_stock)

    def _take_stock(self) -> None:
        alive = {"keys": list(self.gateway_runner._running_agents)}
        state.link.emit("inventory", {**alive, "approvals": list(state.approvals)})

    async def _run(self, command: Any) -> None:
        error, detail, value = None, "", {}
        try:
            if command.op not in OPS:
                raise Refused("unknown_op", command.op)
            value = await getattr(self, f"_op_{command.op}")(command.args, command)
        except Refused as refused:
            error, detail = refused.args
        except Exception as failure:  # noqa: BLE001 - whatever Hermes raises is the answer
            where = traceback.extract_tb(failure.__traceback__)[-1]
            log.error("loomi: %s failed at %s:%s", command.op, where.filename, where.lineno)
            error, detail = "failed", type(failure).__name__
        state.link.reply(state.wire.Result(command.id, error, detail, value))

    async def _op_inject(self, args: dict[str, Any], command: Any) -> dict[str, Any]:
        chat, text, message_id, mode = _wanted(args, "chat_id", "text", "message_id", "mode")
        if mode not in MODES or (mode == "command" and not text.startswith("/")):
            raise Refused("bad_args", "mode")
        user, name = args.get("user_id") or PLATFORM, args.get("user_name") or "Phone"
        source = self.build_source(
            chat_id=chat, chat_type="dm", user_id=user, user_name=name, message_id=message_id
        )
        key = self._key(source)
        async with self._gates[key]:  # messages of a chat keep their order
            await self._ready(command.deadline)
            if mode in ("steer", "interrupt"):
                await self._set_up(key, command.deadline)
        # From here to the hand-over there is no await: one step of the loop.
        if key in self._active_sessions:
            self._heal_stale_session_lock(key)
        busy = key in self._active_sessions
        if mode != "command" and self._reserved(key, text, busy):
            raise Refused("reserved_text", text.split()[0][:40])
        event = self._event(text, source, message_id, control=mode == "command")
        self._injected(key, event, mode, busy, args)
        if mode == "command" or (CONTROL and not busy):
            await self.handle_message(event)
        elif busy:
            await self._while_busy(key, event, mode)
        else:
            self._start_session_processing(event, key)
        return {"session_key": key, "message_id": message_id}

    def _event(self, text: str, source: Any, message_id: str, *, control: bool) -> Any:
        kind = MessageEvent if CONTROL or control else _Plain
        more = {} if control or not CONTROL else {"allow_gateway_control": False}
        return kind(
            text=text, message_type=MessageType.TEXT, source=source, message_id=message_id, **more
        )

    def _injected(self, key: str, event: Any, mode: str, busy: bool, args: dict[str, Any]) -> None:
        body = {"session_key": key, "message_id": event.message_id, "mode": mode, "busy": busy}
        origin = {name: args.get(name) for name in ("device_id", "request_id")}
        state.link.emit("injected", {**body, **origin, "text": event.text[:LIMIT]})

    async def _ready(self, deadline: float) -> None:
        """Hold messages while the gateway restores its sessions, or drains to stop."""
        until, runner = min(deadline, time.time() + HOLD_S), self.gateway_runner
        while runner._startup_restore_in_progress or runner._draining:
            if time.time() >= until:
                raise Refused("starting", "")
            await asyncio.sleep(0.05)

    async def _set_up(self, key: str, deadline: float) -> None:
        """Wait for the agent of a run that has just begun.

        Until a moment after the turn's first hook the runner holds a placeholder: /stop
        would free the session but leave the agent at work, and nothing could be steered.
        """
        until, running = min(deadline, time.time() + SET_UP_S), self.gateway_runner._running_agents
        while key in running and not hasattr(running[key], "interrupt"):
            if time.time() >= until:
                return
            await asyncio.sleep(0.02)

    def _reserved(self, key: str, text: str, busy: bool) -> bool:
        """Whether this release would swallow the text, or take it for more than conversation."""
        from hermes_cli.commands import resolve_command
        from tools import clarify_gateway, slash_confirm

        word = text.split(maxsplit=1)[0]
        if busy:  # all releases drop queued text that begins with a known command
            return word.startswith("/") and resolve_command(word[1:].lower()) is not None
        if CONTROL:
            return False
        answer = " ".join(text.lower().split()).lstrip("!/ ")
        return bool(
            clarify_gateway.get_pending_for_session(key, include_choice_prompts=True)
            or self.gateway_runner._update_prompt_pending.get(key)
            or (slash_confirm.get_pending(key) and answer in CONFIRMS)
        )

    async def _while_busy(self, key: str, event: Any, mode: str) -> None:
        """Queue, steer or interrupt as asked, whatever display.busy_input_mode says."""
        runner = self.gateway_runner
        agent = runner._running_agents.get(key)
        folded = False
        if mode != "queue" and hasattr(agent, "interrupt"):  # not while it is being set up
            if hasattr(runner, "_resolve_busy_steer_or_redirect"):
                done = await runner._resolve_busy_steer_or_redirect(event, key, mode, agent)
                folded, mode = done.steered or done.redirected, done.effective_mode
            else:
                folded, mode = await self._fold(key, event.text.strip(), mode, agent)
        if folded:
            return
        if key not in self._active_sessions:  # it ended during an await above
            self._start_session_processing(event, key)
            return
        runner._enqueue_fifo(key, event, self)
        if mode == "interrupt" and hasattr(agent, "interrupt"):
            agent.interrupt(event.text)

    async def _fold(self, key: str, text: str, mode: str, agent: Any) -> tuple[bool, str]:
        """0.19 and 0.20: put the text into the running turn, if it can be."""
        runner = self.gateway_runner
        if mode == "steer":
            return bool(agent.steer(text)), mode
        if runner._agent_has_active_subagents(
            agent
        ) or await runner._session_has_compression_in_flight(key):
            return False, "queue"
        redirects = getattr(agent, "_supports_active_turn_redirect", False) is True
        return redirects and bool(agent.redirect(text)), mode

    async def _op_cancel(self, args: dict[str, Any], command: Any) -> dict[str, Any]:
        key, turn = _wanted(args, "session_key", "turn_id")
        await self._set_up(key, command.deadline)
        # From here to the hand-over there is no await: one step of the loop.
        agent = self.gateway_runner._running_agents.get(key)
        if getattr(agent, "_current_turn_id", None) != turn or turn in state.over:
            raise Refused("not_active", "")
        source = self._source_of(key)
        adapter = source and self._adapter_of(source)
        if adapter is None:
            raise Refused("not_supported", "no chat")
        stop = self._event("/stop", source, f"stop-{command.id}", control=True)
        if adapter is self:
            self._injected(key, stop, "command", True, args)
        waiting = self._waiting(adapter, key)
        await adapter.handle_message(stop)
        left = self._waiting(adapter, key)
        return {"state": "cancelling", "dropped": [m for m in waiting if m not in left]}

    def _waiting(self, adapter: Any, key: str) -> list[str]:
        """Message ids queued behind the run: the slot, then the overflow."""
        head = adapter._pending_messages.get(key)
        events = [head, *self.gateway_runner._queued_events.get(key, ())]
        return [str(event.message_id) for event in events if event and event.message_id]

    async def _op_approve(self, args: dict[str, Any], command: Any) -> dict[str, Any]:
        approval_id, choice = _wanted(args, "approval_id", "choice")
        entry = state.approvals.get(approval_id)
        if entry is None:
            raise Refused("not_pending", "")
        if choice not in entry.choices:  # Hermes takes any other word for a yes
            raise Refused("bad_args", "choice")
        if entry.ref is None:
            raise Refused("ambiguous", "")
        entry.command, entry.choice = command.id, choice  # before: the hook may come first
        reason = args.get("reason")
        if not _resolve(entry, choice, reason if isinstance(reason, str) and reason else None):
            entry.command = None
            raise Refused("not_pending", "")
        with suppress(AttributeError, KeyError):  # a session without a chat has no typing
            source = self._source_of(entry.key)
            self._adapter_of(source).resume_typing_for_chat(source.chat_id)
        return {"applied": True}

    async def _op_running(self, args: dict[str, Any], command: Any) -> dict[str, Any]:
        keys = list(self.gateway_runner._running_agents)
        state.link.emit("running", {"keys": list(keys)})
        return {"keys": keys}

    async def _op_sessions(self, args: dict[str, Any], command: Any) -> dict[str, Any]:
        limit, before, source = args.get("limit"), args.get("before"), args.get("source")
        if not isinstance(limit, int) or not 0 < limit <= 1000:
            raise Refused("bad_args", "limit")
        path = Path(get_hermes_home()) / "state.db"
        return await asyncio.to_thread(sessions.recent, path, limit, before, source)

    # ── Hermes' own names for things ──

    def _key(self, source: Any) -> str:
        return str(self.gateway_runner._session_key_for_source(source))

    def _source_of(self, key: str) -> Any:
        store = self._session_store
        session_id = store.peek_session_id(key)
        return getattr(store.lookup_by_session_id(session_id), "origin", None)

    def _adapter_of(self, source: Any) -> Any:
        runner = self.gateway_runner
        find = getattr(runner, "_delivery_adapter_for", None) or runner._adapter_for_source
        return find(source)


CONFIRMS = {
    "approve",
    "approve once",
    "once",
    "always",
    "always approve",
    "cancel",
    "nevermind",
    "no",
}


def _resolve(entry: Any, choice: str, reason: str | None) -> bool:
    """Answer exactly this queue entry; False when it is gone."""
    from tools import approval

    if isinstance(entry.ref, str):
        count = approval.resolve_gateway_approval(
            entry.key, choice, reason=reason, request_id=entry.ref
        )
        return bool(count)
    with approval._lock:  # 0.19: as its resolve_gateway_approval does, but for this entry
        queue = approval._gateway_queues.get(entry.key, [])
        if entry.ref not in queue:
            return False
        queue.remove(entry.ref)
        if not queue:
            approval._gateway_queues.pop(entry.key, None)
        entry.ref.result, entry.ref.reason = choice, reason
    entry.ref.event.set()
    return True
