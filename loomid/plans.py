"""What to command for a request that a gateway carries out: messages, cancel, pause, resume."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loomid import orders
from loomid.errors import (
    BadFrame,
    GatewayOffline,
    NotPermitted,
    RunNotActive,
    TooLarge,
    UnknownRun,
)
from loomid.lmp import frames, requests
from loomid.orders import Act, Order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loomid.attachments import Attachments
    from loomid.gateway import Gateways
    from loomid.lmp.requests import Asked
    from loomid.lmp.runs import Runs, RunView
    from loomid.tasks import Destination, Tasks
    from loomid.vault import Device, Vault

CONTINUE = "continue"
"""What run.resume says in the user's stead (LMP §4)."""


class Plans:
    """Orders for requests; each method raises the PhoneError that its request deserves."""

    def __init__(
        self,
        gateways: Gateways,
        runs: Mapping[str, Runs],
        tasks: Tasks,
        vault: Vault,
        confirmed: Callable[[str, str], Awaitable[None]],
        attachments: Attachments,
        limits: frames.Limits,
    ) -> None:
        self._gateways = gateways
        self._runs = runs
        self._tasks = tasks
        self._vault = vault
        self._confirmed = confirmed
        self._attachments = attachments
        self._limits = limits

    def acts(self) -> dict[type[frames.Payload], Act]:
        """The requests that are planned here."""
        return {
            frames.SessionSend: Act(self.send, requests.sent, self._begun, self._unsent),
            frames.RunCancel: Act(self.interrupt, requests.interrupted),
            frames.RunPause: Act(self.interrupt, requests.interrupted),
            frames.RunResume: Act(self.resume, requests.resumed),
        }

    async def send(self, device: Device, said: frames.SessionSend) -> Order:
        """A message into a task, or a new one."""
        limit = self._limits.max_text_chars
        if len(said.text) > limit:
            raise TooLarge(max_text_chars=limit)
        if not said.text.strip() and not said.attachments:
            raise BadFrame("The text is empty.")
        if said.command and said.attachments:
            raise BadFrame("A command takes no files along.")
        if said.command and not said.text.startswith("/"):
            raise BadFrame("A command begins with a slash.")
        place = await self._tasks.place(said.task_id)
        if said.command and not said.confirm:
            await self._confirmed(place.gateway_id, said.text)
        mode = "command" if said.command else said.mode
        told = self._inject(device, said.request_id, place, said.text, mode)
        if not said.attachments:
            return told
        more = await self._attachments.along(
            device, told.args["message_id"], said.text, said.attachments
        )
        return replace(told, op="inject_files", args=told.args | more)

    async def _begun(self, gateway_id: str, value: dict[str, Any]) -> None:
        task_id = await self._tasks.begun(gateway_id, value)
        await self._attachments.settle(value, task_id)

    async def _unsent(self, asked: Asked) -> None:
        await self._attachments.release(requests.message_id(asked.command_id, asked.request_id))

    async def resume(self, device: Device, asked: frames.RunResume) -> Order:
        """A message that lets the model go on."""
        place = await self._tasks.place(await self._task_of(asked.run_id))
        return self._inject(device, asked.request_id, place, CONTINUE, "queue", asked.run_id)

    async def interrupt(self, _: Device, asked: frames.RunCancel | frames.RunPause) -> Order:
        """Cancel and pause are one thing to Hermes: a turn can only be interrupted (LMP §4)."""
        run_id = asked.run_id
        gateway_id, view = self._find(run_id)
        if view is None:
            await self._task_of(run_id)
        if view is None or not view.active:
            raise RunNotActive
        verb = "cancel" if isinstance(asked, frames.RunCancel) else "pause"
        if verb not in view.can:
            raise NotPermitted(reason="cannot", can=list(view.can))
        args = {"session_key": view.session_key, "turn_id": view.turn_id}
        return order(self._gateways, gateway_id, "cancel", args, run_id)

    def _inject(
        self,
        device: Device,
        request_id: str | None,
        place: Destination,
        text: str,
        mode: str,
        *about: str,
    ) -> Order:
        args = {
            "chat_id": place.chat_id,
            "text": text,
            "mode": mode,
            "device_id": device.device_id,
        }
        if request_id is not None:
            args["request_id"] = request_id
        told = order(self._gateways, place.gateway_id, "inject", args, *about)
        message_id = requests.message_id(told.command_id, request_id)
        return replace(told, args=args | {"message_id": message_id})

    async def _task_of(self, run_id: str) -> str:
        """The task of a run, also of one that ended long ago. Raises UnknownRun."""
        _, view = self._find(run_id)
        task_id = view.task_id if view is not None else await self._vault.task_of_run(run_id)
        if task_id is None:
            raise UnknownRun
        return task_id

    def _find(self, run_id: str) -> tuple[str, RunView | None]:
        return orders.find(self._runs, lambda runs: runs.run(run_id))


def order(gateways: Gateways, gateway_id: str, op: str, args: dict[str, Any], *about: str) -> Order:
    """A command for the process that speaks for a gateway now. Raises GatewayOffline.

    `about` is what the answer is made of besides the command's result: it must survive a
    restart, so it is part of the command's id.
    """
    boot = gateways.boot_of(gateway_id)
    if boot is None:
        raise GatewayOffline
    return Order(gateway_id, boot, op, args, requests.command_id(secrets.token_hex(12), *about))
