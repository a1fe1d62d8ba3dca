"""One command on its way to a gateway: sent at most once, its result asked for again."""

from __future__ import annotations

import asyncio
import logging
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from loomid.errors import GatewayOffline, OutcomeUnknown, StorageFailing
from loomid.gateway import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loomid.gateway import Gateways
    from loomid.lmp.payload import Payload
    from loomid.lmp.requests import Asked
    from loomid.lmp.runs import Runs
    from loomid.vault import Device

T = TypeVar("T")

log = logging.getLogger("loomid.commands")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Order:
    """One command for one boot of one gateway, ready to be written down and sent."""

    gateway_id: str
    boot: str
    op: str
    args: dict[str, Any]
    command_id: str


@dataclass(frozen=True, slots=True)
class Act:
    """How one type of request is carried out by a gateway."""

    plan: Callable[[Device, Any], Awaitable[Order]]
    """The command for it. Raises the PhoneError that the request deserves."""
    result: Callable[[bytes, Asked, dict[str, Any]], Payload] | None = None
    """The answer, of our key and the value of the command's result. Raises GatewayError. None:
    it is answered otherwise."""
    begun: Callable[[str, dict[str, Any]], Awaitable[object]] | None = None
    """To be done before the answer, of the gateway's id and that value. Raises StorageFailing."""
    undo: Callable[[Asked], Awaitable[object]] | None = None
    """To be done when nothing ran, after all; raises nothing."""


def find(runs: Mapping[str, Runs], ask: Callable[[Runs], T | None]) -> tuple[str, T | None]:
    """Which gateway knows it, and what it knows; None: no gateway does."""
    for gateway_id, one in runs.items():
        known = ask(one)
        if known is not None:
            return gateway_id, known
    return "", None


async def send(gateways: Gateways, order: Order) -> dict[str, Any]:
    """Send it and return the result's value.

    Raises GatewayOffline (nothing ran), OutcomeUnknown or CommandFailed.
    """
    # Ids in the arguments are those of this boot; another one must not get them.
    # Nothing is awaited between this look and the sending.
    if gateways.boot_of(order.gateway_id) != order.boot:
        raise GatewayOffline
    return await gateways.command(
        order.gateway_id, order.op, order.args, command_id=order.command_id
    )


async def recall(
    gateways: Gateways,
    gateway_id: str,
    boot: str,
    command_id: str,
    *,
    give_up: Callable[[], bool],
) -> dict[str, Any]:
    """What became of a command that may have been sent; waits for the gateway to say it.

    Raises GatewayOffline (it never ran, and never will: the shim refuses an id that it
    was asked for), CommandFailed, or OutcomeUnknown: its process is gone, or it was
    time to give up.
    """
    pause = _FIRST_PAUSE_S
    while not give_up():
        try:
            result = await gateways.recall(gateway_id, boot, command_id)
        except GatewayOffline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            continue
        if result is None:
            raise GatewayOffline
        if result.error is not None:
            raise CommandFailed(result.error, result.detail)
        return result.value
    raise OutcomeUnknown


async def until_stored(work: Callable[[], Awaitable[T]]) -> T:
    """Store what is known already, however long the disk fails."""
    while True:
        try:
            return await work()
        except StorageFailing:
            await asyncio.sleep(_LONGEST_PAUSE_S)


def report(what: str, error: Exception) -> None:
    """Log a bug without the message of its exception, which could quote a text."""
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed with an error of our own: %s\n%s", what, type(error).__name__, where)
