"""Rows about messages that wait behind a run: each has its own run, in order, and its own files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.past import KINDS, live_run, turns_of
from tests.matrix.rows import scenario
from tests.matrix.turns import streaming
from tests.support.samples import b64, png, sha256
from tests.support.stored import common

if TYPE_CHECKING:
    from tests.matrix.world import Player
    from tests.support.phone import Got


async def run_each(player: Player, requests: list[str]) -> list[Got]:
    """Wait for the run of each message, and for its end: they begin in that order."""
    starts = [await player.started(request_id) for request_id in requests]
    ends = [await player.ended(started.payload["run_id"]) for started in starts]
    order = [got.seq for pair in zip(starts, ends, strict=True) for got in pair]
    assert order == sorted(order)
    return starts


async def queued(player: Player, count: int) -> None:
    first = await streaming(player, "slow 3")
    task_id = first.payload["task_id"]
    texts = [f"no {number}" for number in range(count)]
    requests = [(await player.send(text, task_id=task_id))[0] for text in texts]
    starts = await run_each(player, requests)
    turns = await turns_of(player, task_id)
    assert [turn.prompt for turn in turns] == ["slow 3", *texts]
    for started, turn in zip([first, *starts], turns, strict=True):
        run = live_run(player, started.payload["run_id"])
        assert (run.status, turn.status) == ("completed", "completed")
        assert common(run.parts(), *KINDS) == common(turn.parts, *KINDS)


@scenario
async def six_wait(player: Player) -> None:
    await queued(player, 6)


@scenario
async def twenty_wait(player: Player) -> None:
    await queued(player, 20)


@scenario
async def pictures_wait(player: Player) -> None:
    first = await streaming(player, "slow 3")
    pictures = [png(number + 40, 9) for number in range(6)]
    requests = []
    for number, picture in enumerate(pictures):
        sent = [{"data": b64(picture), "media_type": "image/png", "name": f"{number}.png"}]
        text, task_id = f"look {number}", first.payload["task_id"]
        requests.append((await player.send(text, task_id=task_id, attachments=sent))[0])
    for started, picture in zip(await run_each(player, requests), pictures, strict=True):
        (ref,) = started.payload["origin"]["attachments"]
        assert ref["attachment_id"] == f"att_{sha256(picture)}"
        end = await player.ended(started.payload["run_id"])
        assert end.payload["text"] == f"1 images image/png {sha256(picture)}"


@scenario
async def interrupts_at_once(player: Player) -> None:
    """Each is told once: as the input of a run, or with a run of its own."""
    first = await streaming(player, "slow 8")
    task_id = first.payload["task_id"]
    requests = [
        (await player.send(f"no {number}", task_id=task_id, mode="interrupt"))[0]
        for number in range(4)
    ]
    await told_once(player, task_id, requests)


async def told_once(player: Player, task_id: str, requests: list[str]) -> None:
    """Each of them, as the input of a run, or with a run of its own, and nothing beside them."""

    def told() -> list[str]:
        found = player.phone.events("run.started", "run.input")
        return [got.payload["origin"]["request_id"] for got in found if "origin" in got.payload]

    await player.connection.wait_for(lambda: set(requests) <= set(told()), 60)
    await player.play("say 1", task_id=task_id)  # waits for whatever they began
    assert sorted(request for request in told() if request in requests) == sorted(requests)
    said = [got for got in player.phone.events() if got.frame.task_id == task_id]
    assert all("origin" in got.payload for got in said if got.type == "run.started")
    assert not [got for got in said if got.type == "notification"]


@scenario
async def interrupts_while_a_tool_runs(player: Player) -> None:
    request_id, _ = await player.send("danger sleep 3")
    first = await player.started(request_id)
    await player.event("run.tool_started", run_id=first.payload["run_id"])
    task_id = first.payload["task_id"]
    sent, _ = await player.send("no, this", task_id=task_id, mode="interrupt")
    await told_once(player, task_id, [sent])


@scenario
async def a_stop_names_what_it_drops(player: Player) -> None:
    first = await streaming(player, "slow 20")
    task_id, run_id = first.payload["task_id"], first.payload["run_id"]
    requests = [(await player.send(f"no {n}", task_id=task_id))[0] for n in range(3)]
    stop = {"text": "/stop", "task_id": task_id, "command": True}
    answer = await player.request("session.send", request_id="stop", **stop)
    assert answer.payload["dropped"] == requests
    assert (await player.ended(run_id)).payload["status"] == "cancelled"
    await player.play("say 1", task_id=task_id)
    found = [got.payload.get("prompt") for got in player.phone.events("run.started")]
    assert not {f"no {n}" for n in range(3)} & {*found}
