"""Every LMP v1 type, once: payloads, the tables name → type.

Field names and meanings follow LMP §4; what loomid adds (docs/protocol.md): new
types and new fields only, absent (UNSET) when they say nothing.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from loomid.lmp import (
    control_frames,
    device_frames,
    file_frames,
    history_frames,
    question_frames,
)

# Exported again: whoever speaks of frames need not know which file has one.
from loomid.lmp.client_frames import (
    ApprovalResolve as ApprovalResolve,
    ClientHello as ClientHello,
    DeviceInfo as DeviceInfo,
    RunCancel as RunCancel,
    RunPause as RunPause,
    RunRequest as RunRequest,
    RunResume as RunResume,
    SessionSend as SessionSend,
    TaskList as TaskList,
)
from loomid.lmp.hello_frames import (
    GatewayInfo as GatewayInfo,
    Heartbeat as Heartbeat,
    HelloOk as HelloOk,
    Limits as Limits,
)
from loomid.lmp.payload import (
    MAX_SEQ as MAX_SEQ,
    PROTOCOL_VERSION as PROTOCOL_VERSION,
    Payload as Payload,
    RequestId as RequestId,
    Returned as Returned,
    Seq as Seq,
    TaskStatus as TaskStatus,
)
from loomid.lmp.question_frames import (
    Answer as Answer,
    Option as Option,
    Question as Question,
    QuestionAnswer as QuestionAnswer,
    QuestionCancel as QuestionCancel,
    QuestionRequired as QuestionRequired,
    QuestionResolved as QuestionResolved,
    QuestionResult as QuestionResult,
)

# ── server → client: control frames (not retained) ──────────────────────────


class ErrorPayload(Payload, frozen=True, kw_only=True):
    code: str
    message: str
    fatal: bool
    request_id: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET


class Ping(Payload, frozen=True, kw_only=True):
    pass


class Pong(Payload, frozen=True, kw_only=True):
    pass


class SnapshotDone(Payload, frozen=True, kw_only=True):
    pass


class ServerStatus(Payload, frozen=True, kw_only=True):
    """Whether the server can store what happens, and since when."""

    storage: Literal["ok", "failing"]
    since: float


class SendResult(Payload, frozen=True, kw_only=True):
    request_id: str
    task_id: str
    accepted: bool
    dropped: list[str] | UnsetType = UNSET
    """Requests whose messages waited, and which a command has dropped."""


class ApprovalResolveResult(Payload, frozen=True, kw_only=True):
    request_id: str
    approval_id: str
    choice: str
    state: Literal["accepted"]


class RunResult(Payload, frozen=True, kw_only=True):
    """Answer to run.cancel, run.pause and run.resume."""

    run_id: str
    state: Literal["cancelling", "pausing", "resuming"]
    request_id: str | UnsetType = UNSET
    dropped: list[str] | UnsetType = UNSET


class Task(Payload, frozen=True, kw_only=True):
    task_id: str
    title: str
    status: TaskStatus
    surface: str
    model: str | None
    created_at: float
    updated_at: float
    message_count: int
    preview: str
    gateway_id: str
    run_id: str | UnsetType = UNSET


class TaskListResult(Payload, frozen=True, kw_only=True):
    tasks: list[Task]
    request_id: str | UnsetType = UNSET
    next_cursor: str | UnsetType = UNSET
    stale: bool | UnsetType = UNSET


# ── server → client: events (numbered, retained) ────────────────────────────


class Origin(Payload, frozen=True, kw_only=True):
    """Which device and request a message came from, and the files that came with it."""

    device_id: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    attachments: list[file_frames.AttachmentRef] | UnsetType = UNSET


class RunStarted(Payload, frozen=True, kw_only=True):
    run_id: str
    task_id: str
    session_id: str
    surface: str
    model: str
    provider: str
    started_at: float
    title: str
    prompt: str | UnsetType = UNSET
    origin: Origin | UnsetType = UNSET
    can: list[str] | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    """The prompt was cut."""


class RunInput(Payload, frozen=True, kw_only=True):
    """A message folded into a running turn."""

    run_id: str
    text: str
    origin: Origin | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class RunDelta(Payload, frozen=True, kw_only=True):
    run_id: str
    text: str
    kind: Literal["text", "reasoning"]
    iteration: int
    part: str | UnsetType = UNSET


class RunText(Payload, frozen=True, kw_only=True):
    """The true text of an iteration; replaces what was streamed of it."""

    run_id: str
    iteration: int
    text: str
    part: str | UnsetType = UNSET


class RunInterim(Payload, frozen=True, kw_only=True):
    run_id: str
    text: str
    already_streamed: bool


class RunToolStarted(Payload, frozen=True, kw_only=True):
    run_id: str
    iteration: int
    tool: str
    preview: str
    index: int
    call_id: str
    truncated: bool | UnsetType = UNSET
    part: str | UnsetType = UNSET
    round: int | UnsetType = UNSET


class RunToolFinished(Payload, frozen=True, kw_only=True):
    run_id: str
    iteration: int
    tool: str
    ok: bool
    index: int
    call_id: str
    duration: float
    """Seconds."""
    part: str | UnsetType = UNSET


class RunCompleted(Payload, frozen=True, kw_only=True):
    run_id: str
    status: Literal["completed", "failed", "cancelled"]
    text: str
    error: str | None
    finished: bool
    usage: history_frames.Usage | UnsetType = UNSET


class RunFailed(Payload, frozen=True, kw_only=True):
    run_id: str
    error: str
    status: Literal["failed"] = "failed"


class Choice(Payload, frozen=True, kw_only=True):
    label: str
    choice: Literal["once", "session", "always", "deny"]
    style: Literal["primary", "default", "danger"]


class ApprovalRequired(Payload, frozen=True, kw_only=True):
    approval_id: str
    run_id: str | None
    task_id: str | None
    command: str
    description: str
    choices: list[Choice]
    smart_denied: bool
    session_key_ref: str
    deadline_ts: float | None
    truncated: bool | UnsetType = UNSET
    part: str | UnsetType = UNSET
    """Of the tool that waits for it."""
    returned: Returned | UnsetType = UNSET


class ApprovalResolved(Payload, frozen=True, kw_only=True):
    approval_id: str
    choice: str
    decided_by: Literal["local", "remote", "timeout", "agent"]
    outcome: Literal["applied", "expired", "cancelled", "lost"] | UnsetType = UNSET


class Notification(Payload, frozen=True, kw_only=True):
    category: Literal["result", "diagnostic"]
    title: str
    text: str
    source: str
    requires_attention: bool
    truncated: bool | UnsetType = UNSET


class GatewayStatus(Payload, frozen=True, kw_only=True):
    gateway_id: str
    name: str
    online: bool
    hermes_version: str
    shim_version: str
    since: float
    capabilities: list[str] | UnsetType = UNSET
    """What it can do beyond messages, runs and approvals; absent: nothing."""
    home_channel: str | UnsetType = UNSET
    """The task of what its Hermes sends without naming a chat."""


class GatewayForgotten(Payload, frozen=True, kw_only=True):
    """The owner removed it from what is known."""

    gateway_id: str
    name: str


class TaskUpdated(Payload, frozen=True, kw_only=True):
    task_id: str
    status: TaskStatus
    title: str | UnsetType = UNSET


EVENTS: dict[str, type[Payload]] = {
    "run.started": RunStarted,
    "run.input": RunInput,
    "run.delta": RunDelta,
    "run.text": RunText,
    "run.interim": RunInterim,
    "run.tool_started": RunToolStarted,
    "run.tool_finished": RunToolFinished,
    "run.completed": RunCompleted,
    "run.failed": RunFailed,
    "approval.required": ApprovalRequired,
    "approval.resolved": ApprovalResolved,
    "notification": Notification,
    "gateway.status": GatewayStatus,
    "gateway.forgotten": GatewayForgotten,
    "task.updated": TaskUpdated,
    **file_frames.EVENTS,
    **question_frames.EVENTS,
}
CONTROLS: dict[str, type[Payload]] = {
    "hello.ok": HelloOk,
    "error": ErrorPayload,
    "ping": Ping,
    "pong": Pong,
    "snapshot.done": SnapshotDone,
    "server.status": ServerStatus,
    "session.send.result": SendResult,
    "run.cancel.result": RunResult,
    "run.pause.result": RunResult,
    "run.resume.result": RunResult,
    "approval.resolve.result": ApprovalResolveResult,
    "task.list.result": TaskListResult,
    **device_frames.CONTROLS,
    **history_frames.CONTROLS,
    **control_frames.CONTROLS,
    **file_frames.CONTROLS,
    **question_frames.CONTROLS,
}
REQUESTS: dict[str, type[Payload]] = {
    "session.send": SessionSend,
    "run.cancel": RunCancel,
    "run.pause": RunPause,
    "run.resume": RunResume,
    "approval.resolve": ApprovalResolve,
    "task.list": TaskList,
    **device_frames.REQUESTS,
    **history_frames.REQUESTS,
    **control_frames.REQUESTS,
    **file_frames.REQUESTS,
    **question_frames.REQUESTS,
}
CLIENT: dict[str, type[Payload]] = {
    "hello": ClientHello,
    "ping": Ping,
    "pong": Pong,
    **REQUESTS,
}
SERVER: dict[str, type[Payload]] = {**CONTROLS, **EVENTS}
RUN_ENDS = frozenset({"run.completed", "run.failed"})
_DECIDED = frozenset({"approval.resolved", "question.resolved"})
LASTING = RUN_ENDS | _DECIDED | {"notification", "run.attachment"}
"""Types a snapshot looks back for (docs/protocol.md)."""
URGENT = RUN_ENDS | _DECIDED | {"approval.required", "question.required"}
"""Types that wait for no tick."""
EVENT_NAMES = {cls: name for name, cls in EVENTS.items()}


class Event(Struct, frozen=True, gc=False):
    """One LMP event before it has a position: what the log numbers and keeps."""

    payload: Payload
    ts: float
    task_id: str | None = None
    run_id: str | None = None
    cause: tuple[float, float] | None = None
    """When the newest hook before it was called, of its own turn at least, and when we heard of
    that; None: no hook caused it, or which is not known any more."""
    stored: bytes | None = None
    """The payload's JSON where that says more than `payload`: a later loomid wrote it."""

    @property
    def type(self) -> str:
        """The LMP type name."""
        return EVENT_NAMES[type(self.payload)]
