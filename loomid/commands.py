"""Carry out what a phone asks: remember the intent, command the gateway, keep the answer.

Each request runs in a task of its own, so that a phone that goes away changes nothing.
What may run twice and what may not is decided in `lmp/requests.py` and `lmp/decisions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from loomid import audit, orders
from loomid.attachments import Attachments
from loomid.audit import Deed
from loomid.chats import Chats
from loomid.controls import Controls
from loomid.errors import (
    GatewayOffline,
    Internal,
    NotPermitted,
    PhoneError,
    StorageFailing,
    UnknownType,
)
from loomid.gateway import CommandFailed
from loomid.lmp import envelope, frames, requests, scopes
from loomid.lmp.file_frames import AttachmentGet
from loomid.orders import Act, Order
from loomid.plans import Plans
from loomid.resolve import DECIDING, Deciding, Decision, Resolver, accepted
from loomid.tasks import Tasks
from loomid.vault import Intent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomid.files import Files
    from loomid.gateway import Gateways
    from loomid.ledger import Ledger
    from loomid.lmp.projection import Projection
    from loomid.lmp.requests import Answer, Reply
    from loomid.lmp.runs import Runs
    from loomid.resolve import Remind
    from loomid.vault import Device, Request, Vault

log = logging.getLogger("loomid.commands")

Query = Callable[["Device", Any], Awaitable[frames.Payload]]
"""Answers a request that changes nothing. Raises PhoneError."""
RECALL_PATIENCE_S = 10.0
"""How long a phone waits for a gateway that could still say what became of its request."""


@dataclass(slots=True)
class Flight:
    """A request that is being carried out; a second one with its id waits for it."""

    fingerprint: bytes
    answer: asyncio.Future[Answer]
    key: tuple[str, str] | None
    """device_id, request_id; None: nobody can ask for it again."""
    asked: float | None
    """When a phone first asked, in loop time; None: only we want to know (after a restart)."""
    unkept: Callable[[], Awaitable[None]] | None = None
    """Stores the answer, which the disk has not taken yet."""


class Commands:
    """The requests of all devices. `recover` comes before the first phone."""

    def __init__(
        self,
        vault: Vault,
        ledger: Ledger,
        gateways: Gateways,
        runs: Mapping[str, Runs],
        key: bytes,
        clock: Callable[[], float],
        limits: frames.Limits,
        *,
        alive: Projection,
        files: Files,
        remind: Remind,
        group: asyncio.TaskGroup,
        patience_s: float = RECALL_PATIENCE_S,
    ) -> None:
        self._vault = vault
        self._gateways = gateways
        self._key = key
        self._clock = clock
        self._group = group
        self._patience_s = patience_s
        self._flights: dict[tuple[str, str], Flight] = {}
        self._resolver = Resolver(
            vault, ledger, gateways, runs, clock, limits=limits, remind=remind, group=group
        )
        self.tasks = Tasks(vault, gateways, runs, alive, key, clock)
        self.controls = Controls(gateways, self.tasks)
        attachments = Attachments(files, limits, clock)
        self.queries: dict[type[frames.Payload], Query] = {
            AttachmentGet: attachments.get,
            **self.controls.queries(),
        }
        """Requests that change nothing: each is answered anew. History adds those that read what
        Hermes stored, the list of tasks among them."""
        confirmed = self.controls.confirmed
        plans = Plans(gateways, runs, self.tasks, vault, confirmed, attachments, limits)
        self.acts = plans.acts() | self.controls.acts() | Chats(gateways, self.tasks).acts()
        """Requests that a gateway carries out, each at most once."""
        self.acts |= dict.fromkeys(DECIDING, Act(self._decision))

    def home_task(self) -> str | None:
        """The task of the home channel, for `hello.ok`."""
        return self.tasks.home()

    async def recover(self) -> None:
        """Begin to settle what a former process left open; never sends a command again."""
        for request in await self._vault.open_requests():
            who = request.device_id, request.request_id
            if _decides(request.type) and await self._resolver.resume(*who):
                continue
            flight = self._depart(who, request.fingerprint)
            self._group.create_task(self._fly(flight, self._reopen(request, flight)))

    # ── one request, once ───────────────────────────────────────────────────

    async def execute(self, device: Device, frame: envelope.ClientFrame) -> Reply:
        """The type and payload of the answer. Raises PhoneError."""
        payload = frame.payload
        if payload is None or frame.type not in frames.REQUESTS:
            raise UnknownType
        await self._permit(device, frame.type, payload)
        if (query := self.queries.get(type(payload))) is not None:
            answer = await self._landed(self._read(frame.type, query(device, payload)))
        else:
            answer = await asyncio.shield(self._join(device, frame).answer)
        if isinstance(answer, PhoneError):
            raise answer
        return answer

    async def _read(self, type_: str, told: Awaitable[frames.Payload]) -> Answer:
        return f"{type_}.result", await told

    async def _permit(self, device: Device, type_: str, payload: frames.Payload) -> None:
        """Whether the device may ask that at all. Raises NotPermitted; that is in the audit."""
        needs = scopes.needed(type_, payload)
        try:
            scopes.permit(device.scopes, needs)
        except NotPermitted:
            who, detail = device.device_id, {"needs": needs}
            await self._note(Deed(self._clock(), who, "refused", type_, detail))
            raise

    def _join(self, device: Device, frame: envelope.ClientFrame) -> Flight:
        """The flight that carries this request: its own, or the one under way."""
        now = asyncio.get_running_loop().time()
        fingerprint = requests.fingerprint(frame.type, frame.body)
        if frame.request_id is None:  # of run.*
            flight = Flight(fingerprint, asyncio.Future(), None, now)
            self._group.create_task(self._fly(flight, self._unremembered(device, frame)))
            return flight
        key = device.device_id, frame.request_id
        if key in self._flights:
            flight = self._flights[key]
            requests.same_request(flight.fingerprint, fingerprint)
            flight.asked = flight.asked or now
            return flight
        flight = self._depart(key, fingerprint)
        flight.asked = now
        self._group.create_task(self._fly(flight, self._once(device, frame, key, flight)))
        return flight

    def _depart(self, key: tuple[str, str], fingerprint: bytes) -> Flight:
        flight = self._flights[key] = Flight(fingerprint, asyncio.Future(), key, None)
        return flight

    async def _fly(self, flight: Flight, work: Awaitable[Answer]) -> None:
        """Bring a flight to its answer, whatever happens to the phones that wait for it.

        It is there for repetitions until its answer is stored.
        """
        try:
            flight.answer.set_result(await self._landed(work))
            if flight.unkept is not None:
                await orders.until_stored(flight.unkept)
        finally:
            flight.answer.cancel()
            if flight.key is not None:
                del self._flights[flight.key]

    async def _landed(self, work: Awaitable[Answer]) -> Answer:
        try:
            return await work
        except PhoneError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug in one request must not end the daemon
            orders.report("a request", error)
            return Internal()

    async def _unremembered(self, device: Device, frame: envelope.ClientFrame) -> Answer:
        """Like `_once`, but no disk is waited for: a run can be stopped while it fails."""
        order = await self._order(device, frame)
        answer = await self._run(frame, order)
        deed = self._deed(device.device_id, frame, order)
        self._group.create_task(self._note(replace(deed, outcome=requests.outcome(answer))))
        return answer

    async def _note(self, deed: Deed) -> None:
        with contextlib.suppress(StorageFailing):
            await self._vault.audit.note(deed)

    async def _once(
        self, device: Device, frame: envelope.ClientFrame, who: tuple[str, str], flight: Flight
    ) -> Answer:
        """Carry out a request unless its id has an answer; keep what must be kept."""
        planned = await self._planned(device, frame)
        if isinstance(planned, Order) or requests.kept(planned):
            standing = await self._begin(frame, who, flight, planned)
        else:
            # Not `begin`: what is not kept must not push out what is.
            standing = await self._vault.request(*who)
        if standing is not None:
            return await self._again(standing, flight)
        if isinstance(planned, PhoneError):
            return await self._keep(who, planned)
        if isinstance(planned, Decision):
            return await self._resolve(who, planned)
        return await self._keep(who, await self._run(frame, planned))

    async def _begin(
        self,
        frame: envelope.ClientFrame,
        who: tuple[str, str],
        flight: Flight,
        planned: Order | PhoneError,
    ) -> Request | None:
        """Write down that a request begins; the one that has its id already, if there is one."""
        intent = self._intent(who[0], frame, planned)
        try:
            standing = await self._vault.begin(*who, flight.fingerprint, intent)
        except StorageFailing:
            await self._undone(frame, planned)
            raise
        if standing is not None:
            await self._undone(frame, planned)
        return standing

    async def _planned(self, device: Device, frame: envelope.ClientFrame) -> Order | PhoneError:
        try:
            return await self._order(device, frame)
        except PhoneError as error:
            return error

    async def _order(self, device: Device, frame: envelope.ClientFrame) -> Order:
        """The command for a request. Raises the error it deserves."""
        return await self._act(frame.type).plan(device, frame.payload)

    def _act(self, type_: str) -> Act:
        act = self.acts.get(frames.REQUESTS.get(type_, frames.Payload))
        if act is None:  # a newer loomid knew it
            raise UnknownType
        return act

    def _intent(self, who: str, frame: envelope.ClientFrame, planned: Order | PhoneError) -> Intent:
        at = self._clock()
        if isinstance(planned, PhoneError):
            return Intent(frame.type, None, None, None, at)
        # An answer to what Hermes asks gets its row with its claim: it may come too late.
        deed = None if isinstance(planned, Decision) else self._deed(who, frame, planned)
        return Intent(frame.type, planned.command_id, planned.gateway_id, planned.boot, at, deed)

    def _deed(self, who: str, frame: envelope.ClientFrame, order: Order) -> Deed:
        where = order.gateway_id, order.command_id
        return audit.of_request(self._clock(), who, frame.type, frame.payload, *where)

    async def _keep(self, who: tuple[str, str], answer: Answer) -> Answer:
        """Store an answer, or that there is none to keep; the phone need not wait for a disk
        that fails, as what it is told is true already."""
        outcome = requests.outcome(answer)
        if requests.kept(answer):
            store = partial(self._vault.finish, *who, requests.dump(answer), outcome)
        else:
            store = partial(self._vault.forget, *who, outcome)
        try:
            await store()
        except StorageFailing:
            self._flights[who].unkept = store
        return answer

    async def _again(self, standing: Request, flight: Flight) -> Answer:
        """The answer to a request whose id is known already."""
        requests.same_request(standing.fingerprint, flight.fingerprint)
        if standing.answer is not None:
            return requests.load(standing.answer)
        return await self._reopen(standing, flight)

    async def _reopen(self, request: Request, flight: Flight) -> Answer:
        """The answer to a request that was left open: nothing is sent again."""
        who = request.device_id, request.request_id
        if _decides(request.type):
            won = await self._resolver.accepted(*who)
            return won or await self._keep(who, GatewayOffline())
        if request.command_id is None or request.gateway_id is None or request.boot is None:
            return await self._keep(who, GatewayOffline())  # it was about to be refused
        asked = requests.Asked(
            request.type, request.request_id, request.gateway_id, request.command_id
        )
        fate = orders.recall(
            self._gateways,
            request.gateway_id,
            request.boot,
            request.command_id,
            give_up=partial(self._out_of_patience, flight),
        )
        return await self._keep(who, await self._answer(asked, fate))

    def _out_of_patience(self, flight: Flight) -> bool:
        """Whether a phone has waited long enough for what only the gateway can say."""
        now = asyncio.get_running_loop().time()
        return flight.asked is not None and now >= flight.asked + self._patience_s

    async def _run(self, frame: envelope.ClientFrame, order: Order) -> Answer:
        return await self._answer(_asked(frame, order), orders.send(self._gateways, order))

    async def _answer(self, asked: requests.Asked, fate: Awaitable[dict[str, Any]]) -> Answer:
        """The fate of a command as an answer."""
        act = self._act(asked.type)
        try:
            value = await fate
            if act.begun is not None:
                # If not now, then with the first event of its run.
                with contextlib.suppress(StorageFailing):
                    await act.begun(asked.gateway_id, value)
            assert act.result is not None, "answered otherwise"  # noqa: S101 - invariant
            return f"{asked.type}.result", act.result(self._key, asked, value)
        except CommandFailed as failed:
            refused = requests.refusal(failed.code)
        except PhoneError as error:
            refused = error
        if not requests.kept(refused):
            await self._undo(asked)
        return refused

    async def _undone(self, frame: envelope.ClientFrame, planned: Order | PhoneError) -> None:
        if isinstance(planned, Order):
            await self._undo(_asked(frame, planned))

    async def _undo(self, asked: requests.Asked) -> None:
        """Nothing ran for a request: what its plan has kept for it is not needed."""
        undo = self._act(asked.type).undo
        if undo is not None:
            await undo(asked)

    async def _decision(self, device: Device, answer: Deciding) -> Order:
        return await self._resolver.order(device.device_id, answer, secrets.token_hex(12))

    async def _resolve(self, who: tuple[str, str], order: Decision) -> Answer:
        """Answered once the claim is stored; its request stays open until Hermes has answered."""
        try:
            claim = await self._resolver.claim(who, order)
        except PhoneError as error:
            return await self._keep(who, error)
        self._resolver.deliver(claim, order)
        return accepted(claim)


def _asked(frame: envelope.ClientFrame, order: Order) -> requests.Asked:
    return requests.Asked(frame.type, frame.request_id, order.gateway_id, order.command_id)


def _decides(type_: str) -> bool:
    return frames.REQUESTS.get(type_) in DECIDING
