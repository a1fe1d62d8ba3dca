"""What the owner may do with approvals and questions at the machine's own terminal (`loomictl`),
with gateways that are no more, and the audit.

An answer from there takes the way of a phone's: the same claim, the same truth.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from loomid.lmp import envelope, frames
from loomid.lmp.decisions import OWNER
from loomid.vault import Device

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loomid.audit import Audit
    from loomid.hub import Execute
    from loomid.ledger import Ledger
    from loomid.lmp.decisions import Entry
    from loomid.lmp.projection import Placed

ENDED_SHOWN = 20
SETTLED_S = 5.0
"""How long an accepted answer is followed: Hermes mostly confirms at once."""
_LOOK_S = 0.05
_DEVICE = Device(OWNER, OWNER, b"", 0, 0.0)


class Owner:
    """Answers the admin socket. `waiting`: what phones are asked at the moment, by id;
    `forget` has a gateway forgotten (see farewell)."""

    def __init__(
        self,
        ledger: Ledger,
        audit: Audit,
        execute: Execute,
        waiting: Callable[[], Mapping[str, Placed]],
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self.audit = audit
        self._execute = execute
        self._waiting = waiting
        self.forget = forget

    async def approvals(self) -> list[dict[str, Any]]:
        """Those that wait, oldest first, then the last that ended, newest first."""
        return [_approval(entry) for entry in await self._ledger.latest(ENDED_SHOWN)]

    async def questions(self) -> list[dict[str, Any]]:
        """The same of questions; of those that wait, all that is asked."""
        found = await self._ledger.latest(ENDED_SHOWN, "question")
        return [self._question(entry) for entry in found]

    async def approve(self, approval_id: str, choice: str) -> dict[str, Any]:
        """Answer one: its entry once Hermes has told the end, or after SETTLED_S.

        Raises the PhoneError that a phone would get.
        """
        request_id = secrets.token_hex(8)
        payload = frames.ApprovalResolve(
            approval_id=approval_id, choice=choice, request_id=request_id
        )
        return _approval(await self._decide(approval_id, request_id, payload))

    async def answer(self, question_id: str, answers: object) -> dict[str, Any]:
        """The same for a question; None cancels it. Raises ValueError for no list of answers."""
        request_id = secrets.token_hex(8)
        payload: frames.Payload = frames.QuestionCancel(
            question_id=question_id, request_id=request_id
        )
        if answers is not None:
            payload = frames.QuestionAnswer(
                question_id=question_id,
                answers=msgspec.convert(answers, list[frames.Answer]),
                request_id=request_id,
            )
        return self._question(await self._decide(question_id, request_id, payload))

    async def _decide(self, name: str, request_id: str, payload: frames.Payload) -> Entry:
        type_ = next(known for known, cls in frames.REQUESTS.items() if cls is type(payload))
        body = envelope.encode_payload(payload)
        await self._execute(_DEVICE, envelope.ClientFrame(type_, payload, request_id, body))
        return await self._settled(name)

    async def _settled(self, name: str) -> Entry:
        end = asyncio.get_running_loop().time() + SETTLED_S
        while True:
            entry = await self._ledger.get(name)
            if entry is None:
                raise AssertionError("what was just answered is kept")
            if entry.state != "claimed" or asyncio.get_running_loop().time() > end:
                return entry
            await asyncio.sleep(_LOOK_S)

    def _question(self, entry: Entry) -> dict[str, Any]:
        told = _told(entry)
        told |= {"question_id": told.pop("id"), "question": told.pop("preview")}
        told["answer"] = None if entry.answer is None else msgspec.json.decode(entry.answer)
        placed = self._waiting().get(entry.id)
        if placed is not None and isinstance(placed.event.payload, frames.QuestionRequired):
            told["questions"] = msgspec.to_builtins(placed.event.payload.questions)
        return told


def _approval(entry: Entry) -> dict[str, Any]:
    told = _told(entry)
    return told | {"approval_id": told.pop("id"), "command": told.pop("preview")}


def _told(entry: Entry) -> dict[str, Any]:
    told = asdict(entry) | {"by": entry.by}
    del told["kind"]
    return told
