"""Messages of phones on their way into a turn: whence a run came (docs/protocol.md)."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from loomid.lmp.file_frames import MAX_ATTACHMENTS, AttachmentRef
from loomid.lmp.frames import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loomid import wire

KEEP_S = 3_600.0
KEEP_COMMAND_S = 600.0
PER_KEY = 64  # twice what may wait at the host (hermes_shim/waiting.py)
MAX_MESSAGES = 4_096
MATCH_CHARS = 500  # turns give the first PREVIEW_CHARS of a text that may have a prefix


@dataclass(slots=True)
class Message:
    """One text that the shim handed to Hermes."""

    message_id: str
    session_key: str
    text: str
    mode: str
    busy: bool
    origin: Origin
    expires_at: float
    handled: bool = False
    """Hermes has taken it up as a message of its own (processing.started)."""

    @property
    def owner(self) -> str:
        """Its name for retention and alarms."""
        return f"~msg:{self.message_id}"

    def fits(self, text: str) -> bool:
        """Whether it may be what a new turn of that text answers.

        Hermes takes up each that waits for a turn of its own; what was folded into one it may
        say again, in a turn whose text may have the words of others in it.
        """
        if self.origin.attachments:
            # What it writes of files before the text may be longer than what we are told.
            return self.handled
        said, own = self.text.strip(), self.handled or self.mode != "queue"
        return said == text.strip() or (own and said[:MATCH_CHARS] in text)


def origin_of(fact: wire.Injected) -> Origin:
    """The device and request that a message came from, where known."""
    return Origin(
        device_id=fact.device_id or UNSET,
        request_id=fact.request_id or UNSET,
        attachments=refs(fact.attachments) or UNSET,
    )


def refs(echoed: list[dict[str, Any]] | None) -> list[AttachmentRef]:
    """The files of a message, as we had told its host of them; what is odd is left out."""
    found = []
    for one in (echoed or ())[:MAX_ATTACHMENTS]:
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(one, AttachmentRef))
    return found


def _kept_for(mode: str) -> float:
    return KEEP_COMMAND_S if mode == "command" else KEEP_S


class Inbox:
    """Injected messages that have not become a turn (or part of one) yet."""

    def __init__(self) -> None:
        self._by_id: dict[str, Message] = {}
        self._by_key: dict[str, OrderedDict[str, Message]] = {}

    def put(self, fact: wire.Injected, at: float) -> tuple[Message | None, Message | None]:
        """Note a message; returns it (None: seen before) and the one it pushed out."""
        if fact.message_id in self._by_id:
            return None, None
        message = Message(
            fact.message_id,
            fact.session_key,
            fact.text,
            fact.mode,
            fact.busy,
            origin_of(fact),
            at + _kept_for(fact.mode),
        )
        queue = self._by_key.setdefault(fact.session_key, OrderedDict())
        full = queue if len(queue) >= PER_KEY else self._by_id
        crowded = full is queue or len(full) >= MAX_MESSAGES
        oldest = self.pop(next(iter(full))) if crowded else None
        self._by_id[message.message_id] = message
        self._by_key.setdefault(fact.session_key, OrderedDict())[message.message_id] = message
        return message, oldest

    def renew(self, at: float) -> Iterable[Message]:
        """Keep all of them as if they had come only now; returns them."""
        for message in self._by_id.values():
            message.expires_at = at + _kept_for(message.mode)
        return self._by_id.values()

    def get(self, message_id: str | None) -> Message | None:
        """The message of that id, if it still waits (or was a command)."""
        return self._by_id.get(message_id) if message_id is not None else None

    def pop(self, message_id: str) -> Message | None:
        """Forget a message."""
        message = self._by_id.pop(message_id, None)
        if message is not None:
            queue = self._by_key[message.session_key]
            del queue[message_id]
            if not queue:
                del self._by_key[message.session_key]
        return message

    def for_turn(self, session_key: str, text: str) -> Message | None:
        """Take the message that a new turn answers: one whose text is in the turn's.

        A message that was folded into another turn may still lie here, so the likeliest:
        the turn's very text, then one that Hermes has taken up, then the first.
        """
        fits = [
            message
            for message in self._waiting(session_key)
            if message.mode != "command" and message.fits(text)
        ]
        best = max(fits, key=lambda m: (m.text.strip() == text.strip(), m.handled), default=None)
        return None if best is None else self.pop(best.message_id)

    def for_redirect(self, session_key: str) -> Message | None:
        """Take the message that redirected the running turn (0.20, 0.22)."""
        fits = (m for m in self._waiting(session_key) if m.mode == "interrupt" and m.busy)
        found = next((m for m in fits if not m.origin.attachments), None)  # files wait
        return None if found is None else self.pop(found.message_id)

    def _waiting(self, session_key: str) -> list[Message]:
        """The messages of a session, the oldest first."""
        return [*self._by_key.get(session_key, {}).values()]
