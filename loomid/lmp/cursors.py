"""Opaque cursors of pages, each good for what it was made for alone."""

from __future__ import annotations

import base64
import hmac
from typing import TYPE_CHECKING, TypeVar

import msgspec

from loomid.errors import BadCursor
from loomid.lmp import ids

if TYPE_CHECKING:
    from msgspec.json import Decoder

T = TypeVar("T")


def make(key: bytes, purpose: str, place: object) -> str:
    """A cursor for that place. `purpose`: what is paged through, such as one task's history."""
    said = msgspec.json.encode(place).decode()
    whole = f"{ids.seal(key, purpose, said)}{said}"
    return base64.urlsafe_b64encode(whole.encode()).decode().rstrip("=")


def read(key: bytes, purpose: str, cursor: str, decoder: Decoder[T]) -> T:
    """The place in a cursor. Raises BadCursor when it was not made here for that purpose."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        whole = base64.b64decode(padded, b"-_", validate=True).decode()
        length = len(ids.seal(key, purpose, ""))
        seal, said = whole[:length], whole[length:]
        if hmac.compare_digest(seal.encode(), ids.seal(key, purpose, said).encode()):
            return decoder.decode(said)
    except (ValueError, msgspec.DecodeError):
        pass
    raise BadCursor
