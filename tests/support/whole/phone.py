"""A phone in a simulation: keeps to docs/protocol.md, and checks each frame it gets."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from struct import unpack_from
from typing import TYPE_CHECKING, Any

import msgspec

from loomid.errors import PhoneError
from loomid.lmp import envelope
from loomid.lmp.frames import EVENTS, LASTING
from loomid.writer import SocketClosed
from tests.support.view import View

if TYPE_CHECKING:
    from loomid.lmp.envelope import Frame
    from tests.support.whole.truth import Truth

ROOM = 64 * 1024
WINDOW = 48
LASTING_MOST = 200
NOTHING_RAN = frozenset(
    code for code, error in PhoneError.codes.items() if error.proves_nothing_ran
)
"""Codes of errors after which another answer may follow."""


class Pipe:
    """One connection: loomid's socket on one side, what the phone has not read on the other."""

    def __init__(self) -> None:
        self.closed: int | None = None
        """How loomid ended it."""
        self.gone = False
        """The phone, or loomid, is not there any more."""
        self._sent: deque[str] = deque()
        self._unread = bytearray()
        self._changed = asyncio.Event()
        self._given_up = False

    # ── loomid's side (writer.Socket) ──

    async def receive(self) -> str | bytes:
        while not self._sent:
            if self.gone:
                raise SocketClosed(1006, "connection lost")
            self._changed.clear()
            await self._changed.wait()
        return self._sent.popleft()

    def write(self, blob: bytes) -> bool:
        if not self.gone:
            self._unread += blob
        return self.unsent <= ROOM

    async def drained(self) -> None:
        assert not self._given_up, "as with aiohttp, a wait that was broken off is the last"
        try:
            while self.unsent > ROOM and not self.gone:
                self._changed.clear()
                await self._changed.wait()
        except asyncio.CancelledError:
            self._given_up = True
            raise

    @property
    def unsent(self) -> int:
        return len(self._unread)

    def goodbye(self, code: int, _: str) -> None:
        if self.closed is None:
            self.closed = code

    def drop(self) -> None:
        self.leave()

    # ── the phone's side ──

    def send(self, type_: str, **payload: Any) -> None:
        self._sent.append(json.dumps({"v": 1, "type": type_, "payload": payload}))
        self._changed.set()

    def read(self) -> bytes | None:
        """The next frame, if it is there as a whole."""
        data = self._unread
        if len(data) < 2:
            return None
        size, at = data[1], 2
        if size == 126:
            (size,), at = unpack_from("!H", data, 2), 4
        elif size == 127:
            (size,), at = unpack_from("!Q", data, 2), 10
        frame = bytes(data[at : at + size])
        del data[: at + size]
        self._changed.set()
        return frame

    def leave(self) -> None:
        """Vanish."""
        self.gone = True
        self._changed.set()


@dataclass
class Asked:
    """A request and what became of it."""

    type: str
    payload: dict[str, Any]
    answers: list[dict[str, Any]] = field(default_factory=list)
    times: int = 0
    """How often it was asked, whether or not loomid got to see it."""
    void: bool = False
    """loomid was given a database that may not know it."""


@dataclass
class Saw:
    """One frame as the phone keeps it."""

    seq: int
    event: bool
    type: str
    body: bytes
    payload: dict[str, Any]


@dataclass
class Phone:
    """One device over all its connections."""

    snapshot: bool
    device_id: str = ""
    credential: str = ""
    last_seq: int | None = None
    epoch: int = -1
    """Which history of the database that belongs to."""
    _world_epoch: int = -1
    told: list[Saw] = field(default_factory=list)
    """What it has stored since it last began anew, a snapshot included."""
    view: View = field(default_factory=View)
    frames: dict[int, bytes] = field(default_factory=dict)
    """All that ever came, by seq."""
    asked: dict[str, Asked] = field(default_factory=dict)
    pipe: Pipe | None = None
    truth: Truth | None = None
    base: int = 0
    position: int = 0
    """Up to here it has been told everything."""
    begun: int = 0
    """From here on it has been told everything."""
    greeted: bool = False
    whole: bool = False
    """Its view is complete."""
    solid: int = 0
    """So many of `told` came before its snapshot was done."""
    attentive: bool = True
    """It reads what comes."""
    away: bool = False
    """It does not come back by itself."""
    fresh: bool = False
    """Just paired, its snapshot comes next."""
    lied: bool = False
    """What it says as last_seq is not what it has."""
    told_snapshot: list[bytes] | None = None
    said: int | None = None
    """As last_seq, when it came last."""
    looks_back: list[bytes] | None = None
    """What the snapshot that is being told must have of the past, where that is known."""

    @property
    def returns(self) -> bool:
        return bool(self.credential) and not self.away

    def connect(self, pipe: Pipe, token: str | None, last_seq: int | None) -> None:
        """Say hello."""
        self.pipe, self.greeted, self.told_snapshot, self.away = pipe, False, None, False
        self.fresh = False
        self.said = self.last_seq = last_seq
        hello: dict[str, Any] = {"protocol_version": 1}
        if self.snapshot:
            hello["capabilities"] = ["snapshot"]
        if token is not None:
            hello["token"] = token
        else:
            hello |= {"device_id": self.device_id, "credential": self.credential}
        if last_seq is not None:
            hello["last_seq"] = last_seq
        pipe.send("hello", **hello)

    def forget(self, upto: int) -> None:
        """What it stored last is lost: it has only the first so many frames."""
        if self.solid < upto < len(self.told) and self.told_snapshot is None:
            self.told = self.told[:upto]
            self.last_seq = self.told[-1].seq
            self.view = View()
            for saw in self.told:
                self.view.apply(saw.type, saw.payload)

    # ── requests ──

    def ask(self, type_: str, **payload: Any) -> None:
        """Ask, or ask again if the request_id was used."""
        asked = self.asked.setdefault(payload["request_id"], Asked(type_, payload))
        asked.times += 1
        if self.pipe is not None:
            self.pipe.send(asked.type, **asked.payload)

    # ── what comes ──

    def read(self, most: int, world: Any) -> None:
        """Take so many frames at most."""
        while most > 0 and self.pipe is not None:
            data = self.pipe.read()
            if data is None:
                if self.pipe.closed is not None or self.pipe.gone:
                    self.pipe.leave()
                    self.pipe = None
                return
            most -= 1
            self._take(data, world)

    def _take(self, data: bytes, world: Any) -> None:
        frame, _ = envelope.decode_server(data)
        payload = msgspec.json.decode(frame.payload)
        assert frame.event_id == f"e_{frame.seq}"
        if frame.type == "hello.ok":
            self._greeted(frame, payload, world)
            return
        if not self.greeted:
            # The database may be from before it was paired; nothing else is wrong with it.
            assert (frame.type, frame.seq, payload["code"]) == ("error", 0, "unauthorized")
            assert not world.knows(self.device_id)
            self.credential = ""
            return
        position = self.base + frame.seq
        assert position > self.position, "seq must rise"
        assert self.frames.setdefault(frame.seq, data) == data, "two contents for one seq"
        self._check_place(frame, position)
        self.position = position
        self._store(frame, payload)
        if frame.type == "ping" and self.pipe is not None:
            self.pipe.send("pong")
        if "request_id" in payload and frame.type not in EVENTS:
            self._answered(payload, world)

    def _check_place(self, frame: Frame, position: int) -> None:
        """Between two frames no event is missing, and an event is the one of the log."""
        assert self.truth is not None
        if self.fresh:  # what was said since it was paired is in its snapshot
            self.fresh, self.begun = False, position - 1
            return
        missed = self.truth.between(self.position, position)
        if frame.type in EVENTS and not frame.replay:
            assert [one.position for one in missed] == [position], "an event is missing"
            assert (missed[0].type, missed[0].body) == (frame.type, bytes(frame.payload))
        else:
            assert not missed, "an event is missing before a frame of its own"

    def _store(self, frame: Frame, payload: dict[str, Any]) -> None:
        if frame.type in EVENTS:
            event = not frame.replay
            self.told.append(Saw(frame.seq, event, frame.type, bytes(frame.payload), payload))
            self.view.apply(frame.type, payload)
        if self.told_snapshot is not None:
            if frame.type in LASTING:
                self.told_snapshot.append(bytes(frame.payload))
            if frame.type == "snapshot.done":
                self._snapshot_done()
        if self.told_snapshot is None:
            self._keep(frame.seq)

    def _greeted(self, frame: Frame, payload: dict[str, Any], world: Any) -> None:
        assert not self.greeted
        assert payload["last_seq"] == frame.seq
        self.greeted = True
        new = "credential" in payload
        if new:
            self.device_id, self.credential = payload["device_id"], payload["credential"]
        self.base, self.truth = world.base_of(self.device_id), world.truth
        self.position, self._world_epoch = self.base + frame.seq, world.epoch
        truncated = payload["truncated"]
        if new:
            assert not truncated
            self._begin_anew()
        elif truncated:
            self._check_truncated(world)
            self._begin_anew()
        else:
            self._check_resumed(world)
        if self.snapshot and (new or truncated):
            self.told_snapshot = []
            self.looks_back = None if new else self._looks_back()
            self.fresh = new
        else:
            self._keep(frame.seq)

    def _keep(self, seq: int) -> None:
        """From here on it can go on: only now it forgets what it said before."""
        self.last_seq, self.epoch, self.lied = seq, self._world_epoch, False

    def _begin_anew(self) -> None:
        self.begun = self.position
        self.whole = self.snapshot or not self._alive()
        self.told, self.solid, self.view = [], 0, View()

    def _alive(self) -> bool:
        assert self.truth is not None
        alive = self.truth.view
        return bool(alive.runs or alive.gateways)

    def _check_truncated(self, world: Any) -> None:
        """Only when it must be."""
        assert self.truth is not None
        if self.said is None or self.lied or self.epoch != world.epoch:
            return
        missed = self.truth.between(self.base + self.said, self.truth.last)
        assert len(missed) >= WINDOW, "truncated although it could have gone on"

    def _check_resumed(self, world: Any) -> None:
        """It goes on where it was, in the same history."""
        assert self.truth is not None
        assert self.said is not None
        assert self.position == self.base + self.said
        if self.lied:
            self._begin_anew()
            self.whole = False
            return
        told = [(saw.seq + self.base, saw.body) for saw in self.told if saw.event]
        true = [(one.position, one.body) for one in self.truth.between(self.begun, self.position)]
        assert told == true, "what it was told is not what the log has"

    def _looks_back(self) -> list[bytes] | None:
        """What a snapshot must tell of the time it missed."""
        assert self.truth is not None
        if self.said is not None and self.base + self.said > self.position:
            return None
        after = 0 if self.said is None else self.base + self.said
        return self.truth.lasting(after, self.position)[-LASTING_MOST:]

    def _snapshot_done(self) -> None:
        if self.looks_back is not None:
            assert self.told_snapshot == self.looks_back, "not what it missed"
        self.told_snapshot, self.solid = None, len(self.told)

    def _answered(self, payload: dict[str, Any], world: Any) -> None:
        asked = self.asked[payload["request_id"]]
        given_back = (self.device_id, payload["request_id"]) in world.given_back
        kept = [one for one in asked.answers if one.get("code") not in NOTHING_RAN]
        if given_back:
            kept = [one for one in kept if one.get("state") != "accepted"]
        if kept and payload.get("code") not in NOTHING_RAN and not asked.void:
            assert kept[-1] == payload, "another answer to the same request"
        asked.answers.append(payload)

    # ── at rest ──

    def check_view(self, world: Any) -> None:
        """Told all there is, it shows what a phone shows that never left."""
        if self.pipe is None or not self.greeted or self.told_snapshot is not None:
            return
        truth = self.truth
        if truth is not world.truth or truth is None or truth.last > self.position:
            return
        assert self.view.approvals == truth.view.approvals
        if self.whole:
            assert self.view.runs == truth.view.runs
            assert self.view.gateways == truth.view.gateways
