"""Hook calls become facts: one small dict each, handed to the link, nothing interpreted.

Everything that must outlive a forced plugin reload (hermes.md trap 24) is an attribute
of `state`, a process-global that is no module of ours.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import sys
import threading
import types
from collections import deque
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = wire.PREVIEW_CHARS + 1
# Hermes puts loggers below "hermes_plugins" into its gateway.log.
log = logging.getLogger(f"hermes_plugins.{wire.PLATFORM}.shim")

state: Any = sys.modules.setdefault("_hermes_shim_state", types.ModuleType("_hermes_shim_state"))
_FIRST: dict[str, Any] = {
    "boot": secrets.token_hex(8),
    "serial": itertools.count(1),
    "ctx": None,  # of the latest register()
    "watched": None,  # the ctx whose hooks are ours
    "link": None,
    "adapter": None,
    "approvals": {},  # approval id → its own queue entry and what we answered
    "asking": {},  # thread → approval id: both approval hooks run on the waiting thread
    "over": deque(maxlen=256),  # turns that ended
    "said": set(),  # log lines that are due once a process
}
for _name, _value in _FIRST.items():
    vars(state).setdefault(_name, _value)


def once(level: int, message: str, *args: object) -> None:
    """Log a line the first time only."""
    if message not in state.said:
        state.said.add(message)
        log.log(level, message, *args)


def text_of(value: object) -> str:
    """Text as it is; of a message's list of parts, their text; of anything else a short str."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(str(p["text"]) for p in value if isinstance(p, dict) and p.get("text"))
    return "" if value is None else str(value)[:LIMIT]


_AS: dict[str, Callable[[Any], Any]] = {
    "str": text_of,
    "str | None": lambda v: None if v is None else text_of(v),
    "int": lambda v: int(v or 0),
    "int | None": lambda v: None if v is None else int(v),
    "float | None": lambda v: None if v is None else float(v),
    "bool": bool,
    "list[str]": list,
}


def _turn_started(kw: dict[str, Any]) -> dict[str, Any]:
    from gateway.session_context import get_session_env

    return {
        "text": text_of(kw.get("user_message"))[:LIMIT],
        "session_key": get_session_env("HERMES_SESSION_KEY") or None,
    }


def _turn_ended(kw: dict[str, Any]) -> dict[str, Any]:
    state.over.append(kw.get("turn_id"))
    return {"reason": kw.get("turn_exit_reason")}


def _api_ended(kw: dict[str, Any]) -> dict[str, Any]:
    return {"text": getattr(kw.get("assistant_message"), "content", None)}


def _api_failed(kw: dict[str, Any]) -> dict[str, Any]:
    error = kw.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return {"error": text_of(message)[:LIMIT]}


def _tool_started(kw: dict[str, Any]) -> dict[str, Any]:
    args, shown = kw.get("args"), []
    for name, value in list(args.items())[:8] if isinstance(args, dict) else ():
        if isinstance(value, (str, int, float)):  # containers may be megabytes, and so may this
            short = value[:LIMIT] if isinstance(value, str) else value
            shown.append(f"{short}" if name == "command" else f"{name}: {short}")
    call = str(kw.get("api_request_id") or "").rpartition(":api:")[2]
    return {"preview": "\n".join(shown)[:LIMIT], "call": call if call.isdecimal() else 0}


def _session_reset(kw: dict[str, Any]) -> dict[str, Any]:
    entry = state.adapter._session_store.lookup_by_session_id(kw.get("new_session_id"))
    return {"session_key": getattr(entry, "session_key", None)}


def _own_entry(key: str, command: str) -> tuple[dict[str, Any], Any]:
    """The queue entry that waits for this answer: its data, and what resolves just it.

    It was queued just before the hook, on this thread. 0.19 has no request ids: there
    the entry itself is the reference.
    """
    from tools import approval

    if hasattr(approval, "list_gateway_approvals"):
        found = [(data, data["request_id"]) for data in approval.list_gateway_approvals(key)]
    else:
        with approval._lock:
            found = [(entry.data, entry) for entry in approval._gateway_queues.get(key, ())]
    taken = [entry.ref for entry in state.approvals.values()]
    for data, ref in reversed(found):
        if data.get("command") == command and ref not in taken:
            return data, ref
    return {}, None


def _approval_asked(kw: dict[str, Any]) -> dict[str, Any] | None:
    if kw.get("surface") != "gateway" or kw.get("coalesced"):
        return None  # smart, CLI, or a second prompt for what is asked already
    from gateway import run
    from tools import approval

    key, command = str(kw.get("session_key") or ""), str(kw.get("command") or "")
    data, ref = _own_entry(key, command)
    denied = bool(data.get("smart_denied"))
    session = not denied and data.get("allow_session", True)
    always = session and data.get("allow_permanent", True)
    choices = ["once", *["session"] * session, *["always"] * always, "deny"]
    approval_id = f"a{next(state.serial)}"
    state.asking[threading.get_ident()] = approval_id
    state.approvals[approval_id] = types.SimpleNamespace(
        key=key, ref=ref, choices=choices, command=None, choice=None
    )
    context = sys.modules.get("tools.approval_context", approval)  # where 0.22 keeps it
    return {
        "approval_id": approval_id,
        "command": run._redact_approval_command(command),
        "choices": choices if ref is not None else [],
        "smart_denied": denied,
        "timeout_s": context._get_approval_timeout(),
        "answerable": ref is not None,
    }


def _approval_done(kw: dict[str, Any]) -> dict[str, Any] | None:
    if kw.get("surface") != "gateway" or kw.get("coalesced"):
        return None
    approval_id = state.asking.pop(threading.get_ident(), None)
    entry = state.approvals.pop(approval_id, None)
    if entry is None:
        return None
    choice = kw.get("choice")
    ours = entry.command if entry.choice == choice else None
    return {"approval_id": approval_id, "choice": choice, "command_id": ours}


def _approval_left(kw: dict[str, Any]) -> dict[str, Any] | None:
    """0.19 fires no post hook when it could not ask: the tool's end closes the approval."""
    del kw
    return _approval_done({"surface": "gateway", "choice": "notify_failed"})


# hook → (fact, field: name in the hook where they differ, further values)
HOOKS: dict[str, tuple[str, dict[str, str], Any]] = {
    "pre_llm_call": ("turn.started", {}, _turn_started),
    "on_stream_start": ("stream.started", {}, None),
    "on_stream_delta": ("delta", {"text": "delta", "channel": "kind"}, None),
    "on_stream_end": ("stream.ended", {"text": "final_text"}, None),
    "on_interim_message": ("interim", {}, None),
    "pre_api_request": ("api.started", {"call": "api_call_count"}, None),
    "post_api_request": (
        "api.ended",
        {"call": "api_call_count", "tool_calls": "assistant_tool_call_count"},
        _api_ended,
    ),
    "api_request_error": ("api.failed", {"call": "api_call_count"}, _api_failed),
    "pre_tool_call": (
        "tool.started",
        {"call_id": "tool_call_id", "tool": "tool_name"},
        _tool_started,
    ),
    "post_tool_call": (
        "tool.ended",
        {"call_id": "tool_call_id", "tool": "tool_name", "ms": "duration_ms"},
        None,
    ),
    "post_llm_call": ("turn.answered", {"text": "assistant_response"}, None),
    "on_session_end": ("turn.ended", {}, _turn_ended),
    "agent_loop_stopped": ("loop.stopped", {}, None),
    "on_session_reset": ("session.reset", {}, _session_reset),
    "pre_approval_request": ("approval.asked", {"call_id": "tool_call_id"}, _approval_asked),
    "post_approval_response": ("approval.done", {}, _approval_done),
}


def observer(hook: str, kind: str, names: dict[str, str], more: Any) -> Callable[..., None]:
    """A callback for one hook. It never waits, never raises and always returns None."""
    plan = [(f.name, names.get(f.name, f.name), _AS[str(f.type)]) for f in fields(wire.FACTS[kind])]

    def observe(**kw: Any) -> None:
        try:
            extra = more(kw) if more else {}
            if extra is None:
                return
            body = {
                name: cast(extra[name] if name in extra else kw.get(source))
                for name, source, cast in plan
            }
            state.link.emit(kind, body)
        except Exception as error:  # noqa: BLE001 - a guest never hurts its host
            once(logging.WARNING, f"loomi: hook {hook} failed: %s", type(error).__name__)

    observe.__name__ = f"loomi_{hook}"
    return observe


def watch() -> None:
    """Register our hooks once with the latest context; only the gateway process calls this.

    In other processes a stream hook would mute the CLI (hermes.md §6.2).
    """
    from hermes_cli.plugins import VALID_HOOKS

    if state.watched is state.ctx or state.ctx is None:
        return
    state.watched = state.ctx
    for hook, (kind, names, more) in HOOKS.items():
        if hook in VALID_HOOKS:
            state.ctx.register_hook(hook, observer(hook, kind, names, more))
    if "on_stream_delta" not in VALID_HOOKS:
        state.ctx.register_hook(
            "post_tool_call", observer("post_tool_call", "approval.done", {}, _approval_left)
        )
