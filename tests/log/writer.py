"""A process that writes events through a Log until it is killed; see test_crash.

Each line it prints names an event that was visible: a phone could have it. Control
frames are taken between, as connections do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from loomid.log import Batch, Log
from loomid.store import Store
from tests.support.log import arrival, delta, text_of


async def write(path: Path, label: str) -> None:
    store = await Store.open(path, time.time)
    log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
    seen = log.visible
    facts = {key: n for key, n in (await store.acks()).items() if key == ("gw", "boot")}
    n = facts.get(("gw", "boot"), 0)
    print("first", seen, flush=True)
    for batch in range(1_000_000):
        events = [delta(f"{label}.{batch}.{i}") for i in range(batch % 7 + 1)]
        n += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(
                log.commit(
                    Batch(
                        events=events,
                        facts=[(arrival(n, boot="boot"), f"turn{n // 10}")],
                        release=[("gw", f"turn{n // 10 - 2}")],
                        acks={("gw", "boot"): n},
                    )
                )
            )
            await asyncio.sleep(0)
            control = log.take_position()
        for entry in log.read(seen, 99):
            print("event", entry.position, text_of(entry), flush=True)
            seen = entry.position
        print("control", control, n, flush=True)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2]))
