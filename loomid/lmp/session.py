"""One connection as a state machine: AWAIT_HELLO → CHECKING → LIVE → CLOSED.

`receive(text, now)` and `tick(now)` return what is to be done; nothing is done here.
`now` is any clock that does not go back, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from msgspec import UNSET

from loomid.errors import (
    BadFrame,
    HelloTimeout,
    Internal,
    PhoneError,
    RateLimited,
    StorageFailing,
    TokenExpired,
    TokenUsed,
    TooLarge,
    Unauthorized,
    UnknownType,
    UnsupportedVersion,
)
from loomid.lmp import envelope, frames
from loomid.lmp.frames import ClientHello, ErrorPayload, Payload
from loomid.lmp.payload import given

if TYPE_CHECKING:
    from loomid.lmp.envelope import ClientFrame

HELLO_TIMEOUT_S = 10.0
PING_EVERY_S = 25.0
PONG_WITHIN_S = 10.0
MAX_MISSES = 3
MAX_WAITING = 16
"""Requests of one phone that wait or run."""
FRAMES_PER_S = 50.0
BURST = 100.0


class State(Enum):
    """Where a connection stands. CHECKING: the hello is being verified."""

    AWAIT_HELLO = "await_hello"
    CHECKING = "checking"
    LIVE = "live"
    CLOSED = "closed"


class Input(Enum):
    """What can happen to a connection."""

    HELLO = "hello"
    PING = "ping"
    PONG = "pong"
    REQUEST = "request"
    UNKNOWN = "unknown type"
    ACCEPT = "hello accepted"
    ERROR = "error"
    FATAL = "fatal error"
    END = "end"


S, I = State, Input  # noqa: E741 - the table reads better
TABLE: dict[State, dict[Input, State]] = {
    S.AWAIT_HELLO: {I.HELLO: S.CHECKING, I.FATAL: S.CLOSED, I.END: S.CLOSED},
    S.CHECKING: {I.ACCEPT: S.LIVE, I.FATAL: S.CLOSED, I.END: S.CLOSED},
    S.LIVE: {
        I.PING: S.LIVE,
        I.PONG: S.LIVE,
        I.REQUEST: S.LIVE,
        I.UNKNOWN: S.LIVE,
        I.ERROR: S.LIVE,
        I.FATAL: S.CLOSED,
        I.END: S.CLOSED,
    },
    S.CLOSED: {},
}
"""All transitions. What is missing is an error of the phone: `bad_frame`."""


class Code:
    """Close codes (docs/protocol.md)."""

    GOING_AWAY = 1001
    NOT_A_FRAME = 1002
    NOT_UTF8 = 1007
    TOO_LARGE = 1009
    INTERNAL = 1011
    FATAL = 4000
    UNAUTHORIZED = 4001
    HELLO_TIMEOUT = 4002
    REVOKED = 4003
    REPLACED = 4004
    TOO_SLOW = 4005
    HEARTBEAT = 4006


_CLOSE_OF: dict[type[PhoneError], int] = {
    Unauthorized: Code.UNAUTHORIZED,
    TokenExpired: Code.UNAUTHORIZED,
    TokenUsed: Code.UNAUTHORIZED,
    HelloTimeout: Code.HELLO_TIMEOUT,
    TooLarge: Code.TOO_LARGE,
    StorageFailing: Code.INTERNAL,
    Internal: Code.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class Send:
    """Send one control frame."""

    type: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket, after what was to be sent before."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Verify this hello; then call `accepted()` or `failed(error)`."""

    hello: ClientHello


@dataclass(frozen=True, slots=True)
class Execute:
    """Carry out a request, in order; then call `finished()`."""

    frame: ClientFrame


@dataclass(frozen=True, slots=True)
class Rest:
    """Read nothing from this socket for so many seconds."""

    seconds: float


Action = Send | Close | Authenticate | Execute | Rest


def error_payload(error: PhoneError, request_id: str | None, *, fatal: bool) -> ErrorPayload:
    """An error as the phone is told it."""
    return ErrorPayload(
        code=error.code,
        message=error.message,
        fatal=fatal,
        request_id=given(request_id),
        params=error.params or UNSET,
    )


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of LMP §1 and §3, in seconds."""

    hello_s: float = HELLO_TIMEOUT_S
    ping_s: float = PING_EVERY_S
    pong_s: float = PONG_WITHIN_S


class Session:
    """The protocol side of one connection. Not usable after it has asked for Close."""

    def __init__(self, now: float, timing: Timing = Timing()) -> None:
        self.state = State.AWAIT_HELLO
        self._timing = timing
        self._hello_by = now + timing.hello_s
        self._next_ping = 0.0
        self._pong_by: float | None = None
        self._misses = 0
        self._running = 0
        self.limited = 0
        """Errors `rate_limited` that were told."""
        self._tokens = BURST
        self._filled_at = now

    @property
    def deadline(self) -> float | None:
        """When `tick` is due; None: never."""
        match self.state:
            case State.AWAIT_HELLO:
                return self._hello_by
            case State.LIVE:
                due = self._next_ping
                return due if self._pong_by is None else min(due, self._pong_by)
            case State.CHECKING | State.CLOSED:
                return None
            case _ as never:
                assert_never(never)

    @property
    def hello_by(self) -> float:
        """When an unauthenticated connection is closed at the latest."""
        return self._hello_by

    # ── from the phone ──────────────────────────────────────────────────────

    def receive(self, text: str, now: float) -> list[Action]:
        """Take one text frame."""
        if self.state is State.CLOSED:
            return []
        self._heard()
        slowed = self._spend(now)
        try:
            frame = envelope.decode_client(text)
        except PhoneError as error:
            request_id = error.request_id if isinstance(error, envelope.BadPayload) else None
            return self._fail(error, request_id) + slowed
        if slowed and self.state is State.LIVE and frame.type != "pong":
            return self._fail(RateLimited(), frame.request_id) + slowed
        return self._take(frame) + slowed

    def receive_binary(self, now: float) -> list[Action]:
        """Take one binary frame: LMP v1 has none (LMP §1)."""
        if self.state is State.CLOSED:
            return []
        self._heard()
        return self._fail(BadFrame("Binary frames are not used in LMP v1."), None) + self._spend(
            now
        )

    def _take(self, frame: ClientFrame) -> list[Action]:
        kind = _kind_of(frame)
        if kind not in TABLE[self.state]:
            said = "A second hello." if kind is Input.HELLO else "The first frame must be a hello."
            return self._fail(BadFrame(said), frame.request_id)
        if isinstance(frame.payload, ClientHello):
            return self._hello(frame.payload)
        match kind:
            case Input.PING:
                return [Send("pong", frames.Pong())]
            case Input.UNKNOWN:
                return self._fail(UnknownType(), frame.request_id)
            case Input.REQUEST:
                return self._request(frame)
            case _:
                return []

    def _hello(self, hello: ClientHello) -> list[Action]:
        error = _check_hello(hello)
        if error is not None:
            return self._fail(error, None)
        self._move(Input.HELLO)
        return [Authenticate(hello)]

    def _request(self, frame: ClientFrame) -> list[Action]:
        if self._running >= MAX_WAITING:
            return self._fail(RateLimited(), frame.request_id)
        self._running += 1
        return [Execute(frame)]

    # ── from the server ─────────────────────────────────────────────────────

    def accepted(self, now: float) -> None:
        """The hello was right: `hello.ok` is sent by the caller, the heartbeat begins."""
        self._move(Input.ACCEPT)
        self._next_ping = now + self._timing.ping_s

    def failed(self, error: PhoneError, request_id: str | None = None) -> list[Action]:
        """The hello was wrong, a request could not be carried out, a frame is too large."""
        return [] if self.state is State.CLOSED else self._fail(error, request_id)

    def finished(self) -> None:
        """A request has been answered."""
        self._running -= 1

    def end(self) -> None:
        """The connection is over, for a reason of the caller's."""
        if self.state is not State.CLOSED:
            self._move(Input.END)

    def tick(self, now: float) -> list[Action]:
        """Time has passed."""
        if self.state is State.AWAIT_HELLO and now >= self._hello_by:
            return self._fail(HelloTimeout(), None)
        if self.state is not State.LIVE:
            return []
        if self._pong_by is not None and now >= self._pong_by:
            self._pong_by = None
            self._misses += 1
            if self._misses >= MAX_MISSES:
                self._move(Input.END)
                return [Close(Code.HEARTBEAT, "heartbeat lost")]
        if now < self._next_ping:
            return []
        self._next_ping = now + self._timing.ping_s
        self._pong_by = now + self._timing.pong_s
        return [Send("ping", frames.Ping())]

    # ── inside ──────────────────────────────────────────────────────────────

    def _heard(self) -> None:
        """Any frame counts as a pong (docs/protocol.md)."""
        self._pong_by = None
        self._misses = 0

    def _spend(self, now: float) -> list[Action]:
        """One frame's share of the rate; over it, the reader is slowed too."""
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * FRAMES_PER_S)
        self._filled_at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return []
        return [Rest(1.0 / FRAMES_PER_S)]

    def _fail(self, error: PhoneError, request_id: str | None) -> list[Action]:
        """Tell the error first; then close if it is fatal (before hello.ok all are)."""
        self.limited += type(error) is RateLimited
        fatal = error.fatal or self.state is not State.LIVE
        self._move(Input.FATAL if fatal else Input.ERROR)
        tell = Send("error", error_payload(error, request_id, fatal=fatal))
        if not fatal:
            return [tell]
        return [tell, Close(_CLOSE_OF.get(type(error), Code.FATAL), error.code)]

    def _move(self, what: Input) -> None:
        self.state = TABLE[self.state][what]


def _kind_of(frame: ClientFrame) -> Input:
    match frame.payload:
        case None:
            return Input.UNKNOWN
        case ClientHello():
            return Input.HELLO
        case frames.Ping():
            return Input.PING
        case frames.Pong():
            return Input.PONG
        case _:
            return Input.REQUEST


def _check_hello(hello: ClientHello) -> PhoneError | None:
    """What LMP §3 asks of a hello, before anything is looked up."""
    if hello.protocol_version != frames.PROTOCOL_VERSION:
        return UnsupportedVersion(speaks=[frames.PROTOCOL_VERSION])
    known = hello.device_id is not None or hello.credential is not None
    if hello.token is not None:
        return BadFrame("A token does not go with a device_id.") if known else None
    if hello.device_id is None or hello.credential is None:
        return BadFrame("A hello needs a token, or device_id and credential.")
    return None
