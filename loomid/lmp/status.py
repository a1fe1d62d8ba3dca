"""Whether the gateway is there: gateway.status, once for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from loomid.lmp import capabilities, ids
from loomid.lmp.frames import GatewayStatus

if TYPE_CHECKING:
    from loomid.lmp.facts import GatewayUp
    from loomid.lmp.folding import Folding
    from loomid.lmp.host import Host

_OWNER = "~up"
"""Name for retention."""


class Status:
    """The gateway's status as phones have it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot: str | None = None
        self._shown: GatewayStatus | None = None

    def up(self, out: Folding, fact: GatewayUp) -> None:
        """The gateway is there."""
        self._host.retention.renew(out, _OWNER)
        status = GatewayStatus(
            gateway_id=self._host.gateway_id,
            name=fact.name,
            online=True,
            hermes_version=fact.hermes_version,
            shim_version=fact.shim_version,
            since=out.at,
            capabilities=capabilities.of(fact) or UNSET,
            home_channel=self._home_channel(fact),
        )
        shown = self._shown
        self._boot = out.boot
        if shown is None or status != replace(shown, since=out.at):
            self._show(out, status)

    def down(self, out: Folding) -> None:
        """The process that was there is not (or no longer answers)."""
        shown = self._shown
        if shown is None or not shown.online or out.boot != self._boot:
            return
        out.touched.add(_OWNER)
        self._show(out, replace(shown, online=False, since=out.at))

    def _home_channel(self, fact: GatewayUp) -> str | UnsetType:
        if fact.home_key is None:
            return UNSET
        return ids.task_id(self._host.key, self._host.gateway_id, fact.home_key)

    def _show(self, out: Folding, status: GatewayStatus) -> None:
        self._shown = status
        out.emit(status)
