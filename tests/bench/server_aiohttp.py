"""The ordinary server of an aiohttp application: for each event, `send_str` to each socket.

It stores nothing. A phone that comes back gets what it missed from a list in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

from aiohttp import web

from tests.bench import messages
from tests.bench.messages import Order, say

BACKLOG = 4096


class Server:
    """The sockets, and all texts so far."""

    def __init__(self) -> None:
        self.sockets: set[web.WebSocketResponse] = set()
        self.texts: list[str] = []

    async def ws(self, request: web.Request) -> web.WebSocketResponse:
        """A phone: its first message says what it has."""
        ws = web.WebSocketResponse(compress=False)
        await ws.prepare(request)
        at = (await ws.receive_json())["last_seq"]
        await ws.send_str('{"ready":true}')
        while at < len(self.texts):
            await ws.send_str(self.texts[at])
            at += 1
        self.sockets.add(ws)
        try:
            async for _ in ws:
                pass
        finally:
            self.sockets.discard(ws)
        return ws

    async def publish(self, order: Order) -> dict[str, int]:
        """Carry out one order."""
        begun, since, sent = time.monotonic_ns(), time.monotonic(), 0
        while (due := order.due(since, sent)) >= 0:
            if due == 0:
                await asyncio.sleep(order.pause(since, sent))
                continue
            text = messages.message(order.first + sent)
            self.texts.append(text)
            for ws in list(self.sockets):
                with contextlib.suppress(ConnectionError):
                    await ws.send_str(text)
            sent += 1
        return order.done(begun, sent)


async def main() -> None:
    """Serve until stdin ends; each line of it is an order."""
    server = Server()
    app = web.Application()
    app.router.add_get("/ws", server.ws)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=BACKLOG)
    await site.start()
    say(port=runner.addresses[0][1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        say(**await server.publish(Order(**json.loads(line))))


if __name__ == "__main__":
    asyncio.run(main())
