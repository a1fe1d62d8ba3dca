"""The life of the process: one task group, start and stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from loomid import database, doors, givenup, locks, notify
from loomid.composition import compose
from loomid.log import Log
from loomid.store import Store

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from loomid.config import Config
    from loomid.doors import Door
    from loomid.notify import Notifier
    from loomid.web import Web

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
    """Run the parts until `stop`, and take leave of the phones."""
    parts = await compose(config, door, store, events, tasks)
    async with AsyncExitStack() as serving:
        serving.callback(parts.history.close)
        await parts.hub.load()
        await parts.files.open()
        await parts.uploads.open()
        for name, part in parts.loops().items():
            tasks.create_task(_endless(name, part))
        await parts.gateways.ready.wait()
        await parts.pump.ready.wait()
        await parts.commands.recover()
        await parts.admin.start()
        serving.push_async_callback(parts.admin.stop)
        await parts.web.start(door.sockets, door.tls, tasks)
        serving.push_async_callback(_leave, parts.web)
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
