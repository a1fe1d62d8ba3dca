"""Asking a shim for what became of many commands at once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from loomid.calls import Calls
from loomid.errors import GatewayOffline, OutcomeUnknown
from loomid.roster import RECALLS, Boot
from tests.support.link import Daemon, Shim, daemon
from tests.support.waiting import until

MANY = RECALLS + 10


async def hanging(it: Daemon, shim: Shim, group: asyncio.TaskGroup) -> list[asyncio.Task[object]]:
    """Recalls of commands that run and have no result yet, more than are asked at once."""
    names = [f"c{n}" for n in range(MANY)]
    for name in names:
        group.create_task(_command(it, name))
    await until(lambda: len(shim.commands) == MANY)
    asked = [group.create_task(_recalled(it, name)) for name in names]
    await until(lambda: waiting(it) == MANY + RECALLS)
    return asked


def waiting(it: Daemon) -> int:
    """For how many answers of shims somebody waits."""
    return len(it.gateways._calls._waiting)


async def _command(it: Daemon, name: str) -> None:
    with suppress(OutcomeUnknown):
        await it.gateways.command("gw1", "cancel", {}, command_id=name)


async def _recalled(it: Daemon, name: str) -> object:
    try:
        return await it.gateways.recall("gw1", "boot1", name)
    except GatewayOffline as error:
        return error


async def test_a_shim_is_asked_for_no_more_than_it_keeps(path, shim_of):
    shim = shim_of()
    shim.answer = False
    shim.link.start()
    async with daemon(path, deadline_s=60.0) as it:
        await until(lambda: it.gateways.boot_of("gw1"))
        async with asyncio.TaskGroup() as group:
            asked = await hanging(it, shim, group)
            for command in shim.commands:
                shim.link.reply({"id": command.id, "error": None, "value": {}})
            await until(lambda: all(one.done() for one in asked))
        assert not [one for one in asked if isinstance(one.result(), GatewayOffline)]


async def test_one_that_hangs_does_not_hold_up_another(path, shim_of):
    shim = shim_of()
    shim.answer = False
    shim.link.start()
    other = shim_of(gateway_id="gw2", boot="boot2")
    other.link.start()
    async with daemon(path, deadline_s=60.0) as it:
        await until(lambda: it.gateways.boot_of("gw1") and it.gateways.boot_of("gw2"))
        async with asyncio.TaskGroup() as group:
            asked = await hanging(it, shim, group)
            async with asyncio.timeout(20.0):
                assert await it.gateways.recall("gw2", "boot2", "never") is None
            await asyncio.to_thread(shim.link.stop, 0.1)
            await until(lambda: all(one.done() for one in asked))


async def _heard(calls: Calls, boot: Boot, name: str) -> object:
    try:
        return await calls.recall(boot, name)
    except GatewayOffline as error:
        return error


async def test_who_waits_to_ask_hears_that_it_was_given_up():
    sent: list[object] = []
    calls = Calls(lambda _, message: not sent.append(message), 60.0)
    boot = Boot("gw1", "boot1", online=True)
    async with asyncio.timeout(20.0), asyncio.TaskGroup() as group:
        recalls = [group.create_task(_heard(calls, boot, f"c{n}")) for n in range(MANY)]
        await until(lambda: len(sent) == RECALLS)
        boot.online = False
        calls.broken(boot)
    heard = [one.result() for one in recalls]
    assert {type(one) for one in heard} == {GatewayOffline}
    assert len(sent) == RECALLS
