"""kill -9 of loomid while requests are under way: nothing runs twice, no answer changes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.answering import TABLET, Side
from tests.support.waiting import until

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


async def live_and_die(directory: Path, moment: str, host: Host) -> list[Any]:
    """A life of loomid in which a phone answers; what the phone was told."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.dying", str(directory), moment),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    if moment == "-":
        assert await process.stdout.readline()
        await until(lambda: host.commands)
        process.kill()
    told = [json.loads(line) async for line in process.stdout]
    assert await process.wait() == -9
    return told


@pytest.mark.parametrize("moment", ["asked", "claimed", "-", "resolved", "ended"])
async def test_killed_on_the_way_of_an_answer(
    tmp_path: Path, make_host: Callable[..., Host], moment: str
) -> None:
    """Whatever was lost with the process, the truth is told afterwards, and nothing ran twice."""
    host = make_host()
    host.link.start()
    host.ask("s1")
    if moment == "-":
        host.silent.add("approve")
    await live_and_die(tmp_path, moment, host)
    ran_already = moment in ("resolved", "ended")
    assert len(host.decided) == ran_already
    async with Side(tmp_path) as side:
        name = side.approval_id("s1")
        mine = {"approval_id": name, "choice": "once", "request_id": "r1"}
        state = (await side.entry(name)).state
        late = await side.refused("approval.resolve", TABLET, **{**mine, "choice": "always"})
        if moment == "asked":
            assert (state, late.code) == ("pending", "bad_choice")
            await side.online(host)
        elif moment == "claimed":
            await until(lambda: side.reminded)
            assert (await side.entry(name)).waits
        else:
            assert state == ("applied" if moment == "ended" else "claimed")
            assert late.params["choice"] == "once"
            assert late.params["state"] in (state, "applied")
        if moment == "-":
            host.answer(host.commands[0])
        assert (await side.ask("approval.resolve", **mine))["state"] == "accepted"
        await side.decided("s1")
        await until(lambda: not side.under_way)
        truth = {"state": "applied", "choice": "once", "outcome": "applied", "decided_by": "remote"}
        late = await side.refused("approval.resolve", TABLET, **{**mine, "request_id": "r9"})
        assert (late.code, late.params) == ("already_resolved", truth)
        assert (await side.ask("approval.resolve", **mine))["state"] == "accepted"
    assert [choice for _, choice, _ in host.decided] == ["once"]
    assert len(host.ops("approve")) == 1
