"""The composition root: the only place that knows all parts, and the life of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_shim.wire import SOCKET_NAME
from loomid import __version__, doors, locks, notify
from loomid.admin import Admin, devices
from loomid.commands import Commands
from loomid.config import ADMIN_SOCKET, Config
from loomid.gateway import Gateways
from loomid.hub import Hub, HubConfig
from loomid.lmp.frames import GatewayInfo
from loomid.log import Log
from loomid.pump import Pump
from loomid.store import Store
from loomid.vault import Vault
from loomid.web import Web, check_bind

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger("loomid.daemon")

DATABASE = "loomid.db"
STOP_S = 1.5
"""Phones get this long to be told; the whole stop stays under two seconds."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def run(config: Config, *, demo: bool = False) -> None:
    """Serve until a signal asks to stop. Raises StartupError; anything else is a bug."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _asked_to_stop, stop, number)
    async with AsyncExitStack() as held:
        held.enter_context(locks.prepare(config))
        notifier = notify.Notifier(os.environ)
        held.callback(notifier.close)
        tls, fingerprint = doors.tls_context(config)
        sockets = notify.inherited_sockets(os.environ) or doors.listen(config)
        held.callback(doors.close, sockets)
        check_bind(sockets, tls=config.tls, allow_insecure=config.allow_insecure_bind)

        store = await held.enter_async_context(
            await Store.open(config.state_dir / DATABASE, time.time)
        )
        vault = Vault(store)
        key = await vault.secret()
        events = await Log.open(
            store, window=config.replay_window, clock=time.time, boot_id=_kernel_boot()
        )
        gateways = Gateways(
            config.runtime_dir / SOCKET_NAME,
            version=__version__,
            instance=secrets.token_hex(8),
            clock=time.time,
            acked=await store.acked(),
        )
        pump = Pump(gateways, events, store, key, time.time)
        commands = Commands(vault, gateways, pump.runs, key, time.time)
        hub = Hub(...)
        web = Web(hub, config)
        admin = Admin(...)
