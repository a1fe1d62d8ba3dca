"""What all payloads of LMP v1 share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

PROTOCOL_VERSION = 1
MAX_SEQ = 2**52

RequestId = Annotated[str, Meta(min_length=1, max_length=128)]
Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
TaskStatus = Literal["running", "waiting", "idle"]

_T = TypeVar("_T")


class Payload(Struct, frozen=True, kw_only=True, gc=False):
    """Base of all payloads. Unknown fields are ignored on decoding (LMP §6)."""


class Returned(Payload, frozen=True, kw_only=True):
    """An answer that was accepted and did not reach Hermes; `reason` is an error code."""

    device_id: str
    request_id: str
    reason: str


def given(value: _T | None) -> _T | UnsetType:
    """The value of a field that is left out where there is none."""
    return UNSET if value is None else value
