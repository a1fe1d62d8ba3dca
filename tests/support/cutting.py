"""A TCP link that is cut, with a reset, after so many bytes of either direction."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PIECE = 64 * 1024
RESET = struct.pack("ii", 1, 0)


class CuttingLink:
    """Passes connections to its `port` on to `target`.

    One after the other: when a budget of bytes has come through, the connection at that time is
    cut, and the next budget begins; when all are used up nothing is cut any more.
    """

    def __init__(self, target: int, budgets: list[int]) -> None:
        self.cuts = 0
        self._target = target
        self._budgets = [[budget] for budget in budgets] + [[1 << 60]]
        self._door = socket.create_server(("127.0.0.1", 0))
        self._door.setblocking(False)
        self.port = self._door.getsockname()[1]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with closing(self._door):
            async with asyncio.TaskGroup() as tasks:
                while True:
                    here, _ = await loop.sock_accept(self._door)
                    tasks.create_task(self._carry(here))

    async def _carry(self, here: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        budget = self._budgets[0]
        with closing(here), closing(socket.socket()) as there:
            there.setblocking(False)
            await loop.sock_connect(there, ("127.0.0.1", self._target))
            async with asyncio.TaskGroup() as tasks:
                ways = [
                    tasks.create_task(_pass(*way, budget)) for way in ((here, there), (there, here))
                ]
                # The far end closes after its answer; then all of it has come through.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
            if budget[0] <= 0:  # what is still on its way is lost
                self.cuts += 1
                self._budgets.pop(0)
                for one in (here, there):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def _pass(source: socket.socket, sink: socket.socket, budget: list[int]) -> None:
    loop = asyncio.get_running_loop()
    try:
        while budget[0] > 0 and (data := await loop.sock_recv(source, PIECE)):
            data = data[: max(0, budget[0])]
            budget[0] -= len(data)
            await loop.sock_sendall(sink, data)
    except OSError:
        return


@asynccontextmanager
async def cutting(target: int, budgets: list[int]) -> AsyncIterator[CuttingLink]:
    """A link on a port of its own."""
    link = CuttingLink(target, budgets)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(link.run())
        yield link
        running.cancel()
