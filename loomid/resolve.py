"""Answers to approvals: claimed on disk first; then the command shows what stands.

Who may answer is decided in `lmp/approvals.py`.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from loomid import orders
from loomid.errors import (
    AlreadyResolved,
    GatewayOffline,
    OutcomeUnknown,
    StorageFailing,
    UnknownApproval,
)
from loomid.gateway import CommandFailed
from loomid.lmp import approvals, frames, requests
from loomid.lmp.approvals import Claim
from loomid.orders import Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loomid.gateway import Gateways
    from loomid.lmp.requests import Result
    from loomid.lmp.runs import ApprovalView, Runs
    from loomid.vault import Vault

log = logging.getLogger("loomid.commands")

MEMORY_S = 24 * 3600.0
"""A claim on an approval that is over still tells late phones what was chosen."""


class Resolver:
    """Every standing claim, and the commands on their way for them."""

    def __init__(
        self,
        vault: Vault,
        gateways: Gateways,
        runs: Mapping[str, Runs],
        clock: Callable[[], float],
        *,
        group: asyncio.TaskGroup,
    ) -> None:
        self._vault = vault
        self._gateways = gateways
        self._runs = runs
        self._clock = clock
        self._group = group
        self._claims = approvals.Claims()
        # From looking to having stored: two phones may answer in the same millisecond.
        self._claiming = asyncio.Lock()
        self.settling: set[str] = set()
        """Approvals whose command is on its way, or may have been."""

    async def load(self) -> None:
        """Read the claims that a former process left. A claim whose request is done stands."""
        self._claims = approvals.Claims(await self._vault.claims())

    def resume(self, device_id: str, request_id: str) -> bool:
        """Find out what became of the command of an open request; False: it made no claim."""
        claim = self._claims.of_request(device_id, request_id)
        if claim is not None:
            self._start(claim, self._recall(claim))
        return claim is not None

    async def order(self, answer: frames.ApprovalResolve, token: str) -> Order:
        """The command for an answer that may be given now. Raises the error it deserves."""
        gateway_id, view = self._find(answer.approval_id)
        try:
            view = self._claims.check(view, answer.approval_id, answer.choice)
        except (UnknownApproval, AlreadyResolved) as error:
            if "choice" not in error.params:
                choice = await self._vault.decision(answer.approval_id)
                if choice is not None:
                    raise AlreadyResolved(choice=choice) from None
            raise
        if self._gateways.boot_of(gateway_id) != view.boot:
            raise GatewayOffline
        args: dict[str, Any] = {"approval_id": view.shim_id, "choice": answer.choice}
        if answer.reason is not None:
            args["reason"] = answer.reason
        command_id = requests.command_id(token, gateway_id, view.boot)
        return Order(gateway_id, view.boot, "approve", args, command_id)

    async def claim(
        self, who: tuple[str, str], answer: frames.ApprovalResolve, order: Order
    ) -> Claim:
        """Let this answer win, on disk. Raises the error it deserves when another did."""
        made = Claim(answer.approval_id, *who, answer.choice, order.command_id, self._clock())
        async with self._claiming:
            self._claims.check(self._find(answer.approval_id)[1], answer.approval_id, answer.choice)
            standing = await self._vault.claim(made)
            if standing is not None:
                raise AlreadyResolved(choice=standing.choice)
            self._claims.add(made)
        log.info("device %s answered an approval: %s", made.device_id, made.choice)
        return made

    def deliver(self, claim: Claim, order: Order) -> None:
        """Send the command of a claim, whatever becomes of the phone."""
        self._start(claim, self._command(claim, order))

    def accepted(self, device_id: str, request_id: str) -> Result | None:
        """The answer of a request that made a claim, or None when it made none."""
        claim = self._claims.of_request(device_id, request_id)
        return None if claim is None else accepted(claim)

    def _start(self, claim: Claim, stands: Awaitable[bool]) -> None:
        self.settling.add(claim.approval_id)
        self._group.create_task(self._settle(claim, stands))

    async def _settle(self, claim: Claim, stands: Awaitable[bool]) -> None:
        """Give the claim back or close its request, which is open until this is known."""
        try:
            if await stands:
                answer = requests.dump(accepted(claim))
                who = claim.device_id, claim.request_id
                await orders.until_stored(partial(self._vault.finish, *who, answer))
            else:
                await orders.until_stored(partial(self._give_back, claim))
            await self._tidy()
        except StorageFailing:
            pass  # what is outdated goes after the next answer
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the daemon
            orders.report("the answer to an approval", error)
        finally:
            self.settling.discard(claim.approval_id)

    async def _command(self, claim: Claim, order: Order) -> bool:
        """Whether the claim stands after its command was sent."""
        try:
            await orders.send(self._gateways, order)
        except GatewayOffline:
            return False
        except CommandFailed as failed:
            return not approvals.gives_back(failed.code)
        except OutcomeUnknown:
            return await self._recall(claim)
        return True

    async def _recall(self, claim: Claim) -> bool:
        """Whether the claim stands, by what its gateway says when it can be asked again."""
        gateway_id, boot = requests.about(claim.command_id)
        try:
            await orders.recall(
                self._gateways,
                gateway_id,
                boot,
                claim.command_id,
                give_up=lambda: self._over(claim.approval_id),
            )
        except GatewayOffline:
            return False
        except CommandFailed as failed:
            return not approvals.gives_back(failed.code)
        except OutcomeUnknown:  # that process is gone, and the approval with it
            return True
        return True

    async def _give_back(self, claim: Claim) -> None:
        """The command did not run: the approval waits again, for every phone."""
        log.info("the answer of device %s did not reach Hermes", claim.device_id)
        await self._vault.release_claim(claim.approval_id, claim.command_id)
        self._claims.drop(claim)

    async def _tidy(self) -> None:
        for claim in self._claims.outdated(self._clock() - MEMORY_S, self._pending):
            await self._vault.release_claim(claim.approval_id, claim.command_id)
            self._claims.drop(claim)

    def _pending(self, approval_id: str) -> bool:
        view = self._find(approval_id)[1]
        return view is not None and view.pending

    def _over(self, approval_id: str) -> bool:
        """Not the opposite of pending: what is unknown here may still wait."""
        view = self._find(approval_id)[1]
        return view is not None and not view.pending

    def _find(self, approval_id: str) -> tuple[str, ApprovalView | None]:
        for gateway_id, runs in self._runs.items():
            view = runs.approval(approval_id)
            if view is not None:
                return gateway_id, view
        return "", None


def accepted(claim: Claim) -> Result:
    """What the phone hears when its answer won."""
    payload = frames.ApprovalResolveResult(
        request_id=claim.request_id,
        approval_id=claim.approval_id,
        choice=claim.choice,
        state="accepted",
    )
    return "approval.resolve.result", payload
