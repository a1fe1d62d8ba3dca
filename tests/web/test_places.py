"""Places at the door: first come, first served; the oldest yields only after a while."""

import asyncio

import pytest

from loomid import places
from loomid.places import Places


async def test_the_next_in_the_queue_gets_a_free_place():
    door = Places(1, 2)
    first = await door.enter()
    async with asyncio.TaskGroup() as tasks:
        second, third = (tasks.create_task(door.enter()) for _ in range(2))
        await asyncio.sleep(0)
        assert door.crowded
        first.leave()
        first.leave()
        place = await second
        assert not third.done()
        place.leave()
        (await third).leave()


async def test_who_gives_up_waiting_keeps_no_place():
    door = Places(1, 2)
    first = await door.enter()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(door.enter(), 0.01)
    assert not door.crowded
    first.leave()
    (await door.enter()).leave()


async def test_the_oldest_yields_to_who_waits(monkeypatch):
    monkeypatch.setattr(places, "YIELD_AFTER_S", 0.05)
    door, told = Places(2, 2), []
    for name in ("a", "b"):
        place = await door.enter()
        place.yield_ = lambda name=name: told.append(name)
    await door.enter()
    assert told == ["a"]
