"""What the owner may do with approvals at the machine's own terminal (`loomictl`), and the audit.

An answer from there takes the way of a phone's: the same claim, the same truth.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from loomid.lmp import envelope, frames
from loomid.lmp.approvals import OWNER
from loomid.vault import Device

if TYPE_CHECKING:
    from loomid.audit import Audit
    from loomid.hub import Execute
    from loomid.ledger import Ledger
    from loomid.lmp.approvals import Entry

ENDED_SHOWN = 20
SETTLED_S = 5.0
"""How long an accepted answer is followed: Hermes mostly confirms at once."""
_LOOK_S = 0.05
_DEVICE = Device(OWNER, OWNER, b"", 0, 0.0)


class Owner:
    """Answers the admin socket."""

    def __init__(self, ledger: Ledger, audit: Audit, execute: Execute) -> None:
        self._ledger = ledger
        self.audit = audit
        self._execute = execute

    async def approvals(self) -> list[dict[str, Any]]:
        """Those that wait, oldest first, then the last that ended, newest first."""
        return [_shown(entry) for entry in await self._ledger.latest(ENDED_SHOWN)]

    async def approve(self, approval_id: str, choice: str) -> dict[str, Any]:
        """Answer one: its entry once Hermes has told the end, or after SETTLED_S.

        Raises the PhoneError that a phone would get.
        """
        request_id = secrets.token_hex(8)
        payload = frames.ApprovalResolve(
            approval_id=approval_id, choice=choice, request_id=request_id
        )
        body = envelope.encode_payload(payload)
        frame = envelope.ClientFrame("approval.resolve", payload, request_id, body)
        await self._execute(_DEVICE, frame)
        return _shown(await self._settled(approval_id))

    async def _settled(self, approval_id: str) -> Entry:
        end = asyncio.get_running_loop().time() + SETTLED_S
        while True:
            entry = await self._ledger.get(approval_id)
            if entry is None:
                raise AssertionError("an approval that was just answered is kept")
            if entry.state != "claimed" or asyncio.get_running_loop().time() > end:
                return entry
            await asyncio.sleep(_LOOK_S)


def _shown(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {"by": entry.by}
