"""Facts as loomid folds them: those of the wire, and loomid's own about the link.

Time enters the fold only as `at` of an arrival: loomid's clock when the fact came (mostly),
stored with it, so that folding stored facts again gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from loomid import wire
from loomid.lmp.file_frames import AttachmentRef  # noqa: TC001 - msgspec looks for it


@dataclass(frozen=True, slots=True)
class GatewayUp:
    """A shim said hello and was welcomed (also after a short break of the link).

    Stored as long as its gateway may come back: what is known of that one while it is away.
    """

    name: str
    hermes_version: str
    shim_version: str
    features: list[str]
    home_key: str | None
    pid: int = 0
    pid_started: float = 0.0
    local: bool = False
    """Its pid means the same here as there."""
    ops: list[str] = field(default_factory=list)
    home: str = ""
    """Hermes' home directory; empty: it does not say."""
    readable: bool = False
    """Hermes' database in it can be read from here."""


@dataclass(frozen=True, slots=True)
class GatewayDown:
    """Three heartbeats missed, or an orderly bye: offline, but nothing is lost yet."""


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """This boot is gone for good: process gone, another boot's inventory, or 120 s silent."""


@dataclass(frozen=True, slots=True)
class GatewayForgotten:
    """The owner wants nothing to be known of this gateway any more; all its boots are lost."""

    name: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. Stored only when it caused an event."""


@dataclass(frozen=True, slots=True)
class Unheard:
    """loomid was stopped, its machine asleep or its disk failing until now: that was no silence
    of Hermes."""


@dataclass(frozen=True, slots=True)
class Deltas:
    """Adjacent deltas of a live run, stored as one (lmp/merging): folded, it leaves the turn
    as they left it one by one."""

    turn_id: str
    iteration: int
    channel: str
    text: str
    next_at: float
    """When the rate allows the next frame; nothing is held."""


@dataclass(frozen=True, slots=True)
class FileTaken:
    """What became of a file that the agent sent: it is kept here, or `error` says why not."""

    message_id: str
    """Of the fact `file.sent`."""
    attachment: AttachmentRef | None
    error: str | None


LOCAL: dict[str, type[Any]] = {
    "gateway.up": GatewayUp,
    "gateway.down": GatewayDown,
    "gateway.lost": GatewayLost,
    "gateway.forgotten": GatewayForgotten,
    "tick": Tick,
    "unheard": Unheard,
    "deltas": Deltas,
    "file.taken": FileTaken,
}
KINDS = {**wire.KINDS, **{cls: kind for kind, cls in LOCAL.items()}}
_TYPES = {**wire.FACTS, **LOCAL}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One fact, when and whence it came.

    `n` is 0 for loomid's own facts. `t` is the hook's time in the shim, `at` loomid's time of
    arrival (both epoch seconds). `at` never goes back, but after a start what happened before
    it has the time at which it happened (loomid/catchup.py).
    """

    gateway_id: str
    boot: str
    n: int
    t: float
    at: float
    fact: Any

    @property
    def kind(self) -> str:
        """Name of the fact's type in the tables."""
        return KINDS[type(self.fact)]


def parse(kind: str, body: object) -> Any:  # noqa: ANN401 - one of many types
    """The typed fact, or None when its kind is not known here (a newer shim).

    Raises msgspec.ValidationError when a known kind has wrong fields.
    """
    cls = _TYPES.get(kind)
    return None if cls is None else msgspec.convert(body, cls)


def dump(fact: object) -> bytes:
    """The fact's body as JSON, for the store."""
    return msgspec.json.encode(fact)


def load(kind: str, body: bytes) -> Any:  # noqa: ANN401 - one of many types
    """What `dump` stored."""
    return msgspec.json.decode(body, type=_TYPES[kind])
