"""The least of a phone: hello over a real WebSocket, for tests about other things."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp


class PlainPhone:
    """One connection; `hello_ok` is the payload of the first answer."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, hello_ok: dict[str, Any]) -> None:
        self.socket = socket
        self.hello_ok = hello_ok

    @classmethod
    async def connect(
        cls, session: aiohttp.ClientSession, url: str, *, ssl: Any = True, **hello: Any
    ) -> PlainPhone:
        """Connect and say hello, with a token or with device_id and credential."""
        socket = await session.ws_connect(url, ssl=ssl)
        payload = {"protocol_version": 1, **hello}
        await socket.send_str(json.dumps({"v": 1, "type": "hello", "payload": payload}))
        frame = json.loads(await asyncio.wait_for(socket.receive_str(), 5))
        assert frame["type"] == "hello.ok", frame
        return cls(socket, frame["payload"])

    async def closed(self, within: float = 2.0) -> int | None:
        """Wait until the server has closed it; the close code."""
        async with asyncio.timeout(within):
            while True:
                message = await self.socket.receive()
                if message.type is aiohttp.WSMsgType.CLOSE:
                    return message.data
                if message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}:
                    return self.socket.close_code
