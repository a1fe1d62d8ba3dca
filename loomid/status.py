"""What the owner and the phones are told about the whole: read only, from all parts."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from loomid import __version__
from loomid.lmp import frames
from loomid.lmp.frames import GatewayInfo

if TYPE_CHECKING:
    from loomid.config import Config
    from loomid.desk import DeviceStatus
    from loomid.doors import Door
    from loomid.gateway import Gateways
    from loomid.hub import Hub
    from loomid.log import Log


class Status:
    """Answers from the state of the moment."""

    def __init__(self, config: Config, door: Door, gateways: Gateways, events: Log) -> None:
        self._config = config
        self._door = door
        self._gateways = gateways
        self._events = events
        self._begun = time.monotonic()
        self._begun_at = time.time()

    def gateways(self) -> list[GatewayInfo]:
        """The gateways as the events up to now tell them, for hello.ok: what follows on the
        same connection changes this, and only this."""
        return gateway_infos(self._events)

    def show(self, hub: Hub) -> dict[str, Any]:
        """Everything that `loomictl status` shows."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._begun, 3),
            "started_at": self._begun_at,
            "name": self._config.name,
            "listen": self._door.addresses,
            "url": self._door.url,
            "tls": self._config.tls,
            "state_dir": str(self._config.state_dir),
            "runtime_dir": str(self._config.runtime_dir),
            "hermes_endpoint": self._config.hermes_endpoint,
            "gateways": self.known_gateways(),
            "incompatible": self._gateways.incompatible(),
            "devices": [device_json(one) for one in hub.desk.devices()],
            "pending_approvals": len(self._events.projection.pending(frames.ApprovalRequired)),
            "pending_questions": len(self._events.projection.pending(frames.QuestionRequired)),
            "live_runs": len(self._events.projection.live_runs()),
            "log": {
                "position": self._events.visible,
                "window": self._events.window,
                "failing": self._events.health.failing_since is not None,
                "failing_since": self._events.health.failing_since,
                "reason": self._events.health.reason,
                "damaged": self._events.health.damaged,
            },
        }

    def known_gateways(self) -> list[dict[str, Any]]:
        told: list[Any] = [event.payload for event in self._events.projection.gateways()]
        # Of one that is not back since our start, only an earlier loomid can know when it went.
        gone = {
            one.gateway_id: one.since
            for one in told
            if not one.online and one.since < self._begun_at
        }
        here = [
            {
                "gateway_id": state.gateway_id,
                "name": state.name,
                "online": state.online,
                "since": state.since if state.met else gone.get(state.gateway_id),
                "hermes_version": state.hermes_version,
                "shim_version": state.shim_version,
                "pid": state.pid if state.online else None,
                "features": list(state.features),
                "home": state.home,
                "unreadable": state.obstacle if state.online else None,
            }
            for state in self._gateways.states()
        ]
        # One that was away for hundreds of processes of others is known to phones alone.
        known = {one["gateway_id"] for one in here}
        fields = ("gateway_id", "name", "since", "hermes_version", "shim_version")
        rest: dict[str, Any] = {
            "online": False,
            "pid": None,
            "features": [],
            "home": None,
            "unreadable": None,
        }
        here += [
            {field: getattr(one, field) for field in fields} | rest
            for one in told
            if one.gateway_id not in known
        ]
        return here


def gateway_infos(events: Log) -> list[GatewayInfo]:
    """The gateways as the visible events tell them."""
    told: list[Any] = [event.payload for event in events.projection.gateways()]
    return [
        GatewayInfo(
            gateway_id=one.gateway_id,
            name=one.name,
            online=one.online,
            hermes_version=one.hermes_version,
            capabilities=one.capabilities,
            home_channel=one.home_channel,
        )
        for one in told
    ]


def device_json(status: DeviceStatus) -> dict[str, Any]:
    """One device as the admin socket shows it."""
    device = status.device
    return {
        "device_id": device.device_id,
        "name": device.name,
        "connected": status.connected,
        "lag": status.lag,
        "created_at": device.created_at,
        "last_seen": device.last_seen,
        "confirmed": device.confirmed,
        "removed_in_s": status.removed_in_s,
        "model": device.model,
        "os": device.os,
        "app_version": device.app_version,
        "scopes": list(device.scopes),
    }
