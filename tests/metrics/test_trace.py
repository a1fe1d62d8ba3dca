"""One event's way, by its id on a phone."""

from __future__ import annotations

import asyncio
import json

from tests.support.loomictl import loomictl


async def ctl(world, *arguments: str):
    done = await asyncio.to_thread(loomictl, world.daemon.runtime_dir, "trace", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


async def traced(world, event_id: str, phone) -> dict:
    found = json.loads(await ctl(world, event_id, "--json", "--device", phone.device_id))
    assert found["event_id"] == event_id
    (one,) = found["devices"]
    assert one["device_id"] == phone.device_id
    return one


async def test_the_stamps_of_an_event_in_their_order(world):
    async with (
        world.paired("first") as (phone, connection),
        world.paired("second") as (other, _),
    ):
        await world.online()
        world.turn("t1", tools=2)
        ended = await connection.wait_type("run.completed")
        async with other.connect(last_seq=0) as again:  # all of it once more
            same = await again.wait_type("run.completed")
            one = await traced(world, ended.frame.event_id, phone)
            assert (one["state"], one["type"], one["name"]) == ("traced", "run.completed", "first")
            (here, there) = one["written"]
            assert here["event_id"] == ended.frame.event_id
            assert there["event_id"] == same.frame.event_id
            assert (len(here["at"]), len(there["at"])) == (1, 2)
            for at in here["at"] + there["at"]:
                stamps = [one[s] for s in ("hook", "received", "folded", "committed")]
                assert stamps == sorted(stamps)
                assert stamps[-1] <= at
            assert one["folded"] == ended.frame.ts
            # The same event by the other phone's id of it.
            mirrored = await traced(world, same.frame.event_id, other)
            assert mirrored.keys() == one.keys()
            for stage in ("hook", "received", "folded", "committed", "written"):
                assert mirrored[stage] == one[stage]


async def test_an_event_of_loomids_own_has_no_hook(world):
    async with world.paired() as (phone, connection):
        await world.online()
        told = await connection.wait_type("gateway.status")
        one = await traced(world, told.frame.event_id, phone)
        assert one["hook"] is None
        assert one["received"] is None
        assert one["folded"] <= one["committed"] <= one["written"][0]["at"][0]
        assert "loomid itself caused it" in await ctl(world, told.frame.event_id)


async def test_what_people_read(world):
    secret = "what the agent said"
    async with world.paired("Ada's phone") as (phone, connection):
        await world.online()
        async with world.paired("late") as (late, _):
            world.turn("t1", text=secret)
            ended = await connection.wait_type("run.completed")
            one = await traced(world, ended.frame.event_id, phone)
        told = await ctl(world, ended.frame.event_id, "--device", "Ada's phone")
        lines = told.splitlines()
        assert lines[0] == (
            f"{ended.frame.event_id} of Ada's phone ({phone.device_id}): run.completed"
        )
        assert [line.split()[0] for line in lines[1:]] == [
            "hook", "received", "folded", "committed", "written", "written"
        ]  # fmt: skip
        assert f"late ({late.device_id}, as {one['written'][1]['event_id']})" in lines[-1]
        assert secret not in told + json.dumps(one)


async def test_each_phone_counts_its_own_events(world):
    """Without --device: every phone that has an event of this id; others need not be named."""
    async with world.paired("first") as (_, connection):
        await world.online()
        world.turn("t1")
        await connection.wait_type("run.completed")
        await world.measured(lambda now: now("facts_total", kind="turn.ended") == 1)
        async with world.paired("second") as (second, its):
            world.turn("t2", tools=2)
            ended = await its.wait_type("run.completed")
            event_id = ended.frame.event_id
            found = json.loads(await ctl(world, event_id, "--json"))["devices"]
            assert {one["name"] for one in found} == {"first", "second"}
            (of_second,) = (one for one in found if one["name"] == "second")
            assert (of_second["state"], of_second["type"]) == ("traced", "run.completed")
            told = await ctl(world, event_id)
            assert f"{event_id} of second ({second.device_id}): run.completed" in told


async def test_no_such_event_and_no_phone(world):
    for said in ("no phone is paired", "there is no event e_999999999"):
        for form, out in (((), ""), (("--json",), "{")):
            done = await asyncio.to_thread(
                loomictl, world.daemon.runtime_dir, "trace", "e_999999999", *form
            )
            assert (done.returncode, done.stdout[:1], done.stderr.count("\n")) == (1, out, 1)
            assert said in done.stderr
        for name in ("first", "second"):
            async with world.paired(name):
                pass


async def test_after_a_restart_it_is_too_old(world):
    async with world.paired() as (phone, connection):
        await world.online()
        world.turn("t1")
        ended = await connection.wait_type("run.completed")
    await asyncio.to_thread(world.daemon.restart)
    one = await traced(world, ended.frame.event_id, phone)
    assert (one["state"], one["type"]) == ("too_old", "run.completed")
    assert "too old" in await ctl(world, ended.frame.event_id)
