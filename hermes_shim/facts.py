"""Hook calls become facts: one small dict each, handed to the link, nothing interpreted.

Everything that must outlive a forced plugin reload (docs/hermes.md) is an attribute
of `state`, a process-global that is no module of ours.
"""

import itertools
import secrets
import sys
import time
from collections import OrderedDict
from threading import get_ident
from types import ModuleType, SimpleNamespace
from typing import Any

from .wire import PREVIEW_CHARS, Message, once

state: Any = sys.modules.setdefault("_hermes_shim_state", ModuleType("_hermes_shim_state"))
if not hasattr(state, "boot"):
    state.boot, state.began = secrets.token_hex(8), time.monotonic()
    state.serial = itertools.count(1)
    state.link = state.adapter = None
    state.ctx = None  # of the latest register(), until our hooks are in it
    state.approvals = {}  # approval id → its own queue entry and what we answered
    state.questions = {}  # question id → what waits for it
    state.clarify = {}  # session key → the clarify call at work there
    state.commands = {}  # session key → message id of its last command
    state.inbox, state.most = "", 64 << 20  # where loomid wants files, of so many bytes at most
    state.waiting = {}  # session key → what waits behind its run
    state.turns = OrderedDict()  # turn id → how far it is, until it ends


def plain(value: object) -> Any:
    """What of a value goes out: text and numbers; of a model's message its content, of a list
    of parts their texts or questions, of a mapping its first texts and numbers and what its
    `questions` are (0.22's clarify), of all else a short str."""
    value = getattr(value, "content", value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, list):
        texts = (p.get("text") or p.get("question") for p in value if isinstance(p, dict))
        return "\n".join(str(text) for text in texts if text)
    if isinstance(value, dict):  # containers in it may be megabytes, and so may its texts
        asked = {k: plain(v) for k, v in value.items() if k == "questions" and isinstance(v, list)}
        some = [(k, v) for k, v in (value | asked).items() if isinstance(v, (str, int, float))][:16]
        return {str(k): v[: PREVIEW_CHARS + 1] if isinstance(v, str) else v for k, v in some}
    return str(value)[: PREVIEW_CHARS + 1]


def _pre_llm_call(kw: Message) -> Message | None:
    from gateway.session_context import get_session_env
    from tools.skill_provenance import is_background_review

    if is_background_review():  # 0.22 never calls it then
        return None
    # `fresh`: it has yet to ask the model what it was told. `stopped`: the agent, if we did that.
    state.turns[kw.get("turn_id")] = SimpleNamespace(fresh=True, stopped=None)
    if len(state.turns) > 256:  # those that failed have no end
        state.turns.popitem(last=False)
    return {"session_key": get_session_env("HERMES_SESSION_KEY") or None}


def _pre_api_request(kw: Message) -> Message:
    if turn := state.turns.get(kw.get("turn_id")):
        turn.fresh = False
    return {}


def _on_session_end(kw: Message) -> Message:
    turn = state.turns.pop(kw.get("turn_id"), None)
    if turn and turn.stopped:  # one that came too late would hit the next turn
        turn.stopped.clear_interrupt()
    return {}


def _pre_approval_request(kw: Message) -> Message | None:
    if kw.get("surface") != "gateway" or kw.get("coalesced"):
        return None  # smart, CLI, or a second prompt for what is asked already
    from gateway import run
    from tools import approval

    key, command = str(kw.get("session_key") or ""), str(kw.get("command") or "")
    # Its own entry was queued just before, on this thread. 0.19 has no ids: the entry is the
    # reference. Of two equal commands it is the one whose text is the very object we are given;
    # where that does not tell either, nobody may answer through us.
    queue = list(getattr(approval, "_gateway_queues", {}).get(key, ()))
    alike = [entry for entry in queue if entry.data.get("command") == command]
    fits = [entry for entry in alike if entry.data["command"] is command] or alike
    entry = fits[0] if len(fits) == 1 else None
    data = entry.data if entry else {}
    session = not data.get("smart_denied") and data.get("allow_session", True)
    always = session and data.get("allow_permanent", True)
    choices = ["once", *["session"] * session, *["always"] * always, "deny"] if entry else []
    approval_id = f"a{next(state.serial)}"
    # Both approval hooks run on the thread that waits for the answer.
    asked = SimpleNamespace(key=key, entry=entry, choices=choices, thread=get_ident(), answer=None)
    state.approvals[approval_id] = asked
    return {
        "approval_id": approval_id,
        "command": run._redact_approval_command(command),
        "choices": choices,  # none: nobody may answer it through us
        "smart_denied": data.get("smart_denied"),
        # Where 0.22 keeps it, and where the others do.
        "timeout_s": sys.modules.get("tools.approval_context", approval)._get_approval_timeout(),
    }


def _post_approval_response(kw: Message) -> Message | None:
    here, choice = get_ident(), kw.get("choice")
    found = [name for name, asked in list(state.approvals.items()) if asked.thread == here]
    if not found:
        return None
    answer, command_id = state.approvals.pop(found[-1]).answer or (None, None)
    ours = command_id if answer == choice else None
    return {"approval_id": found[-1], "choice": choice, "command_id": ours}


def _pre_tool_call(kw: Message) -> Message:
    """What this call asks comes to the adapter, which is not told whose it is."""
    if kw.get("tool_name") == "clarify":
        from gateway.session_context import get_session_env

        state.clarify[get_session_env("HERMES_SESSION_KEY")] = SimpleNamespace(kw=kw, asked=None)
    return {}


def _post_tool_call(kw: Message) -> Message:
    """0.19 fires no post hook when it could not ask: the tool's end closes the approval. No
    release says how a question ended: what its waiter got does."""
    if left := _post_approval_response({"choice": "notify_failed"}):
        state.link.emit("approval.done", left)
    call_id = kw.get("tool_call_id")
    for key, call in list(state.clarify.items()):
        if call.kw.get("tool_call_id") == call_id:
            del state.clarify[key]
            if call.asked:
                answered(call.asked)
    return {}


def answered(asked: Any) -> None:
    """Tell how a card of the clarify tool ended, by what it holds."""
    said = asked.entry.response
    gone = "timeout" if said is None else "cancelled"
    ended(asked, gone if said in (None, "", "\0cancelled") else "answered")


def ended(asked: Any, outcome: str) -> None:
    """Tell the one end of a question."""
    if state.questions.pop(asked.id, None):
        told = {"question_id": asked.id, "outcome": outcome, "command_id": asked.command}
        state.link.emit("question.done", told)


# hook → fact, and what goes into it under Hermes' own names, beside turn_id and session_id.
# What must be looked up comes from a function named as the hook; None: there is no fact.
HOOKS = {
    "pre_llm_call": ("turn.started", "user_message platform model parent_session_id"),
    "on_stream_start": ("stream.started", "iteration model provider surface"),
    "on_stream_delta": ("delta", "iteration delta kind"),
    "on_stream_end": ("stream.ended", "iteration final_text finished error"),
    "on_interim_message": ("interim", "iteration text already_streamed"),
    "pre_api_request": ("api.started", "api_call_count model provider platform"),
    "post_api_request": (
        "api.ended",
        "api_call_count finish_reason assistant_message usage context_length",
    ),
    "api_request_error": ("api.failed", "api_call_count status_code reason retryable error"),
    "pre_tool_call": ("tool.started", "tool_call_id tool_name args api_request_id"),
    "post_tool_call": ("tool.ended", "tool_call_id tool_name status duration_ms"),
    "post_llm_call": ("turn.answered", "assistant_response"),
    "on_session_end": ("turn.ended", "completed interrupted failed turn_exit_reason"),
    "agent_loop_stopped": ("loop.stopped", "session_key reason"),
    "on_session_reset": ("session.reset", "old_session_id new_session_id reason"),
    "pre_approval_request": ("approval.asked", "session_key tool_call_id description"),
    "post_approval_response": ("approval.done", ""),
}


def observer(hook: str) -> Any:
    """A callback for one hook. It never waits, never raises and always returns None."""
    kind, names = HOOKS[hook]
    fields = ("turn_id", "session_id", *names.split())
    more = globals().get(f"_{hook}", lambda kw: {})

    def observe(**kw: Any) -> None:
        try:
            if (extra := more(kw)) is not None:
                body = {name: plain(kw.get(name)) for name in fields}
                state.link.emit(kind, body | extra)
        except Exception as error:  # noqa: BLE001 - a guest never hurts its host
            once(f"hook {hook} failed: {type(error).__name__}")

    observe.__name__ = f"loomi_{hook}"
    return observe


def admit(event: Any, **_: Any) -> None:
    """Hermes is about to look whether a message is a command."""
    state.adapter.spoken(event)


def watch() -> None:
    """Register our hooks once with the latest context; only the gateway process calls this.

    In other processes a stream hook would mute the CLI (docs/hermes.md).
    """
    from hermes_cli.plugins import VALID_HOOKS

    ctx, state.ctx = state.ctx, None
    for hook in HOOKS.keys() & VALID_HOOKS if ctx else ():
        ctx.register_hook(hook, observer(hook))
    if ctx:
        ctx.register_hook("pre_gateway_dispatch", admit)
