"""One minute of a run of 60 tokens a second, from the hook to a phone.

How long a token takes (hook_to_phone), and what the phone is asked to do: beside the phone that
measures there is one more, whose bytes and reads are counted.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tests.bench import hook_to_phone
from tests.bench.devices import pair
from tests.bench.swarm import Swarm
from tests.support.daemon import Daemon

RATE = 60.0


def minute(seconds: float) -> dict[str, Any]:
    """The figures of so many seconds."""
    with tempfile.TemporaryDirectory(prefix="lo-") as folder:
        daemon = Daemon(Path(folder))
        daemon.state_dir.mkdir(mode=0o700)
        words = asyncio.run(pair(daemon.state_dir / "loomid.db", 1))
        with daemon, Swarm("ws", daemon.port, words) as swarm:
            swarm.open()
            swarm.clear()
            used = daemon.cpu_s()
            took = asyncio.run(hook_to_phone.measure(daemon, RATE, seconds))
            used = daemon.cpu_s() - used
            got = swarm.until(0)
    return {
        "seconds": seconds,
        "tokens": int(RATE * seconds),
        "reads": got["reads"],
        "bytes": got["bytes"],
        "core_share": used / seconds,
        "latency": hook_to_phone.figures(took),
    }
