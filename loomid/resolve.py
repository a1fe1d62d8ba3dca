"""Answers to approvals and questions: claimed on disk first; then the command shows what stands.

What is an answer is decided in `lmp/approvals.py` and `lmp/questions.py`, who is the first in
`lmp/decisions.py`, and the ledger knows what became of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, get_args

from loomid import orders
from loomid.errors import GatewayOffline, OutcomeUnknown, TooLarge
from loomid.gateway import CommandFailed
from loomid.lmp import approvals, decisions, frames, questions, requests
from loomid.lmp.decisions import OWNER, Claim
from loomid.orders import Order

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from loomid.gateway import Gateways
    from loomid.ledger import Ledger
    from loomid.lmp.decisions import Kind
    from loomid.lmp.requests import Reply
    from loomid.lmp.runs import AskView, Runs
    from loomid.vault import Vault

    Remind = Callable[[str, frames.Returned], Awaitable[None]]

log = logging.getLogger("loomid.commands")

Deciding = frames.ApprovalResolve | frames.QuestionAnswer | frames.QuestionCancel
DECIDING: frozenset[type[frames.Payload]] = frozenset(get_args(Deciding))
"""Requests that answer what Hermes asks: the first valid one wins."""


@dataclass(frozen=True, slots=True)
class Decision(Order):
    """The command of an answer, and what is claimed with it."""

    about: str
    """The approval's or question's id."""
    kind: Kind
    answer: str


class Resolver:
    """The answers whose command is on its way; `remind` tells phones of what waits again."""

    def __init__(
        self,
        vault: Vault,
        ledger: Ledger,
        gateways: Gateways,
        runs: Mapping[str, Runs],
        clock: Callable[[], float],
        *,
        limits: frames.Limits,
        remind: Remind,
        group: asyncio.TaskGroup,
    ) -> None:
        self._vault = vault
        self._ledger = ledger
        self._gateways = gateways
        self._runs = runs
        self._clock = clock
        self._most_chars = limits.max_text_chars
        self._remind = remind
        self._group = group

    async def resume(self, device_id: str, request_id: str) -> bool:
        """Find out what became of the command of an open request; False: it made no claim."""
        claim = await self._claim_of(device_id, request_id)
        if claim is not None:
            self._start(claim, self._recall(claim))
        return claim is not None

    async def order(self, device_id: str, said: Deciding, token: str) -> Decision:
        """The command for an answer that may be given now. Raises the error it deserves."""
        if _chars(said) > self._most_chars:
            raise TooLarge(max_text_chars=self._most_chars)
        kind: Kind
        if isinstance(said, frames.ApprovalResolve):
            name, kind, make = said.approval_id, "approval", partial(approvals.order, answer=said)
        else:
            name, kind, make = said.question_id, "question", partial(questions.order, said=said)
        gateway_id, view = self._find(name)
        view = decisions.check(await self._ledger.get(name), view, kind)
        op, args, answer = make(view)
        if self._gateways.boot_of(gateway_id) != view.boot:
            raise GatewayOffline
        owner = [OWNER] if device_id == OWNER else []
        command_id = requests.command_id(token, gateway_id, view.boot, *owner)
        return Decision(gateway_id, view.boot, op, args, command_id, name, kind, answer)

    async def claim(self, who: tuple[str, str], order: Decision) -> Claim:
        """Let this answer win, on disk. Raises AlreadyResolved when another did."""
        at = self._clock()
        made = Claim(order.about, *who, order.answer, order.command_id, at, order.kind)
        await self._ledger.claim(made)
        log.info("device %s answered %s: %s", made.device_id, made.id, made.word)
        return made

    def deliver(self, claim: Claim, order: Order) -> None:
        """Send the command of a claim, whatever becomes of the phone."""
        self._start(claim, self._command(claim, order))

    async def accepted(self, device_id: str, request_id: str) -> Reply | None:
        """The answer of a request that made a claim, or None when it made none."""
        claim = await self._claim_of(device_id, request_id)
        return None if claim is None else accepted(claim)

    async def _claim_of(self, device_id: str, request_id: str) -> Claim | None:
        entry = await self._ledger.of_request(device_id, request_id)
        return None if entry is None else entry.claim

    def _start(self, claim: Claim, returned: Awaitable[str | None]) -> None:
        self._group.create_task(self._settle(claim, returned))

    async def _settle(self, claim: Claim, returned: Awaitable[str | None]) -> None:
        """Give the claim back or close its request, which is open until this is known."""
        try:
            reason = await returned
            if reason is not None and await self._give_back(claim, reason):
                return
            # Also when it did not run, but is over: what the phone was told stays its answer.
            answer = requests.dump(accepted(claim))
            who = claim.device_id, claim.request_id
            await orders.until_stored(partial(self._vault.finish, *who, answer))
        except Exception as error:  # noqa: BLE001 - a bug in one answer must not end the daemon
            orders.report("an answer", error)

    async def _command(self, claim: Claim, order: Order) -> str | None:
        """Why the claim is given back after its command was sent; None: it stands."""
        try:
            await orders.send(self._gateways, order)
        except GatewayOffline as error:
            return error.code
        except CommandFailed as failed:
            return _given_back(failed)
        except OutcomeUnknown:
            return await self._recall(claim)
        return None

    async def _recall(self, claim: Claim) -> str | None:
        """The same by what its gateway says when it can be asked again."""
        gateway_id, boot = requests.about(claim.command_id)[:2]
        try:
            await orders.recall(
                self._gateways,
                gateway_id,
                boot,
                claim.command_id,
                give_up=lambda: self._over(claim.id),
            )
        except GatewayOffline as error:
            return error.code
        except CommandFailed as failed:
            return _given_back(failed)
        except OutcomeUnknown:  # that process is gone, and what it asked with it
            return None
        return None

    async def _give_back(self, claim: Claim, reason: str) -> bool:
        """The command did not run: it waits again, and every phone hears of it.

        False: it is over meanwhile.
        """
        log.info(
            "the answer of device %s to %s did not reach Hermes: %s",
            *(claim.device_id, claim.id, reason),
        )
        given_back = await orders.until_stored(partial(self._ledger.give_back, claim))
        if given_back:
            returned = frames.Returned(
                device_id=claim.device_id, request_id=claim.request_id, reason=reason
            )
            await self._remind(claim.id, returned)
        return given_back

    def _over(self, name: str) -> bool:
        """Not the opposite of pending: what is unknown here may still wait."""
        view = self._find(name)[1]
        return view is not None and not view.pending

    def _find(self, name: str) -> tuple[str, AskView | None]:
        return orders.find(self._runs, lambda runs: runs.asked(name))


def _chars(said: Deciding) -> int:
    """How much of it is words of one's own."""
    match said:
        case frames.ApprovalResolve(reason=reason):
            return len(reason or "")
        case frames.QuestionAnswer(answers=answers):
            return sum(len(one.custom or "") for one in answers)
        case _:
            return 0


def _given_back(failed: CommandFailed) -> str | None:
    return requests.refusal(failed.code).code if decisions.gives_back(failed.code) else None


def accepted(claim: Claim) -> Reply:
    """What the phone hears when its answer won."""
    made = approvals.accepted if claim.kind == "approval" else questions.accepted
    return made(claim)
