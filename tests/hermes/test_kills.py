"""kill -9 of either process in the middle of a run, with a real Hermes and a real phone."""

from __future__ import annotations

import asyncio

from tests.matrix.checks import check_run
from tests.matrix.files import sending, told
from tests.matrix.past import live_run, turns_of
from tests.matrix.scenarios import words
from tests.matrix.world import Player, World
from tests.support.phone import Phone
from tests.support.samples import PDF

DELTAS = 2_000


async def pair(world: World) -> Phone:
    """A phone that is paired and not connected."""
    code = await asyncio.to_thread(world.daemon.pair)
    phone = Phone(world.daemon.url)
    async with phone.connect(code["qr"]["token"]):
        return phone


async def test_loomid_killed_in_mid_run(world: World) -> None:
    phone = await pair(world)
    async with phone.connect() as connection:
        player = Player(world, phone, connection)
        await player.online()
        request_id, _ = await player.send(f"say {DELTAS} 3")
        run_id = (await player.started(request_id)).payload["run_id"]
        await player.event("run.delta", run_id=run_id)
        await asyncio.to_thread(world.daemon.kill)
    await asyncio.to_thread(world.daemon.start)
    async with phone.connect() as connection:
        assert connection.hello_ok is not None
        assert connection.hello_ok.payload["truncated"] is False
        player = Player(world, phone, connection)
        end = await player.ended(run_id)
        assert end.payload["status"] == "completed"
        assert end.payload["text"].split() == words(DELTAS).split()
        check_run(phone.got, run_id)
        if world.release.streams:
            assert player.text(run_id)[1].split() == words(DELTAS).split()
        # The same request again, after the restart: the kept answer, and nothing runs.
        again = await player.request("session.send", request_id=request_id, text=f"say {DELTAS} 3")
        assert again.type == "session.send.result"
        _, after = await player.play("say 3", task_id=again.payload["task_id"])
        assert after.payload["status"] == "completed"
        assert len(phone.events("run.started")) == 2


async def test_what_was_sent_is_in_history_after_a_kill(world: World) -> None:
    """Also what Hermes sent while there was no loomid."""
    phone = await pair(world)
    path, other = (world.gateway.folder / "user" / name for name in ("plan.pdf", "other.pdf"))
    path.write_bytes(PDF)
    other.write_bytes(PDF)
    async with phone.connect() as connection:
        player = Player(world, phone, connection)
        await player.online()
        task_id, first = await sending(player, f"hand {path} & {other}", 2, None)
        request_id, _ = await player.send(f"hand {path}", task_id=task_id)
        await asyncio.to_thread(world.daemon.kill)
    await asyncio.to_thread(world.daemon.start)
    async with phone.connect() as connection:
        player = Player(world, phone, connection)
        run_id = (await player.started(request_id)).payload["run_id"]
        await player.ended(run_id)
        await player.event("run.attachment", run_id=run_id)
        live = [first, told(live_run(player, run_id).parts())]
        assert [len(parts) for parts in live] == [3, 2], "a text, and what was sent"
        assert [told(turn.parts) for turn in await turns_of(player, task_id)] == live


async def test_gateway_killed_in_mid_run(world: World) -> None:
    phone = await pair(world)
    async with phone.connect() as connection:
        player = Player(world, phone, connection)
        await player.online()
        request_id, task_id = await player.send("slow 30")
        run_id = (await player.started(request_id)).payload["run_id"]
        await player.event("run.delta", run_id=run_id)
        after = player.mark()
        await asyncio.to_thread(world.gateway.kill)
        await player.event("gateway.status", after=after, online=False)
        end = await player.ended(run_id)
        assert (end.type, end.payload["error"]) == ("run.failed", "gateway_lost")
        refused = await player.request("session.send", task_id=task_id, text="say 3")
        assert refused.payload["code"] == "gateway_offline"
        stale = await player.request("task.list")
        assert stale.payload["stale"] is True
        assert task_id in [task["task_id"] for task in stale.payload["tasks"]]
        after = player.mark()
        await asyncio.to_thread(world.gateway.start)
        await player.event("gateway.status", after=after, online=True)
        _, end = await player.play("say 3", task_id=task_id)
        assert end.payload["status"] == "completed"
        assert (
            len(
                [
                    g
                    for g in phone.events("run.completed", "run.failed")
                    if g.payload["run_id"] == run_id
                ]
            )
            == 1
        )
