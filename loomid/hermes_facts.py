"""What happens in a gateway, as facts: kind → typed body, under names of our own.

They cross ZeroMQ inside `wire.Facts`. Times are float epoch seconds unless a name says
otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    usage: dict[str, int] | None = None
    """Tokens by Hermes' names for them, where it tells."""
    context_length: int | None = None
    """What the model's context can hold, in tokens (0.22)."""


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
    """What becomes of it: `queue` a turn of its own, `steer` and `interrupt` a part of the one
    that runs, `command` a slash command."""
    busy: bool
    """An agent was running on that key."""
    device_id: str | None = None
    """Echo of the command's arguments, so that a run can name its origin."""
    request_id: str | None = None
    attachments: list[dict[str, Any]] | None = None


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
class FileSent:
    """Adapter send_document(), send_image() and the like: a file, or a link to one."""

    chat_id: str
    session_key: str | None
    message_id: str
    path: str
    """Where it lies; empty for a link."""
    url: str
    name: str
    caption: str
    reply_to: str | None
    job_id: str | None
    ours: bool
    """It is a copy that was made for us, to be removed once we have it."""


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
class Card:
    """One of the questions that are asked at once."""

    question: str
    choices: list[str] | None
    """As Hermes shows them."""
    multi_select: bool = False


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """Adapter send_clarify (all that the tool's call asks), send_slash_confirm."""

    question_id: str
    """Made by the shim: unique in this boot."""
    source: str
    """`clarify` or `confirm`."""
    session_key: str
    session_id: str | None
    turn_id: str | None
    call_id: str | None
    title: str
    questions: list[Card]
    timeout_s: float | None
    """Seconds until Hermes gives up, counted from this fact's time; none or below: never."""


@dataclass(frozen=True, slots=True)
class QuestionDone:
    """How it ended: `answered`, `cancelled` or `timeout`."""

    question_id: str
    outcome: str
    command_id: str | None
    """The command of ours that ended it, if one did."""


@dataclass(frozen=True, slots=True)
class Running:
    """The session keys whose agents run now (asked for with op `running`)."""

    keys: list[str]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is alive, asked for after each welcome, as a numbered fact like any other."""

    keys: list[str]
    approvals: list[str]
    questions: list[str] = field(default_factory=list)


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
    "file.sent": FileSent,
    "edited": Edited,
    "approval.asked": ApprovalAsked,
    "approval.done": ApprovalDone,
    "question.asked": QuestionAsked,
    "question.done": QuestionDone,
    "running": Running,
    "inventory": Inventory,
}
KINDS = {cls: kind for kind, cls in FACTS.items()}
