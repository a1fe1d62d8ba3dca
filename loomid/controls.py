"""What a phone steers beside messages: asked of the gateway, answered with what is true then."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from loomid.errors import ConfirmRequired, GatewayOffline, NotPermitted, OutcomeUnknown
from loomid.gateway import CommandFailed
from loomid.lmp import control_frames as frames, requests
from loomid.lmp.controls import Registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loomid.gateway import Gateways
    from loomid.lmp.payload import Payload
    from loomid.vault import Device

T = TypeVar("T")


class Controls:
    """Requests about hosts; each method raises the PhoneError that its request deserves."""

    def __init__(self, gateways: Gateways) -> None:
        self._gateways = gateways

    def queries(self) -> dict[type[Payload], Callable[[Device, Any], Awaitable[Payload]]]:
        """The requests that change nothing."""
        return {frames.CommandList: self.commands}

    async def commands(self, _: Device, asked: frames.CommandList) -> frames.CommandListResult:
        """The slash commands of a gateway."""
        gateway_id = self._online(asked.gateway_id)
        registry = await self._ask(gateway_id, "commands", {}, Registry)
        return frames.CommandListResult(
            gateway_id=gateway_id, commands=registry.shown(), request_id=asked.request_id or UNSET
        )

    async def confirmed(self, gateway_id: str, text: str) -> None:
        """Raise ConfirmRequired for a command that must not run unasked."""
        try:
            registry = await self._ask(gateway_id, "commands", {}, Registry)
        except NotPermitted:  # an older plugin: its aliases are not known
            registry = Registry()
        effect = registry.effect(text)
        if effect is not None:
            raise ConfirmRequired(effect=effect, gateway_id=gateway_id)

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
            if failed.code == "unknown_op":
                raise NotPermitted(reason="not_supported") from None
            refusal = requests.refusal(failed.code)
            if refusal.proves_nothing_ran:
                raise refusal from None
            raise requests.Declined(**refusal.params) from None  # it was only asked
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError:
            raise requests.Declined(reason="bad_result") from None
