"""The demo's agent in the place of Hermes, and the main job seen by a phone."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.phone import Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.daemon import Daemon

SAID = "You wrote: hello"


@asynccontextmanager
async def demo_agent(
    daemon: Daemon, pace: str = "0", home: Path | None = None
) -> AsyncIterator[None]:
    """The agent's process, linked to a daemon; it ends with the block."""
    where = [daemon.hermes_endpoint, pace, *(["--home", home] if home else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loomid.demo_agent", *where, stdin=-1
    )
    try:
        async with asyncio.timeout(20):
            while not any(g["online"] for g in await _gateways(daemon)):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 10)


async def _gateways(daemon: Daemon) -> list[dict[str, Any]]:
    return (await asyncio.to_thread(daemon.status))["gateways"]


async def main_job(daemon: Daemon, url: str, *, ssl: Any = True) -> Phone:
    """Pair at a URL, write to the agent and see the run to its end."""
    code = (await asyncio.to_thread(daemon.pair, url=url))["qr"]
    assert code["url"] == url
    phone = Phone(url, ssl=ssl)
    async with phone.connect(code["token"]) as connection:
        answer = await connection.request("session.send", text="hello", request_id="r1")
        assert answer.type == "session.send.result", answer
        ended = await connection.wait_type("run.completed")
        assert ended.payload["text"] == SAID
    return phone
