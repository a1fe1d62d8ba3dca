"""A gateway that is no more, forgotten: by loomid and by its phones."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from loomid.errors import LoomiError, StorageFailing
from loomid.lmp.frames import GatewayStatus
from loomid.text import short

if TYPE_CHECKING:
    from loomid.gateway import Gateways
    from loomid.log import Log
    from loomid.pump import Pump

log = logging.getLogger("loomid.gateway")

STORED_WITHIN_S = 10.0


class StillOnline(LoomiError):
    """It would be there again at once."""


async def forget(gateways: Gateways, pump: Pump, events: Log, gateway_id: str) -> None:
    """Count a gateway as no more; returns when that is stored and phones are told.

    Its tasks are no longer listed; their events and files go when they are old. When it comes
    back it is there again, with its tasks.
    Raises KeyError: there is none, StillOnline, StorageFailing: it is not stored yet, but will be.
    """
    known = {state.gateway_id: state.name for state in gateways.states()}
    told = events.projection.gateway(gateway_id)
    if told is not None and isinstance(told.payload, GatewayStatus):
        known.setdefault(gateway_id, told.payload.name)
    name = known[gateway_id]
    if not gateways.forget(gateway_id, name):
        raise StillOnline("it is online, and would be there again at once: stop it first")
    log.info("gateway %s is forgotten: %s", short(gateway_id), short(name))
    gone = pump.farewells.setdefault(gateway_id, asyncio.Event())
    try:
        async with asyncio.timeout(STORED_WITHIN_S):
            await gone.wait()
    except TimeoutError:
        raise StorageFailing("It is forgotten as soon as the disk can be written.") from None
