"""Chats beside their messages: titles, new ones, and ones that go on with another's history."""

import secrets
from datetime import datetime
from typing import Any

from gateway.platforms.base import MessageEvent
from hermes_state import SessionDB

from .wire import PLATFORM, Message

COPIED = "role content tool_name tool_calls tool_call_id finish_reason reasoning reasoning_content"
COPIED += " reasoning_details codex_reasoning_items codex_message_items api_content"


class Chats:
    """The part of the adapter that looks after chats. All of it runs on the gateway's loop."""

    gateway_runner: Any
    _active_sessions: Any
    _session_store: Any
    _agent: Any
    _key: Any
    _source: Any

    async def _op_rename(self, _id: str, title: str, **where: Any) -> Message:
        """Give a session a title, as its user."""
        return await self._title(self._session(**where), title)

    async def _op_open(self, _id: str, chat_id: str, title: str | None = None, **_: Any) -> Message:
        """A chat without messages."""
        runner, source = self.gateway_runner, self._source(chat_id)
        entry = await runner.async_session_store.get_or_create_session(source)
        named = {} if title is None else await self._title(entry.session_id, title)
        if "error" in named:
            await runner._session_db.delete_session_if_empty(entry.session_id)
            return named
        return {"value": {"session_key": self._key(source), **named.get("value", {})}}

    async def _title(self, session_id: str, title: str) -> Message:
        db = self.gateway_runner._session_db
        try:
            found = await db.set_session_title(session_id, title)
        except ValueError:  # another session has it
            return {"error": "title_taken"}
        if not found:
            return {"error": "not_found"}
        return {"value": {"title": await db.get_session_title(session_id)}}

    async def _op_branch(self, _id: str, chat_id: str, share: bool, **where: Any) -> Message:
        """A chat that goes on with a session's history: with the session itself, where that may
        be shared and no chat has it, else with a copy, as /branch makes one."""
        runner, source = self.gateway_runner, self._source(chat_id)
        db, store = runner._session_db, runner.async_session_store
        if where.get("session_key") and not await self._idle(where["session_key"]):
            return {"error": "busy"}
        old = await db.resolve_resume_session_id(self._session(**where))
        row = await db.get_session(old)
        history = await store.load_transcript(old) if row else None
        if not history:
            return {"error": "not_found"}
        share = share and self._session_store.lookup_by_session_id(old) is None
        key, new = self._key(source), old
        empty = await store.get_or_create_session(source)
        try:
            if not share:
                new = f"{datetime.now():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
                await self._copy(row, history, new, source)
            await store.switch_session(key, new)
        except Exception:
            if new != old:
                await db.delete_session(new)
            raise
        finally:
            await db.delete_session_if_empty(empty.session_id)
        runner._evict_cached_agent(key)
        now = self._session_store.peek_session_id(key)
        value = {"session_key": key, "session_id": now, "shared": now == old}
        return {"value": {**value, "title": await db.get_session_title(now)}}

    async def _copy(self, old: Message, history: list[Message], new: str, source: Any) -> None:
        db = self.gateway_runner._session_db
        more = {"session_key": self._key(source), "chat_id": source.chat_id}
        more |= {"chat_type": source.chat_type, "user_id": source.user_id, "model": old["model"]}
        more |= {"parent_session_id": old["id"], "model_config": {"_branched_from": old["id"]}}
        await db.create_session(session_id=new, source=PLATFORM, **more)
        rows = [{name: message.get(name) for name in COPIED.split()} for message in history]
        for row, message in zip(rows, history, strict=True):
            row["tool_name"] = row["tool_name"] or message.get("name")
        if hasattr(SessionDB, "append_messages_batch"):
            await db.append_messages_batch(new, rows, chunk_rows=500)
        else:  # 0.19
            for row in rows:
                await db.append_message(session_id=new, **row)
        title = await db.get_next_title_in_lineage(old["title"] or "branch")
        await db.set_session_title(new, title)

    def _session(self, session_key: str | None = None, session_id: str = "", **_: Any) -> str:
        """The session that a chat has now; of one without a key, that one."""
        return str(self._session_store.peek_session_id(session_key) or session_id)

    async def _idle(self, key: str) -> bool:
        """Whether nothing runs there; what has just ended may first be delivered."""
        return await self._agent(key) is None and key not in self._active_sessions

    async def _command(self, chat_id: str, text: str) -> None:
        """Have Hermes' own handler carry out a command."""
        run = getattr(self.gateway_runner, f"_handle_{text[1:].split()[0]}_command")
        await run(MessageEvent(text=text, source=self._source(chat_id)))
