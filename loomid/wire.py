"""What crosses ZeroMQ between hermes_shim and loomid: the only definition of it.

One ZeroMQ message part is one JSON object `{"m": <tag>, ...fields}`. This file needs
nothing but the standard library, so that it loads in every Hermes environment.
Times are float epoch seconds unless a name says otherwise.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any

WIRE_VERSION = 1
SOCKET_NAME = "hermes.sock"
BEAT_S = 2.0
BEATS_MISSED = 3
COMMAND_DEADLINE_S = 10.0
HOME_CHAT = "home"
PREVIEW_CHARS = 2_000
PLATFORM = "loomi"

# One run of a backslash escape in JSON text: \uXXXX (perhaps a pair) or \<any>.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_BAD_RAW = re.compile("[\x00\ud800-\udfff]")


def valid_json_text(raw: str) -> str:
    """Replace NUL and unpaired surrogates, raw or escaped, by U+FFFD in JSON text.

    The only door for text from outside (LMP design §5): it works on the raw text,
    before that is decoded, so that no decoder ever sees what SQLite, UTF-8 or a
    phone could not take.
    """
    if _BAD_RAW.search(raw):
        # A raw pair (from surrogatepass) is joined, a lone half becomes U+FFFD.
        raw = raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        raw = raw.replace("\x00", "\ufffd")
    if "\\u" not in raw:
        return raw
    out: list[str] = []
    done = 0
    high_at: tuple[int, int] | None = None  # span of a high half that awaits its low half
    for match in _ESCAPE.finditer(raw):
        unit = int(match[1], 16) if match[1] else -1
        if high_at is not None:
            if 0xDC00 <= unit <= 0xDFFF and match.start() == high_at[1]:
                high_at = None
                continue
            out += raw[done : high_at[0]], "\\ufffd"
            done, high_at = high_at[1], None
        if 0xD800 <= unit <= 0xDBFF:
            high_at = match.span()
        elif unit == 0 or 0xDC00 <= unit <= 0xDFFF:
            out += raw[done : match.start()], "\\ufffd"
            done = match.end()
    if high_at is not None:
        out += raw[done : high_at[0]], "\\ufffd"
        done = high_at[1]
    out.append(raw[done:])
    return "".join(out)


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
    pid_started: float
    """Start of the process as in /proc/<pid>/stat field 22 (clock ticks); 0 if unknown."""
    name: str
    hermes_version: str
    shim_version: str
    hooks: list[str]
    features: list[str] = field(default_factory=list)
    """What this host can do: see FEATURES in the adapter."""
    home_chat: str = HOME_CHAT
    home_key: str | None = None
    """Session key of the home chat, where the host can tell."""
    first: int = 1
    """Number of the oldest fact the shim still holds."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Facts lost since the process started, by reason."""


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
    """loomid → shim: no. `reason` is `wire_version` or `replaced`."""

    reason: str
    speaks: list[int]


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
    tool_calls: int
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

    session_key: str | None
    old_session_id: str
    new_session_id: str
    reason: str


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
    """What is alive, sent after each welcome, as a numbered fact like any other."""

    keys: list[str]
    approvals: list[str]


@dataclass(frozen=True, slots=True)
class Dropped:
    """Facts lost in the shim since its process started, by reason (cumulative)."""

    counts: dict[str, int]


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
    "dropped": Dropped,
}
KINDS = {cls: kind for kind, cls in FACTS.items()}

# ── commands: op → (arguments, value of the Result) ──────────────────────────
#
# inject     {chat_id, text, message_id, mode, user_id, user_name, device_id?, request_id?}
#            → {session_key, message_id}
# cancel     {session_key, turn_id}   → {state: "cancelling", dropped: [message_id, …]}
# approve    {approval_id, choice, reason?}   → {applied: bool}
# running    {}   → {keys}; also emits the fact `running`
# sessions   {limit, before?: float, source?: str}
#            → {sessions: [{session_key, session_id, platform, title, model, created_at,
#               updated_at, message_count, preview}], more: bool}
OPS = ("inject", "cancel", "approve", "running", "sessions")


def encode(message: Message) -> bytes:
    """One message as bytes; invalid text inside becomes U+FFFD.

    Raises WireError for what JSON cannot hold (NaN, foreign objects).
    """
    body = {"m": _TAGS[type(message)], **asdict(message)}
    return dump(body)


def facts_message(boot: str, facts: list[bytes]) -> bytes:
    """A `Facts` message of facts that `dump` made bytes already: none is encoded twice."""
    return b'{"m":"facts","boot":%b,"facts":[%b]}' % (dump(boot), b",".join(facts))


def dump(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """Compact JSON in valid UTF-8. Raises WireError for what JSON cannot hold."""
    try:
        raw = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"cannot encode: {type(error).__name__}") from None
    return valid_json_text(raw).encode()


def decode(data: bytes) -> Message:
    """The message in these bytes; unknown fields are ignored.

    Raises WireError when it is no message of ours or a field is missing. Types of
    fields are checked by whoever uses them.
    """
    try:
        body = json.loads(valid_json_text(data.decode()))
        cls = MESSAGES[body.pop("m")]
        known = {f.name for f in fields(cls)}
        message: Message = cls(**{k: v for k, v in body.items() if k in known})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"not a wire message: {type(error).__name__}") from None
    return message


def process_started(pid: int) -> float:
    """What `Hello.pid_started` means: 0 when there is no such process, or none that runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - pathlib is slow to load
            fields_after_name = stat.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    # A killed process that nobody has waited for yet is still listed, as a zombie.
    return 0.0 if fields_after_name[0] in b"ZX" else float(fields_after_name[19])
