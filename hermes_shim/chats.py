"""Chats beside their messages: titles, new ones, and ones that go on with another's history."""

import secrets
from datetime import datetime
from typing import Any

from gateway.platforms.base import MessageEvent

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

    async def _op_rename(
        self, _id: str, title: str, session_key: str | None = None, session_id: str = "", **_: Any
    ) -> Message:
        """Give a session a title, as its user."""
        return await self._title(self._session(session_key, session_id), title)

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

    async def _op_branch(
        self,
        _id: str,
        chat_id: str,
        share: bool,
        session_key: str | None = None,
        session_id: str = "",
        **_: Any,
    ) -> Message:
        """A chat that goes on with a session's history: with the session itself, where that may
        be shared and no chat has it, else with a copy, as /branch makes one."""
        runner, source = self.gateway_runner, self._source(chat_id)
        db, store = runner._session_db, runner.async_session_store
        if session_key and not await self._idle(session_key):
            return {"error": "busy"}
        old = await db.resolve_resume_session_id(self._session(session_key, session_id))
        row = await db.get_session(old)
        history = await store.load_transcript(old) if row else None
        if not history:
            return {"error": "not_found"}
        share = share and self._session_store.lookup_by_session_id(old) is None
        key, new = self._key(source), old
        empty = await store.get_or_create_session(source)
        if not share:
            new = f"{datetime.now():%Y%m%d_%H%M%S}_{secrets.token_hex(3)}"
            chat = {"chat_id": chat_id, "chat_type": source.chat_type, "user_id": source.user_id}
            origin = {"parent_session_id": old, "model_config": {"_branched_from": old}}
            more = {"model": row.get("model"), "session_key": key, **chat, **origin}
            await db.create_session(session_id=new, source=PLATFORM, **more)
            await self._copy(history, new)
            title = await db.get_next_title_in_lineage(row.get("title") or "branch")
            await db.set_session_title(new, title)
        await store.switch_session(key, new)
        await db.delete_session_if_empty(empty.session_id)
        runner._evict_cached_agent(key)
        now = self._session_store.peek_session_id(key)
        value = {"session_key": key, "session_id": now, "shared": now == old}
        return {"value": {**value, "title": await db.get_session_title(now)}}

    async def _copy(self, history: list[Message], session_id: str) -> None:
        from hermes_state import SessionDB

        rows = [{name: message.get(name) for name in COPIED.split()} for message in history]
        for row, message in zip(rows, history, strict=True):
            row["tool_name"] = row["tool_name"] or message.get("name")
        db = self.gateway_runner._session_db
        if hasattr(SessionDB, "append_messages_batch"):
            await db.append_messages_batch(session_id, rows, chunk_rows=500)
            return
        for row in rows:  # 0.19
            await db.append_message(session_id=session_id, **row)

    def _session(self, session_key: str | None, session_id: str) -> str:
        """The session that a chat has now; of one without a key, that one."""
        return str(self._session_store.peek_session_id(session_key) or session_id)

    async def _idle(self, key: str) -> bool:
        """Whether nothing runs there; what has just ended may first be delivered."""
        return await self._agent(key) is None and key not in self._active_sessions

    async def _command(self, chat_id: str, text: str) -> None:
        """Have Hermes' own handler carry out a command."""
        run = getattr(self.gateway_runner, f"_handle_{text[1:].split()[0]}_command")
        await run(MessageEvent(text=text, source=self._source(chat_id)))
