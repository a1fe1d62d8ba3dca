"""Tokens and credentials (LMP §3): mint, hash, compare, expire. Randomness and time come in."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any, NoReturn

SECRET_BYTES = 32
TOKEN_TTL_S = 300.0
MAX_TOKEN_TTL_S = 24 * 3600.0
CLAIM_WITHIN_S = 600.0
"""A device that does not come back this long after its first connection is removed."""


class Secret:
    """A token or credential whose value shows only through `reveal()`.

    repr, str and format give the first 8 characters of its hash, so that it can stand
    in a log line; it can be neither pickled nor copied by accident.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself: for the one frame or answer that hands it over."""
        return self._value

    @property
    def hash(self) -> bytes:
        """What is stored in its place."""
        return digest(self._value)

    def __repr__(self) -> str:
        return self.hash.hex()[:8]

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self.hash, other.hash)

    __hash__ = None  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:  # noqa: ANN401 - as object has it
        raise TypeError("a secret is not serialised")


def digest(value: str) -> bytes:
    """SHA-256 of a secret: enough, as it holds 256 random bits."""
    return sha256(value.encode("utf-8", "replace")).digest()


def matches(presented: str, stored_hash: bytes) -> bool:
    """Whether a presented secret is the stored one, in constant time."""
    return hmac.compare_digest(digest(presented), stored_hash)


def mint(random: bytes) -> Secret:
    """A token or credential from 32 random bytes (LMP §3)."""
    if len(random) != SECRET_BYTES:
        raise ValueError(f"a secret is made of {SECRET_BYTES} random bytes")
    return Secret(urlsafe_b64encode(random).rstrip(b"=").decode())


def device_id(random: bytes) -> str:
    """A device's name on the wire, from at least 48 random bits."""
    if len(random) < 6:
        raise ValueError("a device id is made of at least 48 random bits")
    return f"dev_{random.hex()}"


def short(device_id: str) -> str:
    """As much of a device id as a log line needs."""
    return device_id[:12]


def qr(url: str, token: Secret, name: str, fingerprint: str) -> dict[str, Any]:
    """What the QR code holds (LMP §3)."""
    return {"v": 1, "url": url, "token": token.reveal(), "name": name, "fp": fingerprint}


def penalty(failures: int) -> float:
    """Seconds to wait before refusing a device id once more: growing, at most 4."""
    return 0.0 if failures < 1 else min(4.0, 0.125 * 2.0 ** min(failures, 10))
