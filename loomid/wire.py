"""What crosses ZeroMQ, typed: every message and every fact, once.

`hermes_shim/wire.py` has what both sides must agree on; the shim's dicts have Hermes' own
names, which hermes_words.py turns into those of the facts here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import msgspec

from hermes_shim.wire import (
    BEAT_S,
    BEATS_MISSED,
    HOME_CHAT,
    PLATFORM,
    PREVIEW_CHARS,
    SOCKET_NAME,
    UNSENT_RESULTS,
    WIRE_VERSION,
)
from loomid.hermes_facts import (
    FACTS,
    KINDS,
    ApiEnded,
    ApiFailed,
    ApiStarted,
    ApprovalAsked,
    ApprovalDone,
    Card,
    Delta,
    Edited,
    FileSent,
    Injected,
    Interim,
    Inventory,
    LoopStopped,
    ProcessingEnded,
    ProcessingStarted,
    QuestionAsked,
    QuestionDone,
    Running,
    Sent,
    SessionReset,
    StreamEnded,
    StreamStarted,
    ToolEnded,
    ToolStarted,
    TurnAnswered,
    TurnEnded,
    TurnStarted,
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
    "UNSENT_RESULTS",
    "WIRE_VERSION",
    "Ack",
    "ApiEnded",
    "ApiFailed",
    "ApiStarted",
    "ApprovalAsked",
    "ApprovalDone",
    "Beat",
    "Bye",
    "Card",
    "Command",
    "Delta",
    "Edited",
    "Facts",
    "FileSent",
    "Hello",
    "Injected",
    "Interim",
    "Inventory",
    "LoopStopped",
    "Message",
    "ProcessingEnded",
    "ProcessingStarted",
    "QuestionAsked",
    "QuestionDone",
    "Recall",
    "Refused",
    "Result",
    "Running",
    "Sent",
    "SessionReset",
    "StreamEnded",
    "StreamStarted",
    "ToolEnded",
    "ToolStarted",
    "TurnAnswered",
    "TurnEnded",
    "TurnStarted",
    "Welcome",
    "WhoAreYou",
    "WireError",
    "encode",
    "from_shim",
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
    """What its owner calls it; empty: nothing."""
    hermes_version: str
    shim_version: str
    hooks: list[str]
    """Those that it has of the ones we know."""
    stat: str = ""
    """Its /proc/<pid>/stat: an id alone may be another process' by now, or elsewhere."""
    home_key: str | None = None
    """Session key of the home chat, where the host can tell."""
    home: str = ""
    """Hermes' home directory."""
    ops: list[str] = field(default_factory=list)
    """The operations that it can carry out (see below)."""

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

CHOICES = ("once", "session", "always", "deny")
"""Hermes takes any other word for a yes, so no other word may leave us."""
FEATURES = ("request_id", "control_off", "steer", "interrupt", "cancel_foreign")

RESULT_ERRORS = {
    "stale": "the deadline had passed; nothing ran",
    "starting": "the gateway is still starting; nothing ran",
    "unknown_command": "this process never ran that command",
    "unknown_op": "the shim does not know that operation; nothing ran",
    "bad_args": "the arguments do not fit; nothing ran",
    "not_active": "that turn is not running; nothing ran",
    "not_pending": "that approval or question is no longer pending; nothing ran",
    "ambiguous": "the answer could land on another command; nothing ran",
    "reserved_text": "this release would take the text for a command; nothing ran",
    "bad_file": "Hermes does not take such a file; nothing ran",
    "not_supported": "this release cannot do that; nothing ran",
    "busy": "a turn is running in that chat; nothing ran",
    "queue_full": "32 messages wait in that chat already; nothing ran",
    "title_taken": "another session has that title; nothing ran",
    "not_found": "there is no such session, or nothing in it; nothing ran",
    "unknown_model": "Hermes did not take that model; nothing ran",
    "failed": "Hermes raised an error; it may have run",
}

# ── commands: op → (arguments, value of the Result) ──────────────────────────
#
# inject     {chat_id, text, message_id, mode, device_id?, request_id?}
#            → {session_key, message_id, copies: [path], dropped: [message_id, …]}
# inject_files   {files: [{path, name, media_type}], message_type, attachments, …: as inject}
#            → as inject; `attachments` is echoed in the fact `injected`, `copies` are those that
#            Hermes keeps of the files
# cancel     {session_key, turn_id}   → {state: "cancelling", dropped: [message_id, …]}
# approve    {approval_id, choice, reason?}   → {applied: bool}
# answer     {question_id, answers: [{selected: [place], custom?}] or null, which cancels}
#            → {applied: bool}
# running    {fact: running | inventory, inbox?, max_file_bytes?}   → {keys}; also emits that
#            fact. `inbox` is where copies of files are put for loomid, which need not be able to
#            read elsewhere; it takes none larger than that
# sessions   {limit, offset}   → {sessions: [rows of Hermes' list: see lmp/conversations.py]}
# models     {chat_id?}   → {providers: [{slug, name, total_models, models: [{model,
#            context_length}]}], default: {model, provider, context_length}, current?: the same}
# model      {chat_id}   → {model, provider, context_length}: what its next turn would use
# set_model  {model, provider, chat_id?}   → {model, provider, context_length, asked}
# modes      {chat_id?}   → {approvals, reasoning, efforts: [...], yolo?}
# set_mode   {mode, value, chat_id?}   → the same
# host       {}   → {hermes_version, python, os, home, uptime, running, load, disk_free, disk_total}
# rename     {title, session_key?, session_id?}   → {title}
# open       {chat_id, title?}   → {session_key, title?}
# branch     {chat_id, share, session_key?, session_id?}
#            → {session_key, session_id, title, shared}
# commands   {}   → {commands: [{name, aliases, args_hint, description}], short: {name: target}}


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


def typed(body: dict[str, Any]) -> Message:
    """A decoded message as one of MESSAGES. Raises KeyError or TypeError when it is none."""
    cls = MESSAGES[body["m"]]
    known = {f.name for f in fields(cls)}
    message: Message = cls(**{k: v for k, v in body.items() if k in known})
    return message


_FROM_SHIM = {tag: MESSAGES[tag] for tag in ("hello", "facts", "result", "beat", "bye")}


def from_shim(text: str) -> Message:
    """A message that a shim may send, with the types of its fields checked.

    Raises msgspec.DecodeError (ValidationError), KeyError, TypeError or RecursionError.
    """
    body = msgspec.json.decode(text)
    message: Message = msgspec.convert(body, _FROM_SHIM[body["m"]])
    return message
