"""Rows of the past: history equals what was told live, search, figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomid.lmp.frames import EVENTS, ApprovalRequired
from loomid.lmp.history_frames import TaskHistoryResult
from tests.matrix.rows import scenario
from tests.matrix.turns import streaming, while_busy
from tests.support.live import LiveRun
from tests.support.stored import common

if TYPE_CHECKING:
    from loomid.lmp.history_frames import HistoryTurn
    from tests.matrix.world import Player
    from tests.support.phone import Got

import msgspec

KINDS = ("text", "tool")


def live_run(player: Player, run_id: str) -> LiveRun:
    """The run as the phone was told it."""
    run = LiveRun()
    for got in player.phone.got:
        if got.frame.run_id == run_id and got.type in EVENTS:
            run.take(got.type, msgspec.convert(got.payload, EVENTS[got.type]))
    return run


async def turns_of(player: Player, task_id: str, **more: Any) -> list[HistoryTurn]:
    """All turns of a task, page by page."""
    turns: list[HistoryTurn] = []
    before = None
    while True:
        asked = {"task_id": task_id, "before": before, **more}
        answer = await player.request("task.history", **asked)
        assert answer.type == "task.history.result", answer.payload
        page = msgspec.convert(answer.payload, TaskHistoryResult)
        turns = [*page.turns, *turns]
        before = answer.payload.get("next_before")
        if before is None:
            return turns


@scenario
async def history_equals_live(player: Player) -> None:
    kinds = (*KINDS, "reasoning") if player.world.release.streams else KINDS
    runs: list[Got] = []
    task_id = None
    for text in ("say 3", "tooltext 4", "tools", "think 4"):
        started, _ = await player.play(text, task_id=task_id)
        task_id = started.payload["task_id"]
        runs.append(started)
    turns = await turns_of(player, task_id, max_messages=4)
    assert [turn.prompt for turn in turns] == ["say 3", "tooltext 4", "tools", "think 4"]
    for started, turn in zip(runs, turns, strict=True):
        run = live_run(player, started.payload["run_id"])
        assert (run.status, turn.status, turn.finished) == ("completed", "completed", True)
        assert common(run.parts(), *kinds) == common(turn.parts, *kinds)
    other, _ = await player.play("say 1")
    refused = await player.request(
        "task.history", task_id=other.payload["task_id"], before=await cursor(player, task_id)
    )
    assert refused.payload["code"] == "bad_cursor"


async def cursor(player: Player, task_id: str) -> str:
    page = await player.request("task.history", task_id=task_id, max_messages=1)
    return str(page.payload["next_before"])


@scenario
async def history_of_broken_runs(player: Player) -> None:
    """What Hermes kept no end of is partial; a message that was folded in belongs to its run."""
    started = await streaming(player, "slow 20")
    run_id, task_id = started.payload["run_id"], started.payload["task_id"]
    (turn,) = await turns_of(player, task_id)
    assert (turn.run_id, turn.partial, turn.prompt) == (run_id, True, "slow 20")
    await player.request("run.cancel", run_id=run_id)
    await player.ended(run_id)
    _, second, busy = await while_busy(player, "interrupt")
    await player.play("say 2", task_id=task_id)
    broken, whole = await turns_of(player, task_id)
    assert (broken.partial, broken.status) == (True, msgspec.UNSET)
    assert whole.status == "completed"
    first_run = await run_of(player, busy)  # it has ended
    if player.world.release.streams:
        (turn,) = await turns_of(player, busy)
        assert (turn.prompt, turn.inputs, turn.status) == ("slow 4", ["say 3"], "completed")
        run = live_run(player, first_run)
        assert common(run.parts(), *KINDS) == common(turn.parts, *KINDS)
    else:
        await player.ended((await player.started(second)).payload["run_id"])
        first, last = await turns_of(player, busy)
        assert (first.partial, last.status, last.prompt) == (True, "completed", "say 3")


async def run_of(player: Player, task_id: str) -> str:
    started = [g for g in player.phone.events("run.started") if g.payload["task_id"] == task_id]
    await player.ended(started[0].payload["run_id"])
    return str(started[0].payload["run_id"])


@scenario
async def history_of_approvals(player: Player) -> None:
    request_id, task_id = await player.send("danger")
    started = await player.started(request_id)
    run_id = started.payload["run_id"]
    asked = await player.event("approval.required", run_id=run_id)
    required = msgspec.convert(asked.payload, ApprovalRequired)
    (waiting,) = [p for p in live_run(player, run_id).parts() if p.kind == "tool"]
    assert required.part == waiting.part
    assert [ask.part for ask in waiting.asks] == [f"approval:{required.approval_id}"]
    await player.request("approval.resolve", approval_id=required.approval_id, choice="deny")
    await player.ended(run_id)
    (turn,) = await turns_of(player, task_id)
    assert common(live_run(player, run_id).parts(), *KINDS) == common(turn.parts, *KINDS)
    assert not any(part.asks for part in turn.parts)


@scenario
async def search_and_figures(player: Player) -> None:
    word, cjk = "quetzalcoatlus", "翼龙化石研究"
    await player.play("say 1")  # of a gateway's first message another end is echoed: a note
    started, end = await player.play(f"please find {word} and {cjk}")
    task_id = started.payload["task_id"]
    assert end.payload["usage"]["calls"] == 1
    assert end.payload["usage"]["input_tokens"] > 0
    for query in (word, f'"find {word}"', f"{word[:8]}*", cjk, cjk[:2], f"nothing OR {word}"):
        answer = await player.request("task.search", query=query)
        hits = [h for h in answer.payload["hits"] if h["task_id"] == task_id]
        assert {"user", "assistant"} == {h["role"] for h in hits}, (query, answer.payload)
        for hit in hits:
            assert hit["highlights"], (query, hit)
    none = await player.request("task.search", query=f"{word} -please")
    assert [
        h for h in none.payload["hits"] if h["task_id"] == task_id and h["role"] == "user"
    ] == []
    refused = await player.request("task.search", query="-nothing")
    assert refused.payload["params"]["reason"] == "only_exclusions"
    stats = (await player.request("task.stats", task_id=task_id)).payload
    assert (stats["sessions"], stats["messages"], stats["calls"]) == (1, 2, 1)
    assert stats["input_tokens"] == end.payload["usage"]["input_tokens"]
    assert 0 < stats["context_tokens"] < stats["context_window"]
    assert "history" in player.connection.hello_ok.payload["capabilities"] or [
        g for g in player.phone.events("gateway.status") if "history" in g.payload["capabilities"]
    ]


@scenario
async def beside_a_conversation(player: Player) -> None:
    """`/btw` is an answer and no run in 0.22; before, a conversation of its own."""
    first, _ = await player.play("say 2")
    task_id = first.payload["task_id"]
    after = player.mark()
    await player.send("/btw say 4", task_id=task_id, command=True)
    await player.event("notification", after=after, category="diagnostic")
    await player.play("say 3", task_id=task_id)
    assert [turn.prompt for turn in await turns_of(player, task_id)] == ["say 2", "say 3"]
    started = player.phone.events("run.started")
    beside = [g for g in started if g.payload["run_id"] not in player.runs]
    if player.world.release.name == "22":
        assert beside == []
        return
    (aside,) = beside
    assert (aside.payload["surface"], aside.payload["can"]) == ("loomi", [])
    (turn,) = await turns_of(player, aside.payload["task_id"])
    run = live_run(player, aside.payload["run_id"])
    assert (run.status, turn.prompt) == ("completed", "say 4")
    assert common(run.parts(), *KINDS) == common(turn.parts, *KINDS)
