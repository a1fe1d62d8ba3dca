"""Rows about titles and new tasks: empty ones, copies, and what other surfaces began."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.matrix.rows import scenario, words

if TYPE_CHECKING:
    from tests.matrix.world import Player
    from tests.support.phone import Got


async def listed(player: Player, task_id: str) -> dict[str, object]:
    """A task as the list has it."""
    tasks = (await player.request("task.list", limit=100)).payload["tasks"]
    found: dict[str, object] = next(task for task in tasks if task["task_id"] == task_id)
    return found


def remembered(player: Player) -> list[str]:
    """What the model was shown of the conversation at its last call, but what began it."""
    return [str(message.get("content")) for message in player.world.model.seen[-1][1:]]


async def branch(player: Player, type_: str, task_id: str) -> Got:
    answer = await player.request(type_, task_id=task_id)
    assert answer.type == f"{type_}.result", answer.payload
    assert answer.payload["origin_task_id"] == task_id != answer.payload["task_id"]
    return answer


@scenario
async def new_and_rename(player: Player) -> None:
    title = f"New {player.phone.device_id}"
    answer = await player.request("task.new", title=title)
    task_id = answer.payload["task_id"]
    assert answer.payload["title"] == title
    started, _ = await player.play("say 3", task_id=task_id)
    assert started.payload["task_id"] == task_id
    assert (await listed(player, task_id))["title"] == title
    other = f"Other {player.phone.device_id}"
    answer = await player.request("task.rename", task_id=task_id, title=f" {other} ")
    assert answer.payload["title"] == other
    assert (await listed(player, task_id))["title"] == other
    taken = await player.request("task.new", title=other)
    assert taken.payload["params"] == {"reason": "title_taken"}


@scenario
async def fork(player: Player) -> None:
    request_id, task_id = await player.send("slow 2")
    started = await player.started(request_id)
    refused = await player.request("task.fork", task_id=task_id)
    assert refused.payload["params"] == {"reason": "busy"}
    await player.ended(started.payload["run_id"])
    forked = (await branch(player, "task.fork", task_id)).payload
    assert forked["shared"] is False
    await player.play("say 5", task_id=forked["task_id"])
    assert remembered(player)[0].startswith("slow 2")
    await player.play("say 4", task_id=task_id)
    assert not [text for text in remembered(player) if text.startswith("say 5")]
    assert (await listed(player, forked["task_id"]))["title"] == forked["title"]


@scenario
async def continued(player: Player) -> None:
    """A chat of another platform goes on apart; a session of the terminal is the very same."""
    after = player.mark()
    await player.world.ask_other("inject", text="say 6", chat_id="m-on", message_id="m-on")
    theirs = await player.event("run.started", after=after, surface="other")
    await player.ended(theirs.payload["run_id"])
    copy = (await branch(player, "task.continue", theirs.payload["task_id"])).payload
    assert copy["shared"] is False
    await player.play("say 2", task_id=copy["task_id"])
    assert [text.split()[0] for text in remembered(player)] == ["say", "w0", "say"]
    assert (await listed(player, theirs.payload["task_id"]))["surface"] == "other"

    gateway = player.world.gateway
    done = await asyncio.to_thread(gateway.run, "chat", "-q", "say 7")
    assert done.returncode == 0, done.stderr
    tasks = (await player.request("task.list")).payload["tasks"]
    typed = next(task for task in tasks if task["preview"].startswith("say 7"))
    assert typed["surface"] in ("cli", "oneshot")
    same = (await branch(player, "task.continue", typed["task_id"])).payload
    assert same["shared"] is True
    await player.play("say 2", task_id=same["task_id"])
    assert remembered(player)[:2] == ["say 7", words(7)]
