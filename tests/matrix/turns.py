"""Rows about turns: what is said, done, queued, stopped and listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.rows import scenario, went_through, words

if TYPE_CHECKING:
    from tests.matrix.world import Player
    from tests.support.phone import Got


@scenario
async def say(player: Player) -> None:
    started, end = await player.play("say 12 60")
    assert started.payload["surface"] == "loomi"
    assert started.payload["model"] == "scripted"
    assert started.payload["prompt"] == "say 12 60"
    assert (end.type, end.payload["status"], end.payload["finished"]) == (
        "run.completed",
        "completed",
        True,
    )
    assert end.payload["text"].split() == words(12).split()
    shown = player.text(started.payload["run_id"])
    assert shown[1].split() == words(12).split()
    assert end.payload["error"] is None
    await player.connection.send("ping")
    await player.connection.wait_type("pong")


@scenario
async def tool(player: Player) -> None:
    started, end = await player.play("tool")
    run_id = started.payload["run_id"]
    begun = await player.event("run.tool_started", run_id=run_id)
    done = await player.event("run.tool_finished", run_id=run_id)
    assert (begun.payload["tool"], begun.payload["index"]) == ("terminal", 0)
    assert "echo hi" in begun.payload["preview"]
    assert done.payload["ok"] is went_through(end)
    assert end.payload["text"].startswith("done: ")
    assert begun.seq < done.seq < end.seq
    shown = player.text(run_id)
    assert list(shown) == [2]
    assert shown[2].strip() == end.payload["text"]
    assert not [
        g for g in player.phone.events("notification") if g.frame.task_id == end.frame.task_id
    ]


@scenario
async def tools(player: Player) -> None:
    started, _ = await player.play("tools")
    begun = [
        g
        for g in player.phone.events("run.tool_started")
        if g.payload["run_id"] == started.payload["run_id"]
    ]
    assert [g.payload["index"] for g in begun] == [0, 1]


@scenario
async def tool_with_text_before_it(player: Player) -> None:
    started, end = await player.play("tooltext 8")
    run_id = started.payload["run_id"]
    begun = await player.event("run.tool_started", run_id=run_id)
    shown = player.text(run_id)
    assert shown[1].split() == words(8).split()
    interim = [g for g in player.phone.events("run.interim") if g.payload["run_id"] == run_id]
    assert [g.payload["text"].split() for g in interim] == [words(8).split()]
    assert interim[0].payload["already_streamed"] is True
    assert interim[0].seq < begun.seq
    before = [
        g.seq
        for g in player.phone.events("run.delta")
        if g.payload["iteration"] == 1 and g.payload["run_id"] == run_id
    ]
    assert max(before) < begun.seq
    assert end.payload["text"].startswith("done: ")


async def streaming(player: Player, text: str) -> Got:
    """Begin a run and wait until its text has begun to come."""
    request_id, _ = await player.send(text)
    started = await player.started(request_id)
    await player.event("run.delta", run_id=started.payload["run_id"])
    return started


@scenario
async def cancel_mid_stream(player: Player) -> None:
    started = await streaming(player, "slow 20")
    run_id = started.payload["run_id"]
    answer = await player.request("run.cancel", run_id=run_id)
    assert answer.payload["state"] == "cancelling", answer.payload
    end = await player.ended(run_id)
    assert (end.type, end.payload["status"], end.payload["finished"]) == (
        "run.completed",
        "cancelled",
        False,
    )
    assert end.payload["text"].strip() == player.text(run_id)[1].strip()
    again = await player.request("run.cancel", run_id=run_id)
    assert again.payload["code"] == "run_not_active"
    # Hermes' reply to the stop is no news to who stopped it, nor to the other phones.
    _, after = await player.play("say 2", task_id=started.payload["task_id"])
    assert after.payload["status"] == "completed"
    told = [g for g in player.phone.events("notification") if g.frame.task_id == end.frame.task_id]
    assert not told, [g.payload for g in told]


async def while_busy(player: Player, mode: str, second: str = "say 3") -> tuple[Got, str, str]:
    """A second message while the first streams: the first run, and the second request."""
    started = await streaming(player, "slow 4")
    task_id = started.payload["task_id"]
    second_id, same = await player.send(second, task_id=task_id, mode=mode)
    assert same == task_id
    return started, second_id, task_id


@scenario
async def busy_queue(player: Player) -> None:
    started, second_id, _ = await while_busy(player, "queue")
    first_end = await player.ended(started.payload["run_id"])
    assert first_end.payload["text"].split() == words(20).split()
    second = await player.started(second_id)
    end = await player.ended(second.payload["run_id"])
    assert first_end.seq < second.seq
    assert end.payload["text"].split() == words(3).split()
    player.check()


@scenario
async def busy_interrupt(player: Player) -> None:
    """0.19 begins another turn; 0.20 and 0.22 fold the text into the running one."""
    started, second_id, _ = await while_busy(player, "interrupt")
    run_id = started.payload["run_id"]
    first_end = await player.ended(run_id)
    if player.world.release.streams:
        folded = await player.event("run.input", run_id=run_id)
        assert folded.payload["origin"]["request_id"] == second_id
        assert first_end.payload["text"].split() == words(3).split()
    else:
        second = await player.started(second_id)
        end = await player.ended(second.payload["run_id"])
        assert end.payload["text"].split() == words(3).split()
    player.check()


@scenario
async def busy_steer(player: Player) -> None:
    started, second_id, _ = await while_busy(player, "steer", "please be brief")
    run_id = started.payload["run_id"]
    await player.ended(run_id)
    inputs = [g for g in player.phone.events("run.input") if g.payload["run_id"] == run_id]
    assert [g.payload["text"] for g in inputs] == ["please be brief"]
    assert inputs[0].payload["origin"]["request_id"] == second_id
    player.check()


@scenario
async def model_error(player: Player) -> None:
    started, end = await player.play("fail 500")
    assert end.type == "run.failed"
    assert end.payload["status"] == "failed"
    assert "500" in end.payload["error"]
    _, after = await player.play("say 3", task_id=started.payload["task_id"])
    assert after.payload["status"] == "completed"


@scenario
async def dropped_stream(player: Player) -> None:
    _, end = await player.play("drop 6")
    assert end.type in ("run.completed", "run.failed")


@scenario
async def reasoning(player: Player) -> None:
    started, end = await player.play("think 6")
    run_id = started.payload["run_id"]
    assert end.payload["text"] == "thought it through"
    if player.world.release.streams:
        assert "".join(player.text(run_id, "reasoning").values()).split() == [
            f"r{i}" for i in range(6)
        ]
    assert player.text(run_id)[1].strip() == "thought it through"


@scenario
async def second_turn(player: Player) -> None:
    first, _ = await player.play("say 3")
    second, end = await player.play("say 4", task_id=first.payload["task_id"])
    assert first.payload["run_id"] != second.payload["run_id"]
    assert first.payload["task_id"] == second.payload["task_id"]
    assert first.payload["session_id"] == second.payload["session_id"]
    assert end.payload["text"].split() == words(4).split()


@scenario
async def new_session(player: Player) -> None:
    first, _ = await player.play("say 3")
    task_id = first.payload["task_id"]
    after = player.mark()
    await player.send("/new", task_id=task_id, command=True)
    await player.event("notification", after=after)
    second, _ = await player.play("say 4", task_id=task_id)
    assert second.payload["task_id"] == task_id
    assert second.payload["session_id"] != first.payload["session_id"]


@scenario
async def texts_like_commands(player: Player) -> None:
    for text in ("/new", "/stop", "yes", "👍", "always", "restart gateway", "/approve", "no"):
        _, end = await player.play(text)
        assert end.payload["status"] == "completed"
        assert text in end.payload["text"], (text, end.payload)


@scenario
async def cron_send(player: Player) -> None:
    after = player.mark()
    await player.world.ask_other("deliver", chat_id="home", text="the nightly report")
    got = await player.event("notification", after=after, text="the nightly report")
    assert (got.payload["category"], got.payload["source"]) == ("result", "cron")


@scenario
async def task_list(player: Player) -> None:
    started, _ = await player.play("say 2")
    answer = await player.request("task.list", limit=500)
    mine = [t for t in answer.payload["tasks"] if t["task_id"] == started.payload["task_id"]]
    assert len(mine) == 1
    assert (mine[0]["surface"], mine[0]["status"]) == ("loomi", "idle")
    assert answer.payload.get("stale", False) is False


@scenario
async def pause_and_resume(player: Player) -> None:
    started = await streaming(player, "slow 20")
    run_id = started.payload["run_id"]
    paused = await player.request("run.pause", run_id=run_id)
    assert paused.payload["state"] == "pausing", paused.payload
    await player.ended(run_id)
    resume_id = "resume-" + run_id
    resumed = await player.request("run.resume", run_id=run_id, request_id=resume_id)
    assert resumed.payload["state"] == "resuming", resumed.payload
    again = await player.started(resume_id)
    assert again.payload["task_id"] == started.payload["task_id"]
    await player.ended(again.payload["run_id"])
    player.check()
