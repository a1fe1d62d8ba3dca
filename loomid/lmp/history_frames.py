"""Payloads of what a run consists of and of what is read of the past: the conversation, found
messages, figures (see frames)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from loomid.lmp.payload import Payload, RequestId

PAGE_BYTES = 256 * 1024
"""Of a page of history, unless the phone asks for another size."""
LEAST_BYTES = 4 * 1024
QUERY_CHARS = 500

Cursor = Annotated[str, Meta(max_length=65_536)]
"""One of a search has a place for each gateway."""


class Usage(Payload, frozen=True, kw_only=True):
    """What the calls of a run took, as Hermes counts it; a figure it does not tell is absent."""

    calls: int
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
    """Of the input: read from the provider's cache."""
    reasoning_tokens: int | UnsetType = UNSET
    context_tokens: int | UnsetType = UNSET
    """Of the last call's prompt: what the context holds now."""
    context_window: int | UnsetType = UNSET
    """What it could hold."""


class PartAsk(Payload, frozen=True, kw_only=True):
    """An approval or a question that a tool waits for, or waited for."""

    part: str
    """`approval:<approval_id>` or `question:<question_id>`."""
    status: Literal["waiting", "resolved", "cancelled"]


class HistoryAttachment(Payload, frozen=True, kw_only=True):
    """Something that came with a message, or that the agent sent. With an `attachment_id` it is
    a file that was kept here, and can be fetched as long as it is."""

    kind: Literal["image", "audio", "file"]
    attachment_id: str | UnsetType = UNSET
    media_type: str | UnsetType = UNSET
    bytes: int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    width: int | UnsetType = UNSET
    height: int | UnsetType = UNSET
    url: str | UnsetType = UNSET
    """Of the agent: as in `run.attachment`, and so `error`."""
    error: str | UnsetType = UNSET


class Part(Payload, frozen=True, kw_only=True):
    """One piece of a run, under an id that is the same live and in history."""

    part: str
    kind: Literal["reasoning", "text", "tool", "approval", "question", "attachment"]
    text: str | UnsetType = UNSET
    """Of reasoning and text; of an attachment its caption."""
    tool: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    """What the tool is to do."""
    status: Literal["running", "completed", "failed", "cancelled", "waiting"] | UnsetType = UNSET
    """Of a tool, or of an approval or question that is of none; absent: not known."""
    result: str | UnsetType = UNSET
    """What the tool gave back; in history only."""
    asks: list[PartAsk] | UnsetType = UNSET
    attachment: HistoryAttachment | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    """A text of it was cut."""


class HistoryTurn(Payload, frozen=True, kw_only=True):
    """One run as Hermes stored it: the message, and what came of it."""

    turn_id: str
    session_id: str
    started_at: float
    ended_at: float | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    """The prompt was cut."""
    attachments: list[HistoryAttachment] | UnsetType = UNSET
    inputs: list[str] | UnsetType = UNSET
    """Messages that were folded into the run."""
    parts: list[Part]
    status: Literal["completed"] | UnsetType = UNSET
    """Absent: it did not end with an answer, or has not yet."""
    finished: bool | UnsetType = UNSET
    partial: bool | UnsetType = UNSET
    """Hermes kept no end of it: it was cancelled, failed, was cut off, or still runs."""
    run_id: str | UnsetType = UNSET
    """Of a run that is live."""
    summary: bool | UnsetType = UNSET
    """No run: Hermes' own summary of what is gone."""
    continued: bool | UnsetType = UNSET
    """Its first parts are on the next page, under the same `turn_id`."""


class TaskHistory(Payload, frozen=True, kw_only=True):
    task_id: str
    request_id: RequestId | None = None
    before: Cursor | None = None
    max_messages: Annotated[int, Meta(ge=1, le=1_000)] = 100
    max_bytes: Annotated[int, Meta(ge=LEAST_BYTES)] = PAGE_BYTES
    view: Literal["conversation", "full"] = "conversation"


class TaskHistoryResult(Payload, frozen=True, kw_only=True):
    task_id: str
    turns: list[HistoryTurn]
    """Oldest first; a page holds the newest before its cursor."""
    request_id: str | UnsetType = UNSET
    next_before: str | UnsetType = UNSET


class TaskSearch(Payload, frozen=True, kw_only=True):
    query: Annotated[str, Meta(max_length=10_000)]
    request_id: RequestId | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: Cursor | None = None


class Hit(Payload, frozen=True, kw_only=True):
    """A message that holds what was looked for."""

    task_id: str
    session_id: str
    title: str
    role: Literal["user", "assistant"]
    ts: float
    snippet: str
    highlights: list[tuple[int, int]]
    """Where it is in the snippet: from and to, in code points."""


class TaskSearchResult(Payload, frozen=True, kw_only=True):
    hits: list[Hit]
    """Newest first."""
    request_id: str | UnsetType = UNSET
    next_cursor: str | UnsetType = UNSET
    incomplete: bool | UnsetType = UNSET
    """A database could not be read. One that was busy has its hits on a page to come."""


class TaskStats(Payload, frozen=True, kw_only=True):
    task_id: str
    request_id: RequestId | None = None


class TaskStatsResult(Payload, frozen=True, kw_only=True):
    """Of all sessions of a task together, as Hermes counts; what it does not know is absent."""

    task_id: str
    sessions: int
    messages: int
    started_at: float
    active_at: float | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    input_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    calls: int | UnsetType = UNSET
    tool_calls: int | UnsetType = UNSET
    cost_usd: float | UnsetType = UNSET
    cost: Literal["actual", "estimated"] | UnsetType = UNSET
    """What `cost_usd` is."""
    duration: float | UnsetType = UNSET
    """Seconds from the first message to the last."""
    context_tokens: int | UnsetType = UNSET
    """Of the last call's prompt: what the context holds now."""
    context_window: int | UnsetType = UNSET
    """How many it can hold."""


CONTROLS: dict[str, type[Payload]] = {
    "task.history.result": TaskHistoryResult,
    "task.search.result": TaskSearchResult,
    "task.stats.result": TaskStatsResult,
}
REQUESTS: dict[str, type[Payload]] = {
    "task.history": TaskHistory,
    "task.search": TaskSearch,
    "task.stats": TaskStats,
}
