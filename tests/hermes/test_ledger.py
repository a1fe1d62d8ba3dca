"""Approvals of real gateways, answered by phones and loomictl at once: what the ledger and
everybody is told is what Hermes did."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.deciding import (
    LOST,
    WAIT_S,
    Said,
    asked,
    by_owner,
    by_phone,
    find,
    ledger,
    phones as connected,
    tap,
)
from tests.support.hermes import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

    from tests.matrix.world import World
    from tests.support.phone import Connection

COUNT = 12


def ran(decision: dict[str, Any]) -> bool:
    """Whether Hermes lets the command run, by what the place that waits is told."""
    return decision["resolved"] and decision["choice"] not in (None, "deny")


@asynccontextmanager
async def phones(world: World) -> AsyncIterator[list[Connection]]:
    """Three phones, once the gateway is there."""
    await asyncio.to_thread(until, lambda: _online(world), 60, "the gateway is online")
    async with connected(world.daemon, 3) as connections:
        yield connections


def _online(world: World) -> bool:
    return any(gateway["online"] for gateway in world.daemon.status()["gateways"])


async def guard(world: World, chat: str, connections: list[Connection]) -> dict[str, str]:
    """Many dangerous commands of one session at once: command → approval id."""
    commands = [f"rm -rf /tmp/{chat}-{i}" for i in range(COUNT)]
    key = f"agent:main:other:dm:{chat}"
    await world.ask_other("guard", session_key=key, commands=commands)
    for phone in connections[1:]:
        for command in commands:
            await asked(phone, command)
    return {command: await asked(connections[0], command) for command in commands}


async def decisions(world: World) -> dict[str, dict[str, Any]]:
    """What Hermes made of each command, once it has of all."""
    return await asyncio.to_thread(
        until,
        lambda: len(found := world.gateway.ask("answers")) == COUNT and found,
        30,
        "Hermes has decided all",
    )


async def test_parallel_approvals_of_one_session(world: World) -> None:
    """Each answer lands on its own command, whoever gives it, in whatever order."""
    chance = random.Random(int(world.release.name))
    async with phones(world) as connections:
        names = await guard(world, "many", connections)
        answers: list[tuple[str, Awaitable[Said]]] = []
        for i, (command, name) in enumerate(names.items()):
            choice = chance.choice(["once", "deny"])
            one, other = chance.sample(connections, 2)
            first = by_owner(world.daemon, name, choice) if i < 2 else by_phone(one, name, choice)
            answers.append((command, first))
            if i % 3 == 0:
                answers.append((command, by_phone(other, name, "session")))
        chance.shuffle(answers)
        said = await asyncio.gather(*(answer for _, answer in answers))
        told = [(command, answer) for (command, _), answer in zip(answers, said, strict=True)]
        did = await decisions(world)
        rows = await ledger(world.daemon)
        for command, name in names.items():
            (won,) = [one for about, one in told if about == command and one.won]
            assert {one.told for about, one in told if about == command} == {won.choice}
            assert (did[command]["resolved"], did[command]["choice"]) == (True, won.choice)
            by = "local" if won.device_id == "loomictl" else "remote"
            truth = {"choice": won.choice, "decided_by": by, "outcome": "applied"}
            for phone in connections:
                end = await find(phone, "approval.resolved", approval_id=name)
                assert end.payload == {"approval_id": name, **truth}
            assert (rows[name]["state"], rows[name]["device_id"]) == ("applied", won.device_id)


async def test_turns_of_several_sessions_and_of_one_reply(world: World, tmp_path: Path) -> None:
    """The commands are real: what was allowed has run, and nothing else."""
    folders = [tmp_path / str(i) for i in range(6)]
    for folder in folders:
        folder.mkdir()
    remove = [f"rm -rf {folder}" for folder in folders]
    async with phones(world) as connections:
        one, two, three = connections
        texts = [f"danger {remove[0]}", f"danger {remove[1]}", f"dangers {' & '.join(remove[2:])}"]
        for i, (phone, text) in enumerate(zip(connections, texts, strict=True)):
            await phone.request("session.send", text=text, request_id=f"send{i}")
        # Those of one reply come one after the other, or, in 0.22, at once.
        answered = [
            _allow_even(three if i % 3 else two, command, i)
            for i, command in reversed([*enumerate(remove)])
        ]
        await asyncio.gather(*answered)
        for i, command in enumerate(remove):
            name = await asked(one, command)
            end = await find(one, "approval.resolved", approval_id=name)
            choice = "deny" if i % 2 else "once"
            assert (end.payload["choice"], end.payload["outcome"]) == (choice, "applied")
        await one.wait_type("run.completed", 3, WAIT_S)
    assert [folder.exists() for folder in folders] == [bool(i % 2) for i in range(6)]


async def _allow_even(phone: Connection, command: str, i: int) -> None:
    answer = await tap(phone, await asked(phone, command), "deny" if i % 2 else "once")
    assert answer.payload["state"] == "accepted"


async def test_answers_at_the_deadline(world: World) -> None:
    """From 100 ms before to 50 ms after it, as phones are told it: an answer takes some way."""
    async with phones(world) as connections:
        names = await guard(world, "edge", connections)

        async def answer(i: int, command: str) -> tuple[dict[str, Any], dict[str, Any]]:
            phone, name = connections[i % 3], names[command]
            question = await find(phone, "approval.required", approval_id=name)
            at = question.payload["deadline_ts"] - 0.1 + 0.15 * i / (COUNT - 1)
            await asyncio.sleep(at - time.time())
            first = await tap(phone, name, "once")
            end = await find(phone, "approval.resolved", approval_id=name)
            late = await tap(connections[(i + 1) % 3], name, "once")
            truth = {k: end.payload[k] for k in ("choice", "outcome", "decided_by")}
            assert late.payload["params"] == {**truth, "state": truth["outcome"]}
            if first.type == "error":
                assert first.payload["params"] == late.payload["params"]
            return end.payload, first.payload

        ends = await asyncio.gather(*(answer(i, c) for i, c in enumerate(names)))
        did = await decisions(world)
        for command, (end, first) in zip(names, ends, strict=True):
            if ran(did[command]):
                assert (end["outcome"], end["choice"]) == ("applied", "once")
                assert (end["decided_by"], first["state"]) == ("remote", "accepted")
            else:
                assert (end["outcome"], end["choice"]) == ("expired", "deny")


async def test_a_killed_gateway(world: World) -> None:
    async with phones(world) as connections:
        names = await guard(world, "gone", connections)
        await asyncio.to_thread(world.gateway.kill)
        try:
            for phone in connections:
                for name in names.values():
                    end = await find(phone, "approval.resolved", approval_id=name)
                    assert end.payload == {"approval_id": name, **_of(LOST)}
            for i, name in enumerate(names.values()):
                assert (await tap(connections[i % 3], name, "once")).payload["params"] == LOST
            rows = await ledger(world.daemon)
            assert {rows[name]["state"] for name in names.values()} == {"lost"}
        finally:
            await asyncio.to_thread(world.gateway.start)


def _of(params: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if name != "state"}
