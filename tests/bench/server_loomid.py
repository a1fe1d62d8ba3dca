"""loomid as tests.bench runs it: store, log, hub and web in a process of their own.

Events are made and committed inside this process, in batches as the pump forms them (what
has come due, at most 512, the next while one is stored), as fast as the log takes them; the
other servers' publishers are in or beside their servers, too. At full speed the publisher
waits while a phone is AHEAD events behind: there is no other way to learn what the phones can
take, as a phone that falls out of the window is closed. What the way from Hermes adds is
measured apart (the path from a hook, in subjects.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from loomid.daemon import tune_interpreter
from loomid.lmp.frames import Event
from loomid.log import Batch
from tests.bench import messages
from tests.bench.devices import WINDOW, pair
from tests.bench.messages import BATCH, RUN, TASK, Order, say
from tests.support.hub import serving

if TYPE_CHECKING:
    from tests.support.hub import Server

AHEAD = 2048


async def publish(server: Server, order: Order) -> dict[str, int]:
    """Carry out one order."""
    begun, since, sent = time.monotonic_ns(), time.monotonic(), 0
    async with asyncio.TaskGroup() as tasks:
        storing = tasks.create_task(asyncio.sleep(0))
        while (due := order.due(since, sent)) >= 0:
            if due == 0:
                await asyncio.sleep(order.pause(since, sent))
                continue
            if order.rate == 0 and max(s.lag for s in server.hub.desk.devices()) > AHEAD:
                await asyncio.sleep(0.001)
                continue
            first = order.first + sent
            numbers = range(first, first + min(due, BATCH))
            now = time.time()
            events = [Event(messages.delta(messages.text(n)), now, TASK, RUN) for n in numbers]
            before = storing
            storing = tasks.create_task(server.log.commit(Batch(events=events)))
            await before
            sent += len(numbers)
    return order.done(begun, sent)


async def main() -> None:
    """Serve until stdin ends; each line of it is an order."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("phones", type=int)
    options = parser.parse_args()
    words = await pair(options.folder / "loomid.db", options.phones)
    async with serving(options.folder, window=WINDOW) as server:
        tune_interpreter()
        say(port=server.port, words=words)
        while line := await asyncio.to_thread(sys.stdin.readline):
            say(**await publish(server, Order(**json.loads(line))))


if __name__ == "__main__":
    asyncio.run(main())
