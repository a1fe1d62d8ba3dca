"""loomid's side in a process of its own that kills itself at one moment of an answer's way.

    python -m tests.support.dying DIRECTORY MOMENT

A phone answers the approval `s1` with `once`, and what it is told is a line on stdout. MOMENT:
    asked     the question is on disk, and no phone has it
    claimed   the claim is on disk, and its command has not left
    resolved  Hermes has told the end, and it is not on disk
    ended     the end is on disk, and no phone has it
    -         it lives until it is killed
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loomid.log import Batch
from tests.support.answering import PHONE, Side


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(side: Side, moment: str) -> None:
    """Have it die then."""
    commit, show = side.log.commit, side.log._show
    deliver = side.commands._resolver.deliver

    async def dying_commit(batch: Batch) -> None:
        if moment == "resolved" and "approval.resolved" in [e.type for e in batch.events]:
            die()
        await commit(batch)

    def dying_show(rows: list[Any], encoded: list[Any]) -> None:
        shown = {"asked": "approval.required", "ended": "approval.resolved"}.get(moment)
        if shown in [row[2] for row in rows]:
            die()
        show(rows, encoded)

    def dying_deliver(*order: Any) -> None:
        if moment == "claimed":
            die()
        deliver(*order)

    side.log.commit = dying_commit  # type: ignore[method-assign]
    side.log._show = dying_show  # type: ignore[method-assign]
    side.commands._resolver.deliver = dying_deliver  # type: ignore[method-assign]


async def main(directory: Path, moment: str) -> None:
    async with Side(directory) as side:
        arrange(side, moment)
        approval_id = await side.asked("s1")
        body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
        print(json.dumps(await side.ask("approval.resolve", PHONE, **body)), flush=True)
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
