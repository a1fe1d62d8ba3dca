"""A pairing code as the owner gets it: what is shown of it, and how long it lives.

`loomictl pair` and `hermes loomi pair` say the same words, made here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from loomid import terminal, values
from loomid.errors import StorageFailing
from loomid.lmp import pairing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loomid.desk import Desk

RAN_OUT = "the pairing code ran out; nothing was paired"
WITHDRAWN = "The code is withdrawn."


@dataclass(frozen=True, slots=True)
class Code:
    """A code that was made; `qr` holds the token, `drawn` is that as text for a terminal."""

    qr: dict[str, Any]
    drawn: str
    token_hash: bytes
    expires_at: float
    expires_in: float


def parse_ttl(value: object) -> float:
    """How long a code lives, as `values.parse_duration`."""
    return values.seconds(value, pairing.MAX_TOKEN_TTL_S, "one day")


def used_already(program: str) -> str:
    """What became of a code that cannot be withdrawn any more; `program`: what was called."""
    return f"a phone has used the code already; {program} devices lists it"


def explained(url: str, expires_in: float) -> list[str]:
    """Lines above the drawn code: how to use it, and for how long."""
    return [
        f"Scan it with Loomi on the phone ({url}).",
        f"It works once, for {terminal.span(expires_in)}. Waiting …",
    ]


def warning(url: str) -> str | None:
    """Why no phone may reach that URL, or should not."""
    host = urlsplit(url).hostname or ""
    if values.is_loopback(host):
        return (
            f"{url} is this machine's loopback: no phone can reach it; set public_url or give --url"
        )
    if url.startswith("ws:") and values.is_public(host):
        return (
            f"{url} has no TLS: whoever is on the way can read the code's token and all that"
            " follows; use wss:// there"
        )
    return None


@contextlib.asynccontextmanager
async def held(desk: Desk, token_hash: bytes) -> AsyncIterator[None]:
    """A code that is worthless as soon as nobody waits for it any more."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(StorageFailing, KeyError):
            await desk.withdraw(token_hash)
        raise
