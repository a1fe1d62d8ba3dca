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


class Status:
    """The gateway's status as phones have it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot: str | None = None
        self._shown: GatewayStatus | None = None
        self.owner: str | None = None
        """Name for retention; a new one for each time the gateway comes up."""

    def up(self, out: Folding, fact: GatewayUp) -> str | None:
        """The gateway is there; returns the owner that is no longer needed."""
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
        same = shown is not None and status == replace(shown, since=out.at)
        if same and self._boot == out.boot:
            return None
        former, self.owner = self.owner, f"~up:{out.boot}:{out.at!r}"
        out.touched.add(self.owner)
        self._boot = out.boot
        if not same:
            self._show(out, status)
        return former if former != self.owner else None

    def down(self, out: Folding) -> None:
        """The process that was there is not (or no longer answers)."""
        shown = self._shown
        if shown is None or not shown.online or out.boot != self._boot or self.owner is None:
            return
        # Whoever keeps the arrival that it came up with keeps this, too: folded again without
        # it, that the gateway came up once more would be no news.
        out.touched |= self._host.retention.beside(self.owner)
        self._show(out, replace(shown, online=False, since=out.at))

    def _home_channel(self, fact: GatewayUp) -> str | UnsetType:
        if fact.home_key is None:
            return UNSET
        return ids.task_id(self._host.key, self._host.gateway_id, fact.home_key)

    def _show(self, out: Folding, status: GatewayStatus) -> None:
        self._shown = status
        out.emit(status)
