"""What one connection has yet to write: its place in the log and its own frames.

Both are merged by position, so that seq rises with every frame (docs/protocol.md). The
log's ring is the queue of events: memory does not grow with lag.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from loomid.lmp import envelope
from loomid.lmp.wsframe import header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomid.log import Entry, Log
    from loomid.vault import Device

BLOB_BYTES = 64 * 1024
READ_ENTRIES = 256
BLOCK = 64
"""Positions that one template spans, at most. Blocks begin at its multiples, so that phones
that come from different places soon need the same ones."""
MAX_FRAMES = 64
MAX_BYTES = 1024 * 1024
TEMPLATES_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class _Template:
    """WebSocket frames of some events, with two `%d` in each where a device's number goes."""

    text: bytes
    positions: list[int]

    def numbered(self, base: int) -> bytes:
        """The frames of the device with that base."""
        seqs = [position - base for position in self.positions]
        twice = seqs * 2
        twice[::2] = twice[1::2] = seqs
        return self.text % tuple(twice)


class Templates:
    """Blocks of events rendered once for all devices, but for their numbers.

    Phones mostly need the same ones; what is left to do for each is one `%`.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], _Template] = {}
        self._bytes = 0

    def of(self, entries: Sequence[Entry], digits: int) -> _Template:
        """A template of these entries, or the first of them, for numbers so long."""
        key = (entries[0].position, entries[-1].position, digits)
        template = self._kept.get(key)
        if template is None:
            template = _template(entries, digits)
            self._kept[key] = template
            self._bytes += len(template.text)
            while self._bytes > TEMPLATES_BYTES:
                oldest = self._kept.pop(next(iter(self._kept)))
                self._bytes -= len(oldest.text)
        return template


def _template(entries: Sequence[Entry], digits: int) -> _Template:
    number = b"7" * digits  # occurs nowhere else in the head of a frame
    head = envelope.render(int(number), b"")
    numbered = head.replace(number, b"%d")
    sizes = [len(head) + len(entry.parts) for entry in entries]
    count = 1 + bisect_left(list(accumulate(sizes)), BLOB_BYTES)
    entries, sizes = entries[:count], sizes[:count]
    pieces = [numbered] * (3 * len(sizes))
    pieces[::3] = map(_header, sizes)
    pieces[2::3] = [entry.parts.replace(b"%", b"%%") for entry in entries]
    return _Template(b"".join(pieces), [entry.position for entry in entries])


@lru_cache(4096)
def _header(size: int) -> bytes:
    """Its bytes, and those of a payload, may hold a `%` of their own."""
    return header(size).replace(b"%", b"%%")


def _position(entry: Entry) -> int:
    return entry.position


class Outbox:
    """A cursor into the log, and control frames that wait for their turn."""

    def __init__(
        self, log: Log, templates: Templates, device: Device, cursor: int, seq: int
    ) -> None:
        self._log = log
        self._templates = templates
        self._device_id = device.device_id
        self._base = device.base
        self._cursor = cursor
        self._seq = seq
        self._own: list[tuple[int, bytes]] = []
        self._own_bytes = 0

    @property
    def cursor(self) -> int:
        """Position up to which everything has been handed to the socket."""
        return self._cursor

    @property
    def full(self) -> bool:
        """Whether nothing more should be caused that would have to wait in here."""
        return len(self._own) >= MAX_FRAMES or self._own_bytes >= MAX_BYTES

    @property
    def waiting(self) -> bool:
        """Whether control frames wait."""
        return bool(self._own)

    def push(self, parts: bytes) -> None:
        """Number a control frame (`envelope.frame_parts`) and let it wait for its turn."""
        self.place(self._log.take_position(), parts)

    def place(self, position: int, parts: bytes) -> None:
        """As `push`, under a position taken before; positions rise from call to call."""
        self._own.append((position, parts))
        self._own_bytes += len(parts)

    def take(self) -> bytes:
        """All that can be written now, as WebSocket frames, or what fills one blob.

        It is to be written at once. Raises log.Gone when an event that was not sent has left
        the log's window.
        """
        before = self._cursor
        entries = self._log.read(self._cursor, READ_ENTRIES)
        out: list[bytes] = []
        if not entries:
            self._take_own(out, self._log.visible, BLOB_BYTES)
        elif self._own and self._own[0][0] < entries[-1].position:
            self._merge(out, entries)
        else:
            self._together(out, entries)
        if self._cursor > before:
            self._log.stamps.wrote(self._device_id, before, self._cursor)
        return b"".join(out)

    def _together(self, out: list[bytes], entries: Sequence[Entry]) -> None:
        """Events with nothing of our own between them, by templates."""
        at, room = 0, BLOB_BYTES
        while at < len(entries) and room > 0:
            first = entries[at].position
            digits = len(str(first - self._base))
            longer = self._base + 10**digits  # from here on numbers have more digits
            upto = bisect_left(entries, min(longer, (first | (BLOCK - 1)) + 1), at, key=_position)
            template = self._templates.of(entries[at:upto], digits)
            self._advance(first)
            out.append(template.numbered(self._base))
            self._advance(template.positions[-1], more=True)
            at += len(template.positions)
            room -= len(template.text)

    def _merge(self, out: list[bytes], entries: Sequence[Entry]) -> None:
        """Events and frames of our own, one by one."""
        room = BLOB_BYTES
        for entry in entries:
            room -= self._take_own(out, entry.position, room)
            if room <= 0:
                return
            room -= self._render(out, entry.position, entry.parts)

    def _take_own(self, out: list[bytes], upto: int, room: int) -> int:
        """Render own frames numbered up to a position."""
        used = 0
        own = self._own
        while own and used < room and own[0][0] <= upto:
            position, parts = own.pop(0)
            self._own_bytes -= len(parts)
            used += self._render(out, position, parts)
        return used

    def _render(self, out: list[bytes], position: int, parts: bytes) -> int:
        self._advance(position)
        frame = envelope.render(self._seq, parts)
        out.append(header(len(frame)))
        out.append(frame)
        return len(frame)

    def _advance(self, position: int, *, more: bool = False) -> None:
        seq = position - self._base
        if seq < self._seq or (seq == self._seq and not more):
            raise AssertionError("seq must rise")
        self._seq = seq
        self._cursor = position
