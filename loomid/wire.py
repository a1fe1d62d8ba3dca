"""What crosses ZeroMQ, typed: every message and every fact, once.

`hermes_shim/wire.py` has what both sides must agree on; the shim's dicts have Hermes' own
names, which hermes_words.py turns into those of the facts here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hermes_shim.wire import (
    BEAT_S,
    BEATS_MISSED,
    HOME_CHAT,
    PLATFORM,
    PREVIEW_CHARS,
    SOCKET_NAME,
    WIRE_VERSION,
)
from loomid.processes import started_at
from loomid.text import valid_json_text

__all__ = [
    "BEATS_MISSED",
    "BEAT_S",
    "COMMAND_DEADLINE_S",
    "FACTS",
    "HOME_CHAT",
    "KINDS",
    "MESSAGES",
    "PLATFORM",
    "PREVIEW_CHARS",
    "RESULT_ERRORS",
    "SOCKET_NAME",
    "WIRE_VERSION",
    "Message",
    "WireError",
    "decode",
    "encode",
    "typed",
]

COMMAND_DEADLINE_S = 10.0
LIMIT = PREVIEW_CHARS + 1
"""So much of a text that is only shown: one more tells that it was cut."""


class WireError(ValueError):
    """The bytes are not a message of this protocol."""


# ── messages ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Hello:
    """Shim → loomid, first on each connection and again whenever loomid asks."""

    wire: int
    gateway_id: str
    boot: str
    pid: int
    name: str
    hermes_version: str
    shim_version: str
    hooks: list[str]
    """Those that it has of the ones we know."""
    stat: str = ""
    """Its /proc/<pid>/stat: an id alone may be another process' by now, or elsewhere."""
    home_key: str | None = None
    """Session key of the home chat, where the host can tell."""

    @property
    def pid_started(self) -> float:
        """Start of the process in clock ticks; 0 if unknown."""
        return started_at(self.stat)

    @property
    def features(self) -> list[str]:
        """What this host can do; without stream hooks (0.19), edits are the only deltas."""
        return ["stream" if "on_stream_delta" in self.hooks else "edits", *FEATURES]


@dataclass(frozen=True, slots=True)
class Facts:
    """Shim → loomid: numbered facts `[n, hook time, kind, body]`, n rising by one."""

    boot: str
    facts: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Result:
    """Shim → loomid: how a command ended. `error` is None or a code of RESULT_ERRORS."""

    id: str
    error: str | None = None
    detail: str = ""
    value: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Beat:
    """Either way, every BEAT_S seconds."""

    dropped: dict[str, int] = field(default_factory=dict)
    """Facts lost in the shim since its process started, by reason."""


@dataclass(frozen=True, slots=True)
class Bye:
    """Shim → loomid: the adapter disconnects in an orderly way."""

    boot: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """loomid → shim: the answer to a hello it can speak with."""

    wire: int
    loomid_version: str
    instance: str
    """A new one for each start of loomid."""
    ack: int
    """Highest n of this boot that loomid has on disk; 0 for none."""


@dataclass(frozen=True, slots=True)
class Refused:
    """loomid → shim: no. `reason` is `refused` (for the wire version) or `replaced`.

    Of any wire version: a hello begins with its first three fields, and this is the answer.
    """

    reason: str
    speaks: list[int]
    text: str
    """One line for Hermes' log."""


@dataclass(frozen=True, slots=True)
class Ack:
    """loomid → shim: every fact up to n of this boot is on disk."""

    boot: str
    n: int


@dataclass(frozen=True, slots=True)
class Command:
    """loomid → shim: do this once, unless `deadline` (epoch seconds) has passed."""

    id: str
    boot: str
    deadline: float
    op: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recall:
    """loomid → shim: repeat the Result of a command, without running anything.

    The answer is that Result, or one with error `unknown_command` when this boot
    never ran it.
    """

    id: str


@dataclass(frozen=True, slots=True)
class WhoAreYou:
    """loomid → shim: facts came from a peer without a hello; say hello again."""


Message = (
    Hello | Facts | Result | Beat | Bye | Welcome | Refused | Ack | Command | Recall | WhoAreYou
)
MESSAGES: dict[str, type[Any]] = {
    "hello": Hello,
    "facts": Facts,
    "result": Result,
    "beat": Beat,
    "bye": Bye,
    "welcome": Welcome,
    "refused": Refused,
    "ack": Ack,
    "command": Command,
    "recall": Recall,
    "who": WhoAreYou,
}
_TAGS = {cls: tag for tag, cls in MESSAGES.items()}

FEATURES = ("request_id", "control_off", "steer", "interrupt", "cancel_foreign")

RESULT_ERRORS = {
    "stale": "the deadline had passed; nothing ran",
    "starting": "the gateway is still starting; nothing ran",
    "unknown_command": "this process never ran that command",
    "unknown_op": "the shim does not know that operation; nothing ran",
    "bad_args": "the arguments do not fit; nothing ran",
    "not_active": "that turn is not running; nothing ran",
    "not_pending": "that approval is no longer pending; nothing ran",
    "ambiguous": "the answer could land on another command; nothing ran",
    "reserved_text": "this release would take the text for a command; nothing ran",
    "not_supported": "this release cannot do that; nothing ran",
    "failed": "Hermes raised an error; it may have run",
}

# ── facts: kind → body. Bodies are what Hermes said, under names of our own. ──


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """Hook pre_llm_call: once a turn, after the agent is set up."""

    turn_id: str
    session_id: str
    session_key: str | None
    """From the context of the hook's thread; a cron or subagent turn may carry the key
    of another platform's session: trust `platform`."""
    platform: str
    model: str
    text: str
    """What the user wrote: the first PREVIEW_CHARS + 1 characters."""
    parent_session_id: str | None = None


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """Hook on_stream_start: one attempt at a model call. The pair (turn_id, iteration)
    may come again: on retries and redirects."""

    turn_id: str
    iteration: int
    session_id: str
    model: str
    provider: str
    surface: str


@dataclass(frozen=True, slots=True)
class Delta:
    """Hook on_stream_delta; `channel` is text or reasoning."""

    turn_id: str
    iteration: int
    text: str
    channel: str


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """Hook on_stream_end."""

    turn_id: str
    iteration: int
    text: str
    finished: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class Interim:
    """Hook on_interim_message: text that accompanies tool calls."""

    turn_id: str
    iteration: int
    text: str
    already_streamed: bool


@dataclass(frozen=True, slots=True)
class ApiStarted:
    """Hook pre_api_request. `call` is api_call_count: 1-based in the turn."""

    turn_id: str
    session_id: str
    call: int
    model: str
    provider: str
    platform: str


@dataclass(frozen=True, slots=True)
class ApiEnded:
    """Hook post_api_request. `text`: the assistant text of this call, where given."""

    turn_id: str
    call: int
    finish_reason: str
    text: str | None


@dataclass(frozen=True, slots=True)
class ApiFailed:
    """Hook api_request_error."""

    turn_id: str
    session_id: str
    call: int
    status_code: int | None
    reason: str
    retryable: bool
    error: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Hook pre_tool_call. `call` is the model call it came from (0 if unknown)."""

    turn_id: str
    session_id: str
    call: int
    call_id: str
    tool: str
    preview: str
    """First PREVIEW_CHARS + 1 characters of what the tool is to do."""


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """Hook post_tool_call; `status` is Hermes' word: ok, error, blocked, …"""

    turn_id: str
    call_id: str
    tool: str
    status: str
    ms: float | None


@dataclass(frozen=True, slots=True)
class TurnAnswered:
    """Hook post_llm_call: the final text of a turn that has one."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Hook on_session_end: the turn is over (never after a failed one)."""

    turn_id: str
    session_id: str
    completed: bool
    interrupted: bool
    failed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class LoopStopped:
    """Hook agent_loop_stopped (0.22)."""

    session_key: str
    reason: str


@dataclass(frozen=True, slots=True)
class SessionReset:
    """Hook on_session_reset: the key goes on under another session id."""

    old_session_id: str
    new_session_id: str
    reason: str
    session_key: str | None = None
    """None: as before (Hermes does not say)."""


@dataclass(frozen=True, slots=True)
class ProcessingStarted:
    """Adapter on_processing_start: Hermes takes up one of our messages."""

    session_key: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ProcessingEnded:
    """Adapter on_processing_complete; `outcome`: success, failure or cancelled."""

    session_key: str
    message_id: str
    outcome: str


@dataclass(frozen=True, slots=True)
class Injected:
    """We are about to hand a phone's message to Hermes (emitted just before)."""

    session_key: str
    message_id: str
    text: str
    """As the phone wrote it: the first PREVIEW_CHARS + 1 characters."""
    mode: str
    """`queue`, `steer`, `interrupt`, or `command` for a slash command."""
    busy: bool
    """An agent was running on that key."""
    device_id: str | None = None
    """Echo of the command's arguments, so that a run can name its origin."""
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Adapter send(): a text that Hermes delivers to one of our chats."""

    chat_id: str
    session_key: str | None
    message_id: str
    text: str
    reply_to: str | None
    notify: bool
    expect_edits: bool
    interim: bool
    job_id: str | None


@dataclass(frozen=True, slots=True)
class Edited:
    """Adapter edit_message(): the full text that replaces a sent one."""

    chat_id: str
    message_id: str
    text: str
    finalize: bool


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """Hook pre_approval_request, surface `gateway`, of any platform."""

    approval_id: str
    """Made by the shim: unique in this boot."""
    session_key: str
    session_id: str | None
    turn_id: str | None
    call_id: str | None
    command: str
    description: str
    choices: list[str]
    """Of once, session, always, deny: those that Hermes offers."""
    smart_denied: bool
    timeout_s: float | None
    """Seconds until Hermes gives up, counted from this fact's time; None: unknown."""
    answerable: bool
    """False: nobody may answer it through us (no entry of its own)."""


@dataclass(frozen=True, slots=True)
class ApprovalDone:
    """Hook post_approval_response. `choice` is Hermes' word: once, session, always,
    deny, timeout, cancelled, notify_failed, …"""

    approval_id: str
    choice: str
    command_id: str | None
    """The command of ours that decided it, if one did."""


@dataclass(frozen=True, slots=True)
class Running:
    """The session keys whose agents run now (asked for with op `running`)."""

    keys: list[str]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is alive, asked for after each welcome, as a numbered fact like any other."""

    keys: list[str]
    approvals: list[str]


FACTS: dict[str, type[Any]] = {
    "turn.started": TurnStarted,
    "stream.started": StreamStarted,
    "delta": Delta,
    "stream.ended": StreamEnded,
    "interim": Interim,
    "api.started": ApiStarted,
    "api.ended": ApiEnded,
    "api.failed": ApiFailed,
    "tool.started": ToolStarted,
    "tool.ended": ToolEnded,
    "turn.answered": TurnAnswered,
    "turn.ended": TurnEnded,
    "loop.stopped": LoopStopped,
    "session.reset": SessionReset,
    "processing.started": ProcessingStarted,
    "processing.ended": ProcessingEnded,
    "injected": Injected,
    "sent": Sent,
    "edited": Edited,
    "approval.asked": ApprovalAsked,
    "approval.done": ApprovalDone,
    "running": Running,
    "inventory": Inventory,
}
KINDS = {cls: kind for kind, cls in FACTS.items()}

# ── commands: op → (arguments, value of the Result) ──────────────────────────
#
# inject     {chat_id, text, message_id, mode, device_id?, request_id?}
#            → {session_key, message_id}
# cancel     {session_key, turn_id}   → {state: "cancelling", dropped: [message_id, …]}
# approve    {approval_id, choice, reason?}   → {applied: bool}
# running    {fact: running | inventory}   → {keys}; also emits that fact
# sessions   {limit, offset}   → {sessions: [rows of Hermes' list: see lmp/conversations.py]}


def encode(message: Message) -> bytes:
    """One message as bytes; invalid text inside becomes U+FFFD.

    Raises WireError for what JSON cannot hold (NaN, foreign objects).
    """
    body = {"m": _TAGS[type(message)], **asdict(message)}
    try:
        raw = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"cannot encode: {type(error).__name__}") from None
    return valid_json_text(raw).encode()


def decode(data: bytes) -> Message:
    """The message in these bytes; unknown fields are ignored.

    Raises WireError when it is no message of ours or a field is missing. Types of
    fields are checked by whoever uses them.
    """
    try:
        return typed(json.loads(valid_json_text(data.decode())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"not a wire message: {type(error).__name__}") from None


def typed(body: dict[str, Any]) -> Message:
    """A decoded message as one of MESSAGES. Raises KeyError or TypeError when it is none."""
    cls = MESSAGES[body["m"]]
    known = {f.name for f in fields(cls)}
    message: Message = cls(**{k: v for k, v in body.items() if k in known})
    return message
