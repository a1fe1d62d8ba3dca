"""What a phone steers beside messages.

Hermes' own command handlers and functions do it, and what they say is not read: it may be a raw
key of a translation. Each answer is what holds afterwards. Functions are looked up when they are
needed: a release that lacks one lacks that operation, and nothing else.
"""

import asyncio
import inspect
import time
from contextlib import suppress
from typing import Any

from gateway.platforms.base import SendResult
from hermes_constants import VALID_REASONING_EFFORTS
from tools import approval, slash_confirm

from .wire import HOME_CHAT, Message

LISTING = "models"  # no chat of a phone: where the picker of models is opened
LISTING_S = 8.0  # it may ask servers
FRESH_S = 60.0


class Controls:
    """The part of the adapter that steers. All of it runs on the gateway's event loop."""

    gateway_runner: Any
    _session_store: Any
    _idle: Any
    _command: Any
    _key: Any
    _source: Any
    _listing = asyncio.Lock()
    _listed: tuple[float, list[Message]] = -FRESH_S, []

    # ── models ──

    async def send_model_picker(self, chat_id: str, providers: Any, **_: Any) -> Any:
        """What /model offers. Typed in a chat it is answered by a text: this is no success."""
        if chat_id == LISTING:
            self._listed = time.monotonic(), providers
        return SendResult(success=chat_id == LISTING)

    async def _op_models(self, _id: str, chat_id: str | None = None, **_: Any) -> Message:
        """What /model offers, and what the next turn would run with."""
        async with self._listing:
            if time.monotonic() > self._listed[0] + FRESH_S:
                self._listed = time.monotonic(), self._listed[1]  # not again at once
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._command(LISTING, "/model"), LISTING_S)
        rows = await asyncio.to_thread(_offered, self._listed[1])
        value = {"providers": rows, "default": await self._model(LISTING)}
        if chat_id is not None:
            value["current"] = await self._model(chat_id)
        return {"value": value}

    async def _op_model(self, _id: str, chat_id: str, **_: Any) -> Message:
        return {"value": await self._model(chat_id)}

    async def _op_set_model(
        self, _id: str, model: str, provider: str, chat_id: str | None = None, **_: Any
    ) -> Message:
        """Have /model switch: in a chat, or for all that have no model of their own."""
        runner, chat = self.gateway_runner, chat_id or HOME_CHAT
        key = self._key(self._source(chat))
        if not await self._idle(key):
            return {"error": "busy"}
        where = chat_id or LISTING
        old, default = await self._model(where), await self._model(LISTING)
        own = runner._snapshot_session_model_override(key)
        if chat_id and (model, provider) == (default["model"], default["provider"]):
            await self._own_model(key, {"had_override": False})
        else:
            scope = f"--provider {provider} " * bool(provider)
            scope += "--session" if chat_id else "--global"
            try:
                await self._command(chat, f"/model {model} {scope}")
            finally:
                if chat_id is None:  # the home chat has only lent its name
                    await self._own_model(key, own)
                    self._listed = -FRESH_S, self._listed[1]
        new, asked = await self._model(where), slash_confirm.get_pending(key) is not None
        if new == old and new["model"] != model and not asked:
            return {"error": "unknown_model"}
        return {"value": {**new, "asked": asked}}

    async def _own_model(self, key: str, kept: Message) -> None:
        self.gateway_runner._restore_session_model_override(key, kept)
        store = self.gateway_runner.async_session_store
        await store.set_model_override(key, kept.get("override"))

    async def _model(self, chat_id: str) -> Message:
        """The model of the next turn there, with the name that /model has for its provider."""
        runner, source = self.gateway_runner, self._source(chat_id)
        resolve, key = runner._resolve_session_agent_runtime, self._key(source)
        model, runtime = await asyncio.to_thread(resolve, source=source)
        default = await asyncio.to_thread(_default)
        own = runner._session_model_overrides.get(key) or default
        agent = (runner._agent_cache.get(key) or [None])[0]
        length = getattr(getattr(agent, "context_compressor", None), "context_length", None)
        if length is None and model == default.get("default"):
            length = default.get("context_length")
        provider = own.get("provider") or runtime.get("provider")
        return {"model": model, "provider": provider, "context_length": length}

    # ── modes ──

    async def _op_modes(self, _id: str, chat_id: str | None = None, **_: Any) -> Message:
        """What is asked before it is done, and how much is thought."""
        source = self._source(chat_id or LISTING)
        key, model = self._key(source), (await self._model(chat_id or LISTING))["model"]
        resolve = self.gateway_runner._resolve_session_reasoning_config
        # None: the model's own way.
        said = await asyncio.to_thread(resolve, source=source, session_key=key, model=model) or {}
        effort = "none" if said.get("enabled") is False else said.get("effort")
        value = {"approvals": await asyncio.to_thread(_approvals), "reasoning": effort}
        value["efforts"] = list(VALID_REASONING_EFFORTS)
        if chat_id is not None:
            store = self._session_store
            entry = store.lookup_by_session_id(store.peek_session_id(key))
            kept = getattr(entry, "yolo", None)  # 0.22, until the next turn of a new process
            value["yolo"] = kept is True or approval.is_session_yolo_enabled(key)
        return {"value": value}

    async def _op_set_mode(
        self, _id: str, mode: str, value: str, chat_id: str | None = None, **_: Any
    ) -> Message:
        """Change one of them: in a chat, or in the configuration."""
        if chat_id is None:
            key = {"approvals": "approvals.mode", "reasoning": "agent.reasoning_effort"}[mode]
            await asyncio.to_thread(_configure, key, value)
        elif mode == "reasoning":
            if not await self._idle(self._key(self._source(chat_id))):
                return {"error": "busy"}
            await self._command(chat_id, f"/reasoning {'reset' if value == 'default' else value}")
        elif (await self._op_modes(_id, chat_id))["value"]["yolo"] != (value == "on"):
            await self._command(chat_id, "/yolo")
        return await self._op_modes(_id, chat_id)


def _approvals() -> str:
    try:
        from tools.approval_context import _get_approval_mode as mode
    except ImportError:  # before 0.22
        from tools.approval import _get_approval_mode as mode
    return str(mode())


def _configure(key: str, value: str) -> None:
    from hermes_cli.config import set_config_value

    with suppress(SystemExit):  # it is managed: the value stays
        set_config_value(key, value)


def _default() -> Message:
    from gateway.run import _load_gateway_config

    said = _load_gateway_config().get("model")
    return said if isinstance(said, dict) else {"default": said}


def _offered(rows: list[Message]) -> list[Message]:
    """Of /model's rows what is no secret, with the contexts known without asking a server."""
    from agent.models_dev import lookup_models_dev_context as length

    cached = "allow_network" in inspect.signature(length).parameters
    return [
        {
            "slug": row["slug"],
            "name": row["name"],
            "total_models": row.get("total_models") or len(row["models"]),
            "models": [
                {"model": str(m), "context_length": length(row["slug"], str(m)) if cached else None}
                for m in row["models"]
            ],
        }
        for row in rows
    ]
