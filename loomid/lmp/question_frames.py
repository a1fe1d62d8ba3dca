"""Questions of Hermes to its user (see frames): asked, answered, ended."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from loomid.lmp.payload import Payload, RequestId, Returned


class Option(Payload, frozen=True, kw_only=True):
    label: str
    description: str | UnsetType = UNSET


class Question(Payload, frozen=True, kw_only=True):
    """One question of those asked at once."""

    id: str
    question: str
    options: list[Option]
    multi_select: bool
    custom: bool
    """Words of one's own may be given instead of an option, or beside those chosen."""
    header: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET


class QuestionRequired(Payload, frozen=True, kw_only=True):
    question_id: str
    task_id: str | None
    run_id: str | None
    questions: list[Question]
    call_id: str | UnsetType = UNSET
    """The tool call that asks."""
    intent: str | UnsetType = UNSET
    """`confirm`: a slash command waits for it. Whoever knows it not shows a plain list."""
    deadline_ts: float | UnsetType = UNSET
    part: str | UnsetType = UNSET
    """The part of its run that waits for it."""
    returned: Returned | UnsetType = UNSET


class QuestionResolved(Payload, frozen=True, kw_only=True):
    question_id: str
    outcome: Literal["answered", "cancelled", "timeout", "lost"]
    decided_by: Literal["local", "remote", "timeout", "agent"]


class Answer(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one question: labels of its options, words of one's own, or both."""

    id: str
    selected: list[str] = field(default_factory=lambda: [])  # noqa: PIE807 - told where it is empty
    custom: str | None = None


class QuestionAnswer(Payload, frozen=True, kw_only=True):
    question_id: str
    answers: list[Answer]
    request_id: RequestId


class QuestionCancel(Payload, frozen=True, kw_only=True):
    question_id: str
    request_id: RequestId


class QuestionResult(Payload, frozen=True, kw_only=True):
    """Answer to question.answer and question.cancel."""

    request_id: str
    question_id: str
    state: Literal["accepted"]


EVENTS: dict[str, type[Payload]] = {
    "question.required": QuestionRequired,
    "question.resolved": QuestionResolved,
}
CONTROLS: dict[str, type[Payload]] = {
    "question.answer.result": QuestionResult,
    "question.cancel.result": QuestionResult,
}
REQUESTS: dict[str, type[Payload]] = {
    "question.answer": QuestionAnswer,
    "question.cancel": QuestionCancel,
}
