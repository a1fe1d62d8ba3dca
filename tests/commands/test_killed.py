"""kill -9 of loomid while requests are under way: nothing runs twice, no answer changes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.answering import Host

COUNT = 12
ROOT = Path(__file__).parent.parent.parent


class Heard:
    """What phones were told, by request_id; an answer that was given never changes."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}

    async def start(self, directory: Path, kill_after: int | None) -> None:
        """One life of loomid: until so many answers were told, or to its end."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.sender", str(directory), str(COUNT)),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        told = 0
        async for line in process.stdout:
            request_id, answer = json.loads(line)
            assert self.answers.setdefault(request_id, answer) == answer
            told += 1
            if told == kill_after:
                process.kill()
        status = await process.wait()
        assert status == (0 if kill_after is None else -9)


async def test_killed_again_and_again(tmp_path: Path, make_host: Callable[..., Host]) -> None:
    host = make_host()
    host.link.start()
    for i in range(COUNT):
        host.ask(f"s{i}")
    heard = Heard()
    for kill_after in (1, COUNT, 2 * COUNT - 2):
        await heard.start(tmp_path, kill_after)
    await heard.start(tmp_path, None)

    sent = Counter(command.args["request_id"] for command in host.ops("inject"))
    assert sent == {f"r{i}": 1 for i in range(COUNT)}
    answered = Counter(command.args["approval_id"] for command in host.ops("approve"))
    assert answered == {f"s{i}": 1 for i in range(COUNT)}
    assert len(heard.answers) == 2 * COUNT
    assert all("error" not in answer for answer in heard.answers.values()), heard.answers
