"""A real server for phones on a loopback port: store, log, hub and web; events by hand."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loomid.errors import UnknownTask
from loomid.files import Files
from loomid.hub import Hub, HubConfig
from loomid.lmp import envelope, frames
from loomid.lmp.pairing import Secret
from loomid.log import Batch, Log
from loomid.reception import STRANGERS
from loomid.store import Store
from loomid.uploads import Uploads
from loomid.vault import Vault
from loomid.web import Web, WebConfig
from loomid.web_files import FileDoors
from tests.support.phone import Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

ADMIN_TOKEN = "the admin token"
SERVER = HubConfig(server_name="test server", server_version="0.0")


async def answer(_: Any, frame: envelope.ClientFrame) -> tuple[str, frames.Payload]:
    """The requests of a server without gateways."""
    if isinstance(frame.payload, frames.TaskList):
        return "task.list.result", frames.TaskListResult(tasks=[], request_id=frame.request_id)
    raise UnknownTask


@dataclass
class Server:
    """The running parts."""

    store: Store
    vault: Vault
    log: Log
    hub: Hub
    web: Web
    files: Files
    uploads: Uploads
    host: str
    port: int
    scheme: str = "ws"
    gateways: list[frames.GatewayInfo] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/ws"

    def phone(self, *capabilities: str) -> Phone:
        """A phone that has not been here before."""
        return Phone(self.url, list(capabilities))

    async def token(self, ttl: float = 300.0) -> str:
        """A fresh pairing token."""
        secret, _ = await self.hub.desk.mint(None, ttl)
        return secret.reveal()

    async def paired(self, *capabilities: str) -> Phone:
        """A phone that has paired and gone again."""
        phone = self.phone(*capabilities)
        async with phone.connect(await self.token()):
            pass
        return phone

    async def publish(self, *payloads: frames.Payload, task_id: str = "task_1") -> None:
        """Commit events."""
        await self.log.commit(
            Batch(
                events=[
                    frames.Event(p, time.time(), task_id, getattr(p, "run_id", None))
                    for p in payloads
                ]
            )
        )

    async def log_reached(self, count: int) -> None:
        """Wait until so many events are visible."""
        moved = asyncio.Event()
        unwatch = self.log.watch(moved.set)
        try:
            while len(self.log.read(0, count)) < count:
                moved.clear()
                await moved.wait()
        finally:
            unwatch()


@asynccontextmanager
async def serving(
    path: Path,
    *,
    config: HubConfig = SERVER,
    execute: Callable[..., Awaitable[tuple[str, frames.Payload]]] = answer,
    window: int = 512,
    clock: Callable[[], float] = time.time,
    ssl_context: Any = None,
    strangers: int = STRANGERS,
    files_config: dict[str, Any] | None = None,
) -> AsyncIterator[Server]:
    """Run a server whose state is in `path`; stopping it is an orderly stop."""
    gateways: list[frames.GatewayInfo] = []
    async with await Store.open(path / "loomid.db", clock) as store:
        vault = Vault(store)
        log = await Log.open(store, window=window, clock=clock, boot_id="boot")
        hub = Hub(
            vault,
            log,
            config=config,
            execute=execute,
            gateways=lambda: gateways,
            home_task=lambda: "task_home",
            clock=clock,
        )
        await hub.load()
        files = Files(path, store, clock, **(files_config or {}))
        uploads = Uploads(path, files, clock)
        await files.open()
        await uploads.open()
        door = socket.create_server(("127.0.0.1", 0))
        port = door.getsockname()[1]
        web = Web(
            hub,
            WebConfig(
                admin_token=Secret(ADMIN_TOKEN),
                public_url=f"ws://127.0.0.1:{port}/ws",
                server_name="test server",
                max_frame_bytes=config.limits.max_frame_bytes,
                strangers=strangers,
            ),
            FileDoors(hub, files, uploads),
        )
        async with asyncio.TaskGroup() as tasks:
            await web.start([door], ssl_context, tasks)
            keeping = [tasks.create_task(hub.run()), tasks.create_task(log.tend())]
            try:
                scheme = "ws" if ssl_context is None else "wss"
                yield Server(
                    store, vault, log, hub, web, files, uploads, "127.0.0.1", port, scheme, gateways
                )
            finally:
                await web.stop()
                for task in keeping:
                    task.cancel()
        await log.close()


def started(run: str = "run_1") -> frames.RunStarted:
    """The beginning of a run."""
    return frames.RunStarted(
        run_id=run,
        task_id="task_1",
        session_id="s",
        surface="loomi",
        model="m",
        provider="p",
        started_at=1.0,
        title="t",
    )


def delta(text: str, run: str = "run_1", iteration: int = 1) -> frames.RunDelta:
    """A piece of a run's text."""
    return frames.RunDelta(run_id=run, text=text, kind="text", iteration=iteration)


def completed(text: str, run: str = "run_1") -> frames.RunCompleted:
    """The end of a run."""
    return frames.RunCompleted(run_id=run, status="completed", text=text, error=None, finished=True)


def approval(name: str = "apr_1") -> frames.ApprovalRequired:
    """A question whether a command may run."""
    return frames.ApprovalRequired(
        approval_id=name,
        run_id="run_1",
        task_id="task_1",
        command="rm -rf /",
        description="d",
        choices=[frames.Choice(label="Once", choice="once", style="primary")],
        smart_denied=False,
        session_key_ref="skr_1",
        deadline_ts=99.0,
    )


def resolved(name: str = "apr_1") -> frames.ApprovalResolved:
    """The answer to it."""
    return frames.ApprovalResolved(approval_id=name, choice="once", decided_by="remote")
