"""A real daemon, a gateway that is a real link in this process, phones."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.answering import Host
from tests.support.daemon import Daemon
from tests.support.measured import Measured, measure, measured
from tests.support.phone import Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.phone import Connection


@dataclass
class World:
    """The parts, and what a test does with them."""

    daemon: Daemon
    host: Host

    async def online(self) -> None:
        """Link the gateway; when this returns, its inventory has been folded."""
        self.host.link.start()
        await self.measured(lambda now: now("facts_total", kind="inventory") == 1)

    async def call(self, method: str, target: str) -> Any:
        return await asyncio.to_thread(self.daemon.call, method, target)

    async def measure(self) -> Measured:
        return await measure(self.daemon)

    async def measured(self, condition: Callable[[Measured], object]) -> Measured:
        return await measured(self.daemon, condition)

    @asynccontextmanager
    async def paired(self, name: str = "Pixel") -> AsyncIterator[tuple[Phone, Connection]]:
        """A new phone, connected."""
        code = (await asyncio.to_thread(self.daemon.pair, name=name))["qr"]
        phone = Phone(self.daemon.url)
        async with phone.connect(code["token"]) as connection:
            yield phone, connection

    def turn(self, turn: str = "t1", text: str = "tidied up", tools: int = 0) -> None:
        """A whole turn with an answer."""
        self.host.start_turn(turn)
        for i in range(tools):
            tool = {"turn_id": turn, "call_id": f"{turn}-{i}", "tool": "terminal"}
            begun = {"session_id": "s-c1", "call": 1, "preview": "ls"}
            self.host.link.emit("tool.started", tool | begun)
            self.host.link.emit("tool.ended", {**tool, "status": "ok", "ms": 1.0})
        self.host.link.emit("turn.answered", {"turn_id": turn, "text": text})
        self.host.end_turn(turn)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    daemon = Daemon(tmp_path)
    host = Host(daemon.runtime_dir / "hermes.sock")
    try:
        await asyncio.to_thread(daemon.start)
        yield World(daemon, host)
    finally:
        await asyncio.to_thread(host.link.stop, 0.2)
        daemon.close()


__all__ = ["World", "world"]
