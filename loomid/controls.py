"""What a phone steers beside messages: asked of the gateway, answered with what is true then."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from loomid import __version__
from loomid.errors import (
    BadChoice,
    BadFrame,
    ConfirmRequired,
    GatewayOffline,
    NotPermitted,
    OutcomeUnknown,
    PhoneError,
    UnknownTask,
)
from loomid.gateway import CommandFailed
from loomid.lmp import control_frames as frames, controls, requests
from loomid.lmp.controls import Registry
from loomid.orders import Act
from loomid.plans import order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loomid.gateway import Gateways
    from loomid.lmp.payload import Payload
    from loomid.orders import Order
    from loomid.tasks import Tasks
    from loomid.vault import Device

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spot:
    """A gateway, or a chat of it."""

    gateway_id: str
    args: dict[str, Any]
    """The chat, for a command."""


class Controls:
    """Requests about hosts; each method raises the PhoneError that its request deserves."""

    def __init__(self, gateways: Gateways, tasks: Tasks) -> None:
        self._gateways = gateways
        self._tasks = tasks

    def queries(self) -> dict[type[Payload], Callable[[Device, Any], Awaitable[Payload]]]:
        """The requests that change nothing."""
        return {
            frames.CommandList: self.commands,
            frames.ModelList: self.models,
            frames.ModeGet: self.modes,
            frames.HostInfo: self.host,
        }

    def acts(self) -> dict[type[Payload], Act]:
        """The requests that change something."""
        return {
            frames.ModelSet: Act(self.set_model, controls.model_set),
            frames.ModeSet: Act(self.set_mode, controls.mode_set),
        }

    async def commands(self, _: Device, asked: frames.CommandList) -> frames.CommandListResult:
        """The slash commands of a gateway."""
        gateway_id = self._online(asked.gateway_id)
        registry = await self._ask(gateway_id, "commands", {}, Registry)
        return frames.CommandListResult(
            gateway_id=gateway_id, commands=registry.shown(), request_id=asked.request_id or UNSET
        )

    async def host(self, _: Device, asked: frames.HostInfo) -> frames.HostInfoResult:
        """The machine and the process behind a gateway."""
        gateway_id = self._online(asked.gateway_id)
        host = await self._ask(gateway_id, "host", {}, controls.Host)
        return host.shown(gateway_id, __version__, asked.request_id)

    async def confirmed(self, gateway_id: str, text: str) -> None:
        """Raise ConfirmRequired for a command that must not run unasked."""
        try:
            registry = await self._ask(gateway_id, "commands", {}, Registry)
        except NotPermitted:  # an older plugin: its aliases are not known
            registry = Registry()
        effect = registry.effect(text)
        if effect is not None:
            raise ConfirmRequired(effect=effect, gateway_id=gateway_id)

    # ── models ──

    async def models(self, _: Device, asked: frames.ModelList) -> frames.ModelListResult:
        """The models of a gateway, and those in use."""
        place = await self._place(asked.task_id, asked.gateway_id)
        models = await self._models(place)
        return frames.ModelListResult(
            gateway_id=place.gateway_id,
            providers=[row.shown() for row in models.providers],
            default=models.default.shown(),
            current=UNSET if models.current is None else models.current.shown(),
            request_id=asked.request_id or UNSET,
        )

    async def model_of(self, task_id: str, within_s: float) -> controls.Model | None:
        """What the next run of a task would use; None when its gateway does not say so in time."""
        with suppress(PhoneError, TimeoutError):
            place = await self._place(task_id, None)
            async with asyncio.timeout(within_s):
                return await self._ask(place.gateway_id, "model", place.args, controls.Model)
        return None

    async def set_model(self, _: Device, asked: frames.ModelSet) -> Order:
        """Another model for a task, or for all that have none of their own."""
        if asked.default == (asked.task_id is not None):
            raise BadFrame("Either task_id or default.")
        place = await self._place(asked.task_id, asked.gateway_id)
        provider = (await self._models(place)).provider_of(asked.model, asked.provider)
        if asked.default and not asked.confirm:
            raise ConfirmRequired(effect="default_model", gateway_id=place.gateway_id)
        args = {"model": asked.model, "provider": provider} | place.args
        return self._order(place, "set_model", args, asked.task_id)

    async def modes(self, _: Device, asked: frames.ModeGet) -> frames.Modes:
        """What is asked before it is done, and how much is thought."""
        place = await self._place(asked.task_id, asked.gateway_id)
        modes = await self._ask(place.gateway_id, "modes", place.args, controls.HostModes)
        return modes.shown(place.gateway_id, asked.task_id, asked.request_id)

    async def set_mode(self, _: Device, asked: frames.ModeSet) -> Order:
        """One of them, of a task or of the whole gateway."""
        place = await self._place(asked.task_id, asked.gateway_id)
        modes = await self._ask(place.gateway_id, "modes", place.args, controls.HostModes)
        choices = modes.choices(asked)
        if asked.value not in choices:
            raise BadChoice(choices=choices)
        effect = controls.DANGEROUS.get((asked.mode, asked.value))
        if effect is not None and not asked.confirm:
            raise ConfirmRequired(effect=effect, gateway_id=place.gateway_id)
        args = {"mode": asked.mode, "value": asked.value} | place.args
        return self._order(place, "set_mode", args, asked.task_id)

    def _order(self, place: Spot, op: str, args: dict[str, Any], task_id: str | None) -> Order:
        """A command whose answer names the task, if any."""
        about = [] if task_id is None else [task_id]
        return order(self._gateways, place.gateway_id, op, args, *about)

    async def _models(self, place: Spot) -> controls.Models:
        return await self._ask(place.gateway_id, "models", place.args, controls.Models)

    async def _place(self, task_id: str | None, gateway_id: str | None) -> Spot:
        """What a request is about. Raises UnknownTask for a task of another gateway."""
        if task_id is None:
            return Spot(self._online(gateway_id), {})
        place = await self._tasks.place(task_id)
        if gateway_id not in (None, place.gateway_id):
            raise UnknownTask
        return Spot(place.gateway_id, {"chat_id": place.chat_id})

    def _online(self, gateway_id: str | None) -> str:
        """That gateway, or the first. Raises GatewayOffline."""
        for state in self._gateways.states():
            if state.online and gateway_id in (None, state.gateway_id):
                return state.gateway_id
        raise GatewayOffline

    async def _ask(self, gateway_id: str, op: str, args: dict[str, Any], type_: type[T]) -> T:
        """What a gateway says now. Raises GatewayOffline, NotPermitted or GatewayError."""
        try:
            value = await self._gateways.command(
                gateway_id, op, args, command_id=secrets.token_hex(12)
            )
        except OutcomeUnknown:
            raise GatewayOffline(reason="no_answer") from None
        except CommandFailed as failed:
            refusal = requests.refusal(failed.code)
            if refusal.proves_nothing_ran:
                raise refusal from None
            raise requests.Declined(**refusal.params) from None  # it was only asked
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError:
            raise requests.Declined(reason="bad_result") from None
