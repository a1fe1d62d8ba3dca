"""A stand-in for loomid: Gateways with a store that is one file of JSON lines.

    python -m tests.support.sink --socket /run/x/hermes.sock --store file

Each arrival is a line [gateway_id, boot, n, kind, body], on disk before it is acknowledged.
After a kill -9 the next one reads from the file what it has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import IO, Any

from loomid import wire
from loomid.gateway import Gateways
from loomid.lmp import facts


def stored(path: Path) -> list[list[Any]]:
    """What is in the store; a line torn by a kill is not."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines]


def highest(entries: list[list[Any]]) -> dict[tuple[str, str], int]:
    acked: dict[tuple[str, str], int] = {}
    for gateway_id, boot, n, *_ in entries:
        acked[gateway_id, boot] = max(acked.get((gateway_id, boot), 0), n)
    return acked


def opened(store: Path) -> tuple[IO[bytes], dict[tuple[str, str], int]]:
    """The store to append to, without a torn line, and what it holds of each process."""
    file = store.open("a+b")
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)
    return file, highest(stored(store))


async def serve(socket: Path, store: Path, beat_s: float) -> None:
    file, acked = opened(store)
    gateways = Gateways(
        socket,
        version="0.1.0",
        instance=os.urandom(8).hex(),
        clock=time.time,
        acked=acked,
        beat_s=beat_s,
    )
    with file:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(gateways.run())
            await gateways.ready.wait()
            print("ready", flush=True)
            while True:
                await gateways.arrived(60.0)
                arrivals = gateways.take(512)
                for a in arrivals:
                    body = json.loads(facts.dump(a.fact))
                    line = json.dumps([a.gateway_id, a.boot, a.n, a.kind, body])
                    file.write(line.encode() + b"\n")
                file.flush()
                for key, n in highest([[a.gateway_id, a.boot, a.n] for a in arrivals]).items():
                    gateways.ack(*key, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--beat", type=float, default=wire.BEAT_S)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    asyncio.run(serve(options.socket, options.store, options.beat))


if __name__ == "__main__":
    main()
