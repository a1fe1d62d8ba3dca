"""Errors as types, each with a stable code; the lists in the docs come from here.

`PhoneError` is the fault of the client (or a fact it must be told): it becomes an
`error` frame. `StartupError` ends the process with a documented exit status.
Anything else that escapes is a bug.
"""

from __future__ import annotations

from typing import Any, ClassVar


class LoomiError(Exception):
    """Base of every error that loomid raises on purpose."""


class PhoneError(LoomiError):
    """An LMP error frame (LMP §5): `code` for programs, the message for people.

    `params` hold what an app needs to say it in its own language. No secret and
    no message text ever goes into either.
    """

    code: ClassVar[str]
    fatal: ClassVar[bool] = False
    proves_nothing_ran: ClassVar[bool] = True
    summary: ClassVar[str]
    says: ClassVar[tuple[str, ...]] = ()
    """The names that `params` may have; what each means is in docs/protocol.md."""
    codes: ClassVar[dict[str, type[PhoneError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        PhoneError.codes.setdefault(cls.code, cls)

    def __init__(self, message: str | None = None, **params: Any) -> None:  # noqa: ANN401 - JSON
        super().__init__(message or self.summary)
        self.message = message or self.summary
        self.params: dict[str, Any] = params


class BadJson(PhoneError):
    code = "bad_json"
    summary = "The frame is not JSON."


class BadFrame(PhoneError):
    code = "bad_frame"
    summary = "The frame does not have the fields or types that LMP v1 asks for."


class UnsupportedVersion(PhoneError):
    code = "unsupported_version"
    fatal = True
    says = ("speaks",)
    summary = "This server does not speak that protocol version."


class Unauthorized(PhoneError):
    code = "unauthorized"
    fatal = True
    summary = "The token or credential is not valid, or the device was revoked."


class TokenExpired(PhoneError):
    code = "token_expired"
    fatal = True
    summary = "The pairing token has expired; make a new one with loomictl pair."


class TokenUsed(PhoneError):
    code = "token_used"
    fatal = True
    summary = "The pairing token was used already; make a new one with loomictl pair."


class HelloTimeout(PhoneError):
    code = "hello_timeout"
    fatal = True
    summary = "No hello came within 10 seconds."


class RateLimited(PhoneError):
    code = "rate_limited"
    summary = "Too many requests; try again later."
    says = ("transfers",)


class TooLarge(PhoneError):
    code = "too_large"
    says = ("max_text_chars", "max_title_chars", "max_bytes", "max_file_bytes", "max_inline_bytes")
    summary = "That is larger than this server takes."


class ReservedText(PhoneError):
    code = "reserved_text"
    summary = "This Hermes release would take that text for a command; change its wording."


class AlreadyResolved(PhoneError):
    code = "already_resolved"
    proves_nothing_ran = False
    says = ("state", "choice", "answers", "outcome", "decided_by")
    summary = "That was decided already."


class UnknownApproval(PhoneError):
    code = "unknown_approval"
    summary = "There is no such approval."


class UnknownQuestion(PhoneError):
    code = "unknown_question"
    summary = "There is no such question."


class BadAnswer(PhoneError):
    code = "bad_answer"
    says = ("reason", "id")
    summary = "That is no answer to what was asked."


class BadChoice(PhoneError):
    code = "bad_choice"
    says = ("choices",)
    summary = "That choice was not offered."


class BadCursor(PhoneError):
    code = "bad_cursor"
    summary = "That cursor is not of this server, or of another list."


class BadQuery(PhoneError):
    code = "bad_query"
    summary = "That query cannot be looked for."
    says = ("reason", "max_chars")


class UnknownTask(PhoneError):
    code = "unknown_task"
    summary = "There is no such task."


class UnknownRun(PhoneError):
    code = "unknown_run"
    summary = "There is no such run."


class RunNotActive(PhoneError):
    code = "run_not_active"
    summary = "The run has ended."


class UnknownType(PhoneError):
    code = "unknown_type"
    summary = "This server does not know that frame type."


class GatewayOffline(PhoneError):
    code = "gateway_offline"
    says = ("reason",)
    summary = "The Hermes gateway is not connected; nothing was done."


class GatewayError(PhoneError):
    code = "gateway_error"
    proves_nothing_ran = False
    says = ("reason",)
    summary = "Hermes could not carry out the request."


class OutcomeUnknown(PhoneError):
    code = "outcome_unknown"
    proves_nothing_ran = False
    summary = "The request was handed to Hermes and may or may not have run."


class RequestIdReused(PhoneError):
    code = "request_id_reused"
    summary = "That request_id was used before with another body."


class NotPermitted(PhoneError):
    code = "not_permitted"
    says = ("reason", "can", "surface", "needs", "scopes")
    summary = "This device may not do that, or it cannot be done with that run or task."


class UnknownModel(PhoneError):
    code = "unknown_model"
    summary = "The gateway does not offer that model."


class ConfirmRequired(PhoneError):
    code = "confirm_required"
    summary = "That reaches beyond the task: send it again with confirm."
    says = ("effect", "gateway_id")


class UnknownFile(PhoneError):
    code = "unknown_file"
    summary = "There is no such file or upload, or this device may not see it."


class BadFile(PhoneError):
    code = "bad_file"
    summary = "The file is not what it is said to be, or not taken; nothing of it was kept."
    says = ("reason", "found", "max_pixels")


class BadRange(PhoneError):
    code = "bad_range"
    summary = "That part of the file cannot be given or taken."
    says = ("reason", "bytes", "offset")


class StorageFailing(PhoneError):
    """Before hello.ok it ends the connection, after it only the request."""

    code = "storage_failing"
    summary = "The server cannot write to its disk at the moment; nothing was done."


class Internal(PhoneError):
    code = "internal"
    fatal = True
    proves_nothing_ran = False
    summary = "The server met an error of its own; its log says more."


class StartupError(LoomiError):
    """The process cannot start; `exit_code` as in sysexits, one line for people."""

    exit_code: ClassVar[int] = 1


class ConfigError(StartupError):
    """A setting is wrong or unsafe: 78 (EX_CONFIG), a restart would not help."""

    exit_code = 78


class BusyError(StartupError):
    """Another process holds what we need: 75 (EX_TEMPFAIL)."""

    exit_code = 75


class StateError(StartupError):
    """The state directory or database cannot be used: 73 (EX_CANTCREAT)."""

    exit_code = 73
