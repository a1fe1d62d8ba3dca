"""A phone's requests (LMP §5): fingerprints, answers that are kept, ids.

Decides; what is stored and sent is up to `loomid/commands.py`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from loomid import wire
from loomid.errors import (
    BadFile,
    GatewayError,
    GatewayOffline,
    NotPermitted,
    OutcomeUnknown,
    PhoneError,
    RequestIdReused,
    ReservedText,
    RunNotActive,
    UnknownModel,
)
from loomid.lmp import envelope, frames, ids
from loomid.lmp.payload import given

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

Reply = tuple[str, frames.Payload]
Answer = Reply | PhoneError
"""What a phone gets: a result frame's type and payload, or an error."""


REASON_CHARS = 64
"""A code from a newer shim, as far as a phone is told it."""


def fingerprint(type_: str, body: bytes) -> bytes:
    """A digest of a request that is the same for the same JSON, however it is written."""
    try:
        parsed = json.loads(body)
        canonical = json.dumps(parsed, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        # Only in fields that we ignore can there be what this reader does not take
        # (a number of 5,000 digits); then the same bytes are the same request.
        canonical = body
    return blake2b(type_.encode() + b"\0" + canonical, digest_size=16).digest()


# ── ids that carry what an answer needs ─────────────────────────────────────


def command_id(token: str, *about: str) -> str:
    """An id for a command that names what it is about.

    After a restart the answer can so be made of the id and the recalled result alone.
    """
    return ":".join((token, *about))


def about(command: str) -> list[str]:
    """The parts that `command_id` was given after the token."""
    return command.split(":")[1:]


def message_id(command: str, request_id: str | None) -> str:
    """An id for the message that a command brings to Hermes; its request_id can be read in it."""
    coded = base64.urlsafe_b64encode((request_id or "").encode()).decode().rstrip("=")
    return f"{wire.PLATFORM}.{command.partition(':')[0]}.{coded}"


def request_ids(message_ids: Iterable[str]) -> list[str]:
    """The request_ids of those messages that have one; other platforms' have none."""
    return [found for one in message_ids if (found := _request_id(one))]


def _request_id(message: str) -> str:
    platform, _, rest = message.partition(".")
    _, _, coded = rest.partition(".")
    if platform != wire.PLATFORM:
        return ""
    try:
        found = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).decode()
        return msgspec.convert(found, frames.RequestId) if "\0" not in found else ""
    except (ValueError, msgspec.ValidationError):
        return ""


# ── what a gateway's result means for the phone ─────────────────────────────


class _Cancelled(msgspec.Struct):
    dropped: list[str] = []


class _Injected(_Cancelled, kw_only=True):
    session_key: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What is needed to put a command's result into words for the phone."""

    type: str
    request_id: str | None
    gateway_id: str
    command_id: str


def session_key(value: dict[str, Any]) -> str:
    """Where `inject` put a message. Raises GatewayError when its value does not say."""
    return convert(value, _Injected).session_key


def sent(key: bytes, asked: Asked, value: dict[str, Any]) -> frames.SendResult:
    """The answer to session.send. Raises GatewayError when `value` is odd, as all of these do."""
    told = convert(value, _Injected)
    return frames.SendResult(
        request_id=asked.request_id or "",
        task_id=ids.task_id(key, asked.gateway_id, told.session_key),
        accepted=True,
        dropped=request_ids(told.dropped) or UNSET,
    )


def interrupted(_: bytes, asked: Asked, value: dict[str, Any]) -> frames.RunResult:
    """The answer to run.cancel and run.pause."""
    state: Literal["cancelling", "pausing"] = (
        "cancelling" if asked.type == "run.cancel" else "pausing"
    )
    return _run_result(asked, state, request_ids(convert(value, _Cancelled).dropped))


def resumed(_: bytes, asked: Asked, __: dict[str, Any]) -> frames.RunResult:
    """The answer to run.resume."""
    return _run_result(asked, "resuming", UNSET)


def _run_result(
    asked: Asked,
    state: Literal["cancelling", "pausing", "resuming"],
    dropped: list[str] | UnsetType,
) -> frames.RunResult:
    return frames.RunResult(
        run_id=about(asked.command_id)[0],
        state=state,
        request_id=given(asked.request_id),
        dropped=dropped,
    )


def convert(value: dict[str, Any], type_: type[T]) -> T:
    """The value of a command's result, typed. Raises GatewayError when it is not of that type."""
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        raise GatewayError(reason="bad_result") from None


def may_have_run(code: str) -> bool:
    """Whether a Result with that error leaves open that something happened.

    A code from a newer shim says nothing, so it may have.
    """
    return code == "failed" or code not in wire.RESULT_ERRORS


class Declined(GatewayError):
    """A gateway_error that is not kept: the shim did nothing."""

    proves_nothing_ran = True


def refusal(code: str) -> PhoneError:
    """The error frame for a Result with an error (wire.RESULT_ERRORS).

    The result's `detail` stays behind: it may quote what a user wrote.
    """
    match code:
        case "stale" | "starting" | "unknown_command":
            return GatewayOffline(reason=code)
        case "reserved_text":
            return ReservedText()
        case "bad_file":
            return BadFile(reason="refused")
        case "not_active":
            return RunNotActive()
        case "unknown_model":
            return UnknownModel()
        case "ambiguous" | "busy" | "queue_full" | "title_taken" | "not_found" | "not_supported":
            return NotPermitted(reason=code)
        case "unknown_op":  # what it takes is no capability of that gateway
            return NotPermitted(reason="not_supported")
        case _ if may_have_run(code):
            return GatewayError(reason=code[:REASON_CHARS])
        case _:
            return Declined(reason=code)


# ── answers on disk ─────────────────────────────────────────────────────────


class _Stored(msgspec.Struct, omit_defaults=True):
    type: str
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    message: str | None = None
    params: dict[str, Any] = {}


def kept(answer: Answer) -> bool:
    """Whether the same request_id must get this answer again (docs/protocol.md)."""
    return not (isinstance(answer, PhoneError) and answer.proves_nothing_ran)


def outcome(answer: Answer) -> str:
    """What an answer says, in one word: `ok`, `asked` of a model that Hermes wants confirmed
    first, or its error's code."""
    if isinstance(answer, PhoneError):
        return answer.code
    return "asked" if getattr(answer[1], "state", None) == "asked" else "ok"


def dump(answer: Answer) -> bytes:
    """An answer as bytes for the store."""
    if isinstance(answer, PhoneError):
        stored = _Stored(f"error:{answer.code}", message=answer.message, params=answer.params)
    else:
        stored = _Stored(answer[0], payload=msgspec.Raw(envelope.encode_payload(answer[1])))
    return msgspec.json.encode(stored)


def load(data: bytes) -> Answer:
    """The answer that `dump` wrote; OutcomeUnknown where a later loomid has words of its own."""
    stored = msgspec.json.decode(data, type=_Stored)
    code = stored.type.removeprefix("error:")
    try:
        if code != stored.type:
            return PhoneError.codes[code](stored.message, **stored.params)
        return stored.type, msgspec.json.decode(stored.payload, type=frames.CONTROLS[stored.type])
    except (KeyError, msgspec.ValidationError):
        return OutcomeUnknown()


def same_request(stored: bytes, now: bytes) -> None:
    """Raise RequestIdReused when the fingerprints of one request_id differ."""
    if stored != now:
        raise RequestIdReused
