"""What one connection has yet to write: its place in the log and its own frames.

Both are merged by position, so that seq rises with every frame (LMP design §1). The
log's ring is the queue of events: memory does not grow with lag.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from loomid.lmp import frames
from loomid.lmp.wsframe import header

if TYPE_CHECKING:
    from loomid.log import Log

BLOB_BYTES = 64 * 1024
READ_ENTRIES = 512
MAX_FRAMES = 64
MAX_BYTES = 1024 * 1024


class Outbox:
    """A cursor into the log, and control frames that wait for their turn."""

    def __init__(self, log: Log, base: int, cursor: int, seq: int) -> None:
        self._log = log
        self._base = base
        self._cursor = cursor
        self._seq = seq
        self._own: deque[tuple[int, bytes]] = deque()
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
        """Number a control frame (`frames.frame_parts`) and let it wait for its turn."""
        self.place(self._log.take_position(), parts)

    def place(self, position: int, parts: bytes) -> None:
        """As `push`, under a position taken before; positions rise from call to call."""
        self._own.append((position, parts))
        self._own_bytes += len(parts)

    def take(self) -> bytes:
        """All that can be written now, as WebSocket frames, or what fills one blob.

        Raises log.Gone when an event that was not sent has left the log's window.
        """
        out: list[bytes] = []
        room = BLOB_BYTES
        entries = self._log.read(self._cursor, READ_ENTRIES)
        for entry in entries:
            room -= self._take_own(out, entry.position, room)
            if room <= 0:
                return b"".join(out)
            room -= self._render(out, entry.position, entry.parts)
        if len(entries) < READ_ENTRIES:
            self._take_own(out, self._log.visible, room)
        return b"".join(out)

    def _take_own(self, out: list[bytes], limit: int, room: int) -> int:
        """Render own frames numbered up to `limit`."""
        used = 0
        own = self._own
        while own and used < room:
            position, parts = own[0]
            if position > limit:
                break
            own.popleft()
            self._own_bytes -= len(parts)
            used += self._render(out, position, parts)
        return used

    def _render(self, out: list[bytes], position: int, parts: bytes) -> int:
        seq = position - self._base
        if seq <= self._seq:
            raise AssertionError("seq must rise")
        frame = frames.render(seq, parts)
        out.append(header(len(frame)))
        out.append(frame)
        self._seq = seq
        self._cursor = position
        return len(frame)
