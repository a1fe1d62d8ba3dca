"""The composition root: the only place that knows all parts, and the life of the process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loomid import __version__, database, doors, givenup, locks, notify
from loomid.admin import Admin
from loomid.caretaker import Caretaker
from loomid.commands import Commands
from loomid.config import ADMIN_SOCKET
from loomid.files import INBOX, Files
from loomid.gateway import Gateways
from loomid.history import History
from loomid.hub import Hub, HubConfig
from loomid.intake import Intake
from loomid.lmp.device_frames import DeviceUpdate
from loomid.lmp.file_frames import MAX_ATTACHMENTS
from loomid.lmp.frames import Limits
from loomid.log import Log
from loomid.metrics import Metrics
from loomid.owner import Owner
from loomid.pump import Pump
from loomid.shown import Shown
from loomid.status import Status
from loomid.store import Store
from loomid.trace import trace
from loomid.uploads import Uploads
from loomid.vault import Vault
from loomid.web import Web, WebConfig
from loomid.web_files import FileDoors
from loomid.wire import SOCKET_NAME

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from loomid.config import Config
    from loomid.doors import Door
    from loomid.notify import Notifier

log = logging.getLogger("loomid.daemon")

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STOP_S = 1.5
"""How long phones are given to hear of the end; the whole stop takes under two seconds."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Stopped(Exception):
    """Ends the task group that everything runs in."""


async def run(config: Config, *, demo: bool = False) -> None:
    """Serve until a signal asks to stop. Raises StartupError; anything else is a bug."""
    stop = _stop_on_signals()
    async with AsyncExitStack() as held:
        held.enter_context(locks.prepare(config))
        notifier = notify.Notifier(os.environ)
        held.callback(notifier.close)
        door = doors.open_door(config, notify.inherited_sockets(os.environ))
        held.callback(door.close)
        store = await Store.open(config.state_dir / database.FILE, time.time)
        held.push_async_callback(store.close)
        events = await Log.open(
            store,
            window=config.replay_window,
            clock=time.time,
            boot_id=_kernel_boot(),
            retention_s=config.retention_s,
            max_db_bytes=config.max_db_bytes,
            given_up=config.runtime_dir / givenup.FILE,
        )
        held.push_async_callback(events.close)
        try:
            async with asyncio.TaskGroup() as tasks:
                if demo:
                    from loomid import demo as play  # late: only a demo needs its parts

                    tasks.create_task(play.run(config))
                await _serve(config, door, store, events, notifier, stop, tasks)
                raise _Stopped
        except* _Stopped:
            log.info("stopped")


async def _serve(
    config: Config,
    door: Door,
    store: Store,
    events: Log,
    notifier: Notifier,
    stop: asyncio.Event,
    tasks: asyncio.TaskGroup,
) -> None:
    """Compose the parts, run them until `stop`, and take leave of the phones."""
    vault = Vault(store)
    key = await vault.secret()
    gateways = Gateways(
        config.runtime_dir / SOCKET_NAME,
        version=__version__,
        instance=secrets.token_hex(8),
        clock=time.time,
        acked=await store.acks(),
        known=await store.gateways(),
        inbox=config.state_dir / INBOX,
    )
    files = Files(
        config.state_dir,
        store,
        time.time,
        max_file_bytes=config.max_file_bytes,
        max_bytes=config.max_files_bytes,
        retention_s=config.retention_s,
    )
    uploads = Uploads(config.state_dir, files, time.time)
    intake = Intake(files, gateways.arrive, time.time)
    pump = Pump(gateways, events, store, key, time.time, want=intake.want)
    limits = Limits(
        max_frame_bytes=config.max_frame_bytes,
        max_text_chars=100_000,
        max_attachments=MAX_ATTACHMENTS,
        max_inline_bytes=config.max_frame_bytes // 2,
        max_file_bytes=config.max_file_bytes,
    )
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
    history = History(commands.tasks, gateways, events.projection, key, limits.max_frame_bytes)
    commands.queries.update(history.queries())
    status = Status(config, door, gateways, events)
    hub = Hub(
        vault,
        events,
        config=HubConfig(
            server_name=config.name,
            server_version=__version__,
            limits=limits,
        ),
        execute=commands.execute,
        gateways=status.gateways,
        home_task=commands.home_task,
        clock=time.time,
    )
    commands.queries[DeviceUpdate] = hub.desk.update
    web = Web(
        hub,
        WebConfig(
            admin_token=doors.admin_token(config.state_dir),
            public_url=door.url,
            server_name=config.name,
            fingerprint=door.fingerprint,
            max_frame_bytes=config.max_frame_bytes,
        ),
        FileDoors(hub, files, uploads),
    )
    caretaker = Caretaker(files, uploads, intake)
    hub.watch_devices(caretaker.changed)
    metrics = Metrics(hub, events, gateways, pump, files)
    admin = Admin(
        config.runtime_dir / ADMIN_SOCKET,
        hub,
        url=door.url,
        name=config.name,
        fp=door.fingerprint,
        status=lambda: status.show(hub) | {"figures": metrics.figures()},
        metrics=metrics.text,
        trace=partial(trace, hub, events),
        owner=Owner(store.ledger, vault.audit, commands.execute, events.projection.waiting),
    )
    async with AsyncExitStack() as serving:
        await hub.load()
        await files.open()
        await uploads.open()
        for name, part in (
            ("link", gateways.run()),
            ("pump", pump.run()),
            ("hub", hub.run()),
            ("files", caretaker.run()),
            ("intake", intake.run()),
            ("ledger", Shown(events, hub, store.ledger, time.time).run()),
        ):
            tasks.create_task(_endless(name, part))
        await gateways.ready.wait()
        await pump.ready.wait()
        await commands.recover()
        await admin.start()
        serving.push_async_callback(admin.stop)
        await web.start(door.sockets, door.tls, tasks)
        serving.push_async_callback(_leave, web)
        if notifier.watchdog_s is not None:
            tasks.create_task(_feed_watchdog(notifier, notifier.watchdog_s))
        tune_interpreter()
        log.info("listening on %s; phones connect to %s", ", ".join(door.addresses), door.url)
        notifier.send("READY=1", f"STATUS=listening on {', '.join(door.addresses)}")
        await stop.wait()
        notifier.send("STOPPING=1")


def tune_interpreter() -> None:
    """Suit Python to one busy loop beside a thread that stores, and to a thousand phones.

    The thread of the log's commits must not wait 5 ms for the loop at each of its steps. What
    start-up made stays: no collection of garbage need look at it again. And collections are
    rarer than by default: when many phones came at once, each full one took 50 ms.
    """
    sys.setswitchinterval(0.0001)
    gc.set_threshold(10_000, 50, 10)
    gc.freeze()


async def _leave(web: Web) -> None:
    """Tell the phones; one that does not listen must not hold up the end."""
    try:
        async with asyncio.timeout(STOP_S):
            await web.stop()
    except TimeoutError:
        log.warning("some phones did not close in time")


async def _endless(name: str, part: Coroutine[None, None, None]) -> None:
    """A part that comes to an end has failed; systemd starts the whole anew."""
    await part
    raise RuntimeError(f"the {name} came to an end")


async def _feed_watchdog(notifier: Notifier, every: float) -> None:
    """Say that the loop turns. When a part fails, the task group ends this with all else."""
    while True:
        notifier.send("WATCHDOG=1")
        await asyncio.sleep(every)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def asked(number: signal.Signals) -> None:
        log.info("stopping on %s", number.name)
        stop.set()
        for one in SIGNALS:  # a second signal ends it at once
            loop.remove_signal_handler(one)

    for number in SIGNALS:
        loop.add_signal_handler(number, asked, number)
    return stop


def _kernel_boot() -> str:
    """Another one after a power loss: then the newest events may be missing."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
