"""loomid's side in a process of its own, to be killed: phones that send and answer.

    python -m tests.support.sender DIRECTORY COUNT

Each of COUNT requests is made once a start, with the same id every time, and each pending
approval is answered. What a phone hears is a line on stdout: [request_id, answer].
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from loomid.errors import PhoneError
from tests.support.answering import PHONE, Side
from tests.support.waiting import until


async def tell(side: Side, type_: str, **payload: Any) -> None:
    """Make a request until it has an answer that is kept."""
    while True:
        try:
            answer = await side.ask(type_, PHONE, **payload)
        except PhoneError as error:
            answer = {"error": error.code}
            if error.proves_nothing_ran:
                await asyncio.sleep(0.02)
                continue
        print(json.dumps([payload["request_id"], answer]), flush=True)
        return


async def decide(side: Side, i: int) -> None:
    """Answer an approval, and again when it still waits: the answer may have got lost."""
    name = side.approval_id(f"s{i}")
    body = {"approval_id": name, "choice": "once", "request_id": f"a{i}"}
    await tell(side, "approval.resolve", **body)
    while name in side.waiting():
        await until(lambda: name not in side.waiting() or not side.under_way)
        await tell(side, "approval.resolve", **body)


async def main(directory: Path, count: int) -> None:
    async with Side(directory) as side, asyncio.TaskGroup() as phones:
        for i in range(count):
            phones.create_task(tell(side, "session.send", text="hi", request_id=f"r{i}"))
        for i in range(count):
            phones.create_task(decide(side, i))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
