"""The composition root: the only place that knows all parts and how they are joined."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from loomid import __version__, doors
from loomid.admin import Admin
from loomid.caretaker import Caretaker
from loomid.commands import Commands
from loomid.config import ADMIN_SOCKET
from loomid.farewell import forget
from loomid.files import INBOX, Files
from loomid.gateway import Gateways
from loomid.history import History
from loomid.hub import Hub, HubConfig
from loomid.intake import Intake
from loomid.lmp.device_frames import DeviceUpdate
from loomid.lmp.file_frames import MAX_ATTACHMENTS
from loomid.lmp.frames import Limits
from loomid.metrics import Metrics
from loomid.owner import Owner
from loomid.pump import Pump
from loomid.shown import Shown
from loomid.status import Status
from loomid.trace import trace
from loomid.uploads import Uploads
from loomid.vault import Vault
from loomid.web import Web, WebConfig
from loomid.web_files import FileDoors
from loomid.wire import SOCKET_NAME

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from loomid.config import Config
    from loomid.doors import Door
    from loomid.log import Log
    from loomid.store import Store

MAX_TEXT_CHARS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What has a life of its own: is loaded, runs, or is served and stopped."""

    gateways: Gateways
    pump: Pump
    hub: Hub
    files: Files
    uploads: Uploads
    intake: Intake
    caretaker: Caretaker
    shown: Shown
    commands: Commands
    history: History
    web: Web
    admin: Admin

    def loops(self) -> dict[str, Coroutine[None, None, None]]:
        """What runs as long as loomid does, by the names that an error tells."""
        return {
            "link": self.gateways.run(),
            "pump": self.pump.run(),
            "hub": self.hub.run(),
            "files": self.caretaker.run(),
            "intake": self.intake.run(),
            "ledger": self.shown.run(),
        }


async def compose(
    config: Config, door: Door, store: Store, events: Log, tasks: asyncio.TaskGroup
) -> Parts:
    """Make the parts and join them; nothing runs yet. `tasks` takes what commands leave behind."""
    vault = Vault(store)
    key = await vault.secret()
    limits = _limits(config)
    gateways = await _gateways(config, store)
    files = _files(config, store)
    uploads = Uploads(config.state_dir, files, time.time)
    intake = Intake(files, gateways.arrive, time.time)
    caretaker = Caretaker(files, uploads, intake)
    pump = Pump(gateways, events, store, key, time.time, want=intake.want)
    commands = Commands(
        vault,
        store.ledger,
        gateways,
        pump.runs,
        key,
        time.time,
        limits,
        alive=events.projection,
        files=files,
        remind=lambda name, returned: hub.remind(name, returned),
        group=tasks,
    )
    history = History(
        *(commands.tasks, gateways, events.projection, key),
        limits.max_frame_bytes,
        files.sent,
        commands.controls,
    )
    status = Status(config, door, gateways, events)
    hub = Hub(
        vault,
        events,
        config=HubConfig(server_name=config.name, server_version=__version__, limits=limits),
        execute=commands.execute,
        gateways=status.gateways,
        home_task=commands.home_task,
        clock=time.time,
    )
    hub.watch_devices(caretaker.changed)
    commands.queries.update(history.queries() | {DeviceUpdate: hub.desk.update})
    owner = Owner(
        store.ledger,
        vault.audit,
        commands.execute,
        events.projection.waiting,
        partial(forget, gateways, pump, events),
    )
    metrics = Metrics(hub, events, gateways, pump, files)
    return Parts(
        gateways=gateways,
        pump=pump,
        hub=hub,
        files=files,
        uploads=uploads,
        intake=intake,
        caretaker=caretaker,
        shown=Shown(events, hub, store.ledger, time.time),
        commands=commands,
        history=history,
        web=_web(config, door, hub, FileDoors(hub, files, uploads)),
        admin=_admin(config, door, hub, events, status, metrics, owner),
    )


def _limits(config: Config) -> Limits:
    return Limits(
        max_frame_bytes=config.max_frame_bytes,
        max_text_chars=MAX_TEXT_CHARS,
        max_attachments=MAX_ATTACHMENTS,
        max_inline_bytes=config.max_frame_bytes // 2,
        max_file_bytes=config.max_file_bytes,
    )


async def _gateways(config: Config, store: Store) -> Gateways:
    return Gateways(
        config.runtime_dir / SOCKET_NAME,
        version=__version__,
        instance=secrets.token_hex(8),
        clock=time.time,
        acked=await store.acks(),
        known=await store.gateways(),
        inbox=config.state_dir / INBOX,
        max_file_bytes=config.max_file_bytes,
    )


def _files(config: Config, store: Store) -> Files:
    return Files(
        config.state_dir,
        store,
        time.time,
        max_file_bytes=config.max_file_bytes,
        max_bytes=config.max_files_bytes,
        retention_s=config.retention_s,
    )


def _web(config: Config, door: Door, hub: Hub, file_doors: FileDoors) -> Web:
    told = WebConfig(
        admin_token=doors.admin_token(config.state_dir),
        public_url=door.url,
        server_name=config.name,
        fingerprint=door.fingerprint,
        max_frame_bytes=config.max_frame_bytes,
    )
    return Web(hub, told, file_doors)


def _admin(
    config: Config,
    door: Door,
    hub: Hub,
    events: Log,
    status: Status,
    metrics: Metrics,
    owner: Owner,
) -> Admin:
    return Admin(
        config.runtime_dir / ADMIN_SOCKET,
        hub,
        url=door.url,
        name=config.name,
        fp=door.fingerprint,
        status=lambda: status.show(hub) | {"figures": metrics.figures()},
        metrics=metrics.text,
        trace=partial(trace, hub, events),
        owner=owner,
    )
