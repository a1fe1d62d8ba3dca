"""A Link and a Gateways for tests in one process, and how to wait for them."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hermes_shim.link import Link
from loomid import wire
from loomid.gateway import Gateways
from tests.support.host import identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from loomid.lmp.facts import Arrival

BEAT = 0.05


class Shim:
    """A Link whose owner records what loomid asks."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.commands: list[wire.Command] = []
        self.answer = self.is_ready = True
        self.link = Link(
            identity(**fields),
            [f"ipc://{path.parent}/absent.sock", f"ipc://{path}"],
            lambda: self,
            beat_s=BEAT,
        )

    def ready(self) -> bool:
        return self.is_ready

    def execute(self, message: dict[str, Any]) -> None:
        command = wire.typed(message)
        if command.args == {"fact": "inventory"}:
            self.link.emit("inventory", {"keys": [], "approvals": []})
            return
        self.commands.append(command)
        if command.args.get("raise"):
            raise KeyError("secret")
        if self.answer:
            error = command.args.get("error")
            self.link.reply(asdict(wire.Result(command.id, error, value={"echo": command.args})))


class Daemon:
    """Gateways with everything it took."""

    def __init__(self, path: Path, **options: Any) -> None:
        options = {"acked": {}, "instance": "i1", "deadline_s": 5.0} | options
        self.gateways = Gateways(path, version="0.1.0", clock=time.time, beat_s=BEAT, **options)
        self.taken: list[Arrival] = []

    def take(self) -> list[Arrival]:
        self.taken += self.gateways.take()
        return self.taken

    def ack(self) -> None:
        for arrival in self.taken:
            if arrival.n:
                self.gateways.ack(arrival.gateway_id, arrival.boot, arrival.n)

    def of(self, *types: type) -> list[Any]:
        return [a.fact for a in self.take() if isinstance(a.fact, types)]

    def texts(self) -> str:
        return "".join(fact.text for fact in self.of(wire.Delta))


@asynccontextmanager
async def daemon(path: Path, **options: Any) -> AsyncIterator[Daemon]:
    it = Daemon(path, **options)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(it.gateways.run())
        await it.gateways.ready.wait()
        yield it
        task.cancel()
