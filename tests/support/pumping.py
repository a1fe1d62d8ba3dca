"""loomid without its phones: store, log, gateways and pump; alone as a process too.

    python -m tests.support.pumping <directory>

prints `up` and pumps until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.gateway import Gateways
from loomid.lmp import envelope, frames
from loomid.log import Log
from loomid.pump import Pump
from loomid.store import Store
from loomid.vault import Vault
from tests.support.link import Shim

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from loomid.log import Entry

BEAT_S = 0.05


@dataclass
class Half:
    """The half of loomid that faces Hermes."""

    store: Store
    log: Log
    gateways: Gateways
    pump: Pump
    start: int
    """`visible` when it came up."""

    def shown(self) -> list[frames.Payload]:
        """All that became visible since, in order."""
        return payloads(self.log.read(self.start, 99_999))


def payloads(entries: Iterable[Entry]) -> list[frames.Payload]:
    found = (envelope.decode_server(envelope.render(one.position, one.parts)) for one in entries)
    return [payload for _, payload in found]


@asynccontextmanager
async def pumping(
    directory: Path, *, clock: Callable[[], float] = time.time, window: int = 4096
) -> AsyncIterator[Half]:
    async with await Store.open(directory / "loomid.db", clock) as store:
        log = await Log.open(store, window=window, clock=clock, boot_id="kernel")
        gateways = Gateways(
            directory / "hermes.sock",
            version="0.1.0",
            instance=str(log.visible),
            clock=clock,
            acked=await store.acks(),
            known=await store.gateways(),
            beat_s=BEAT_S,
        )
        pump = Pump(gateways, log, store, await Vault(store).secret(), clock)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateways.run()), group.create_task(pump.run())]
            await gateways.ready.wait()
            await pump.ready.wait()
            yield Half(store, log, gateways, pump, log.visible)
            for task in tasks:
                task.cancel()
        await log.close()


class Host(Shim):
    """A gateway that knows which sessions are running."""

    keys: tuple[str, ...] = ()

    silent = False

    def execute(self, message: dict[str, Any]) -> None:
        if self.silent:
            return
        if message["args"] == {"fact": "running"}:
            self.link.emit("running", {"keys": list(self.keys)})
        super().execute(message)


@contextmanager
def linked(directory: Path, **fields: Any) -> Iterator[Host]:
    one = Host(directory / "hermes.sock", **fields)
    one.link.start()
    try:
        yield one
    finally:
        one.link.stop()


def types(told: list[frames.Payload]) -> list[str]:
    return [frames.EVENT_NAMES[type(payload)] for payload in told]


def text_of(told: list[frames.Payload]) -> str:
    return "".join(one.text for one in told if isinstance(one, frames.RunDelta))


def ended(told: list[frames.Payload]) -> bool:
    return any(isinstance(one, frames.RunCompleted | frames.RunFailed) for one in told)


def stored(half: Half, kind: str, count: int = 1) -> bool:
    """Whether so many facts of that kind, and all that came with them, are on disk."""
    figures = half.gateways.figures()
    return figures.taken.get(kind, 0) >= count and not figures.unacknowledged


def session_key(platform: str = wire.PLATFORM) -> str:
    return f"agent:main:{platform}:dm:home"


def turn_started(turn_id: str = "t1", platform: str = wire.PLATFORM) -> dict[str, Any]:
    return {
        "turn_id": turn_id,
        "session_id": "s1",
        "session_key": session_key(platform),
        "platform": platform,
        "model": "m",
        "text": "hello",
        "parent_session_id": None,
    }


def stream_started(turn_id: str = "t1", surface: str = wire.PLATFORM) -> dict[str, Any]:
    return {
        "turn_id": turn_id,
        "iteration": 1,
        "session_id": "s1",
        "model": "m",
        "provider": "p",
        "surface": surface,
    }


def delta(text: str, turn_id: str = "t1") -> dict[str, Any]:
    return {"turn_id": turn_id, "iteration": 1, "text": text, "channel": "text"}


def endings(text: str, turn_id: str = "t1") -> list[tuple[str, dict[str, Any]]]:
    """The facts with which a good turn ends."""
    return [
        (
            "stream.ended",
            {"turn_id": turn_id, "iteration": 1, "text": text, "finished": True, "error": None},
        ),
        (
            "api.ended",
            {
                "turn_id": turn_id,
                "call": 1,
                "finish_reason": "stop",
                "tool_calls": 0,
                "text": text,
            },
        ),
        ("turn.answered", {"turn_id": turn_id, "text": text}),
        (
            "turn.ended",
            {
                "turn_id": turn_id,
                "session_id": "s1",
                "completed": True,
                "interrupted": False,
                "failed": False,
                "reason": "",
            },
        ),
    ]


async def main(directory: Path) -> None:
    async with pumping(directory):
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
