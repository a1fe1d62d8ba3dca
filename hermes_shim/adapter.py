"""The platform adapter: what Hermes delivers becomes facts, commands become Hermes' calls.

All of it runs on the gateway's event loop. Private parts of Hermes are used where no
public one exists; tests/hermes runs each of those paths in every release.
"""

import asyncio
import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult
from hermes_cli import __version__ as hermes_version
from hermes_cli.commands import resolve_command
from hermes_cli.plugins import VALID_HOOKS
from hermes_constants import get_hermes_home
from hermes_state import SessionDB
from tools import approval, clarify_gateway, slash_confirm

from .chats import Chats
from .cli import runtime_dirs
from .controls import Controls
from .facts import HOOKS, plain, state, watch
from .files import Files
from .host import Host
from .link import Link
from .questions import Questions
from .waiting import MOST, Waiting, fold, turn_of
from .wire import HOME_CHAT, PLATFORM, SOCKET_NAME, Message, log, once

# 0.19 cannot be told that a text is no command.
CONTROL = hasattr(MessageEvent, "allow_gateway_control")
# What of a row of Hermes' session list loomid is told.
SESSION = ["id", "_lineage_root_id", "session_key", "source", "title", "model", "started_at"]
SESSION += ["last_active", "message_count", "preview"]


class _Plain(MessageEvent):  # type: ignore[misc]
    """0.19: a message that is no command, whatever its text."""

    def is_command(self) -> bool:
        return False


def gateway_id() -> str:
    """The id of this Hermes home, made once; of this process where that cannot be kept."""
    path, boot = Path(get_hermes_home(), "loomi", "gateway_id"), str(state.boot)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError), path.open("x") as new:
            new.write(boot)
        return path.read_text() or boot
    except OSError as error:
        once(f"{path} cannot be kept ({error.strerror}): a new gateway id each start")
        return boot


class LoomiAdapter(Chats, Controls, Files, Host, Questions, Waiting, BasePlatformAdapter):  # type: ignore[misc]
    """Chats of phones. One chat id a task; authorisation is loomid's (the link is private)."""

    MAX_MESSAGE_LENGTH = 1_000_000_000
    splits_long_messages = True
    # Where hooks give the deltas, previews by send and edit would only repeat them.
    SUPPORTS_MESSAGE_EDITING = "on_stream_delta" not in VALID_HOOKS
    authorization_is_upstream = True

    # ── lifecycle ──

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start the link; True also while loomid is away, for the link keeps trying."""
        state.adapter, self._loop = self, asyncio.get_running_loop()
        if state.link is None:
            named = self.config.extra.get("endpoint")
            places = [f"ipc://{folder / SOCKET_NAME}" for folder in runtime_dirs()]
            state.link = Link(self._identity(), [named] if named else places, lambda: state.adapter)
        state.link.start()
        watch()
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        """Stop the link, unless a newer adapter has taken it over."""
        self._mark_disconnected()
        if state.adapter is self:
            await asyncio.to_thread(state.link.stop, 1.0)

    def _identity(self) -> Message:
        stat = Path("/proc/self/stat")
        return {
            "gateway_id": gateway_id(),
            "boot": state.boot,
            "pid": os.getpid(),
            "stat": stat.read_text() if stat.exists() else "",
            "name": str(self.config.extra.get("name") or ""),
            "hermes_version": hermes_version,
            "shim_version": "0.1.0",
            "hooks": sorted(HOOKS.keys() & VALID_HOOKS),
            "home_key": self._key(self._source(HOME_CHAT)),
            "home": str(get_hermes_home()),
            "ops": sorted(name[4:] for name in dir(self) if name.startswith("_op_")),
        }

    # ── what Hermes delivers ──

    async def send(self, chat_id: str, content: str, reply_to: Any = None, **more: Any) -> Any:
        """Tell loomid of a text; always a success, or Hermes would send it twice."""
        message_id = f"out-{state.boot}-{next(state.serial)}"
        said = {"chat_id": chat_id, "text": content, "reply_to": reply_to}
        said["metadata"] = plain(more.get("metadata"))
        self._tell("sent", self._source(chat_id), message_id, **said)
        return SendResult(success=True, message_id=message_id)

    async def edit_message(self, chat_id: str, message_id: str, content: str, **more: Any) -> Any:
        """Tell loomid of the text that replaces a sent one."""
        said = {"chat_id": chat_id, "text": content, "finalize": more.get("finalize")}
        self._tell("edited", self._source(chat_id), message_id, **said)
        return SendResult(success=True, message_id=message_id)

    async def send_exec_approval(self, *_: Any, **__: Any) -> Any:
        """Nothing to send: hook pre_approval_request has told it (0.19 and 0.20)."""
        return SendResult(success=True)

    _send_exec_approval_prompt = send_exec_approval  # the same in 0.22

    async def get_chat_info(self, chat_id: str) -> Message:
        """A chat is named by loomid, not here."""
        return {"name": chat_id, "type": "dm"}

    async def on_processing_start(self, event: Any) -> None:
        """Hermes takes up one of our messages."""
        self._tell("processing.started", event.source, event.message_id)

    async def on_processing_complete(self, event: Any, outcome: Any) -> None:
        """Hermes is done with it."""
        if outcome.value == "cancelled":
            self._drop(self._key(event.source))
            self._forget(self._key(event.source))
        self._tell("processing.ended", event.source, event.message_id, outcome=outcome.value)

    @staticmethod
    def spoken(event: Any) -> Any:
        """Make an event of ours no command, whatever its text, unless we handed just that over
        as one. Hermes makes events of its own: of what is said again, or later."""
        ours = event.source.platform.value == PLATFORM
        if ours and getattr(event, "ordered", None) != event.text:
            event.allow_gateway_control = False
            if not CONTROL:
                event.__class__ = _Plain
        return event

    async def handle_message(self, event: Any) -> None:
        """Hermes' internal events come here only; all others pass hook pre_gateway_dispatch."""
        await super().handle_message(self.spoken(event))

    # ── commands: each returns the value of its result, or why nothing ran ──

    def ready(self) -> bool:
        """On the link's thread: while Hermes restores its sessions it mixes up messages."""
        return not self.gateway_runner._startup_restore_in_progress

    def execute(self, command: Message) -> None:
        """On the link's thread: run a command on the gateway's loop."""
        asyncio.run_coroutine_threadsafe(self._run(command), self._loop)

    async def _run(self, command: Message) -> None:
        """Run a command and tell how it ended."""
        run = getattr(self, f"_op_{command['op']}", None)
        try:
            result = await run(command["id"], **command["args"]) if run else {"error": "unknown_op"}
        except Exception as failure:  # noqa: BLE001 - whatever Hermes raises is the answer
            log.error("loomi: %s failed: %s", command["op"], type(failure).__name__)
            result = {"error": "failed", "detail": type(failure).__name__}
        state.link.reply({"id": command["id"], **result})

    async def _op_inject(
        self, _id: str, chat_id: str, text: str, message_id: str, mode: str, **more: Any
    ) -> Message:
        runner, source = self.gateway_runner, self._source(chat_id, message_id=message_id)
        key = self._key(source)
        agent: Any = None if mode == "queue" else await self._agent(key, mode)
        # From here to the hand-over there is no await: one step of the loop.
        if runner._startup_restore_in_progress or runner._draining:
            return {"error": "starting"}
        self._heal_stale_session_lock(key)
        if mode != "command" and self._reserved(key, text):
            return {"error": "reserved_text"}
        if mode != "command" and len(self._waiting(key)) >= MOST:
            return {"error": "queue_full"}
        turn = None if more.get("media") else self._turn_for(agent, mode, key)
        # In the midst of tools Hermes has the model read a text with their results. What becomes no
        # part of a turn now is told so: the next redirect is none of it.
        steers = turn and (mode == "steer" or agent._executing_tools)
        told = "steer" if steers else mode if turn or mode == "command" else "queue"
        event = self._event(source, text, message_id, told, **more)
        dropped = self._forget(key) if mode == "command" and _ends(text) else []
        if mode == "command":
            state.commands[key] = message_id
            await self.handle_message(event)
        elif key not in self._active_sessions and key not in state.waiting:
            self._start_session_processing(event, key)
        elif not (turn and fold(turn, agent, mode, text.strip())):
            self._wait(key, event, first=mode == "interrupt")
        value = {"session_key": key, "message_id": message_id, "copies": event.media_urls}
        return {"value": value | {"dropped": dropped}}

    def _takes(self, key: str) -> bool:
        """Whether a message may be handed over when nothing runs there."""
        runner = self.gateway_runner
        at_rest = runner._startup_restore_in_progress or runner._draining
        return not at_rest and not self._reserved(key, "")

    def _reserved(self, key: str, text: str) -> bool:
        """Whether this release would swallow the text, or take it for more than conversation."""
        word, busy = (text.split(maxsplit=1) or [""])[0], key in self._active_sessions
        if busy and word.startswith("/") and resolve_command(word[1:].lower()) is not None:
            return True  # no queued text may begin with a known command
        if CONTROL or slash_confirm.get_pending(key):
            return not CONTROL
        asks = clarify_gateway.get_pending_for_session(key, include_choice_prompts=True)
        return not busy and bool(asks or self.gateway_runner._update_prompt_pending.get(key))

    def _event(
        self, source: Any, text: str, message_id: str, mode: str, media: Any = None, **origin: Any
    ) -> Any:
        """A message for Hermes, told to loomid just before it is handed over."""
        if source.platform == self.platform:
            busy = self._key(source) in self._active_sessions
            self._tell("injected", source, message_id, text=text, mode=mode, busy=busy, **origin)
        read = {"text": text, **(media or {})}  # there may be more than the user wrote
        event = MessageEvent(source=source, message_id=message_id, **read)
        event.ordered = text if mode == "command" else None
        return self.spoken(event)

    async def _op_cancel(self, _id: str, session_key: str, turn_id: str, **_: Any) -> Message:
        runner, store = self.gateway_runner, self._session_store
        agent = await self._agent(session_key)
        # From here to the hand-over there is no await: one step of the loop.
        entry = store.lookup_by_session_id(store.peek_session_id(session_key))
        source = getattr(entry, "origin", None)
        find = getattr(runner, "_delivery_adapter_for", None) or runner._adapter_for_source
        adapter = source and find(source)
        runs = turn_of(agent) and agent._current_turn_id == turn_id
        if not runs or adapter is None:
            return {"error": "not_active"}
        own = self._forget(session_key)
        # What else waits behind the run: the slot, then the overflow.
        slot, more = adapter._pending_messages.get, runner._queued_events.get
        waiting = [slot(session_key), *more(session_key, ())]
        await adapter.handle_message(self._event(source, "/stop", f"stop-{_id}", "command"))
        left = [slot(session_key), *more(session_key, ())]
        gone = [event.message_id for event in waiting if event and event not in left]
        return {"value": {"state": "cancelling", "dropped": gone + own}}

    async def _op_approve(self, _id: str, approval_id: str, choice: str, **more: Any) -> Message:
        """Answer exactly its own queue entry, as Hermes' resolve_gateway_approval would."""
        asked = state.approvals.get(approval_id)
        if asked and choice not in asked.choices:  # Hermes takes any other word for a yes
            return {"error": "bad_args"}
        with approval._lock:
            queue = approval._gateway_queues.get(asked.key, []) if asked else []
            if not asked or asked.entry not in queue:
                return {"error": "not_pending"}
            queue.remove(asked.entry)
            if not queue:
                approval._gateway_queues.pop(asked.key, None)
            asked.answer = choice, _id
            asked.entry.result, asked.entry.reason = choice, more.get("reason")
            asked.entry.event.set()
        return {"value": {"applied": True}}

    async def _op_running(
        self, _id: str, fact: str, inbox: str = "", max_file_bytes: int = 0, **_: Any
    ) -> Message:
        """Tell what is alive, as a fact: with it loomid has seen all that came before."""
        state.inbox, state.most = inbox or state.inbox, max_file_bytes or state.most
        keys = list(self.gateway_runner._running_agents)
        alive = {"approvals": list(state.approvals), "questions": list(state.questions)}
        state.link.emit(fact, {"keys": keys, **alive})
        return {"value": {"keys": keys}}

    async def _op_sessions(self, _id: str, limit: int, offset: int, **_: Any) -> Message:
        """Rows of Hermes' own session list, the latest first."""
        rows = await asyncio.to_thread(_listed, limit=limit, offset=offset)
        return {"value": {"sessions": [{name: row.get(name) for name in SESSION} for row in rows]}}

    # ── Hermes' own names for things ──

    def _tell(self, kind: str, source: Any, message_id: str, **said: Any) -> None:
        ids = {"session_key": self._key(source), "message_id": message_id}
        state.link.emit(kind, {**said, **ids})

    def _source(self, chat_id: str, **more: Any) -> Any:
        who = {"chat_type": "dm", "user_id": PLATFORM, "user_name": "Loomi"}
        return self.build_source(chat_id=chat_id, **who, **more)

    async def _agent(self, key: str, mode: str = "") -> Any:
        """The agent at work there. Until a moment after its first hook something else holds its
        place: nothing could be steered, and /stop would free the session but not end the work.
        After its last one Hermes still delivers the answer: 0.20 may lose a /new meanwhile."""
        for _ in range(100):
            agent = self.gateway_runner._running_agents.get(key)
            works = (turn := turn_of(agent)) and not (mode == "interrupt" and turn.fresh)
            if works or (agent is None and key not in self._active_sessions):
                break
            await asyncio.sleep(0.02)
        return agent

    def _key(self, source: Any) -> str:
        return str(self.gateway_runner._session_key_for_source(source))


def _listed(**page: Any) -> Any:
    with closing(SessionDB(read_only=True)) as db:
        return db.list_sessions_rich(compact_rows=True, order_by_last_active=True, **page)


def _ends(text: str) -> bool:
    """Whether it is a command that ends the run, whatever becomes of that (0.20: no word)."""
    command = resolve_command((text.split() or [""])[0][1:].lower())
    return command is not None and command.name in ("stop", "new")
