"""Approvals from a gateway through the daemon to phones and loomictl, all at once.

The gateway is a stand-in that decides as Hermes does; its word is the truth that everybody
must be told.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.support.answering import Host, key_of
from tests.support.daemon import ROOT, Daemon
from tests.support.deciding import (
    LOST,
    Said,
    approve,
    asked,
    by_owner,
    by_phone,
    find,
    ledger,
    phones,
    tap,
)
from tests.support.loomictl import loomictl
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

COUNT = 20


async def test_twenty_at_once_each_answer_on_its_own_command(
    daemon: Daemon, stand_in: Host
) -> None:
    """By five phones and loomictl, in any order; half are answered twice."""
    chance = random.Random(7)
    async with phones(daemon, 5) as connections:
        for i in range(COUNT):
            stand_in.ask(f"s{i}", command=f"rm -rf /tmp/{i}")
        names: dict[str, str] = {}
        for i in range(COUNT):
            (names[f"s{i}"],) = {await asked(phone, f"rm -rf /tmp/{i}") for phone in connections}
        taps: list[tuple[str, Awaitable[Said]]] = []
        for i, (shim_id, name) in enumerate(names.items()):
            choices = chance.sample(["once", "session", "deny"], 2)
            first, second = chance.sample(connections, 2)
            owners = i % 5 == 0
            taps.append(
                (shim_id, by_owner(daemon, name, choices[0]))
                if owners
                else (shim_id, by_phone(first, name, choices[0]))
            )
            if i % 2:
                taps.append((shim_id, by_phone(second, name, choices[1])))
        chance.shuffle(taps)
        said = list(
            zip(
                [shim_id for shim_id, _ in taps],
                await asyncio.gather(*(one for _, one in taps)),
                strict=True,
            )
        )
        ends = {
            shim_id: [
                (await find(phone, "approval.resolved", approval_id=name)).payload
                for phone in connections
            ]
            for shim_id, name in names.items()
        }
        rows = await ledger(daemon)

    decided = {shim_id: choice for shim_id, choice, _ in stand_in.decided}
    assert len(stand_in.decided) == len(decided) == len(stand_in.ops("approve")) == COUNT
    for shim_id, name in names.items():
        answers = [one for asked_of, one in said if asked_of == shim_id]
        (won,) = [one for one in answers if one.won]
        assert {one.told for one in answers} == {won.choice} == {decided[shim_id]}
        row = rows[name]
        assert (row["state"], row["choice"]) == ("applied", won.choice)
        assert (row["device_id"], row["answer"]) == (won.device_id, won.choice)
        by = "local" if won.device_id == "loomictl" else "remote"
        truth = {"choice": won.choice, "decided_by": by, "outcome": "applied"}
        assert ends[shim_id] == [{"approval_id": name, **truth}] * 5


async def test_at_the_deadline_everybody_is_told_what_the_host_did(
    daemon: Daemon, stand_in: Host
) -> None:
    async with phones(daemon, 5) as connections:
        for i in range(COUNT):
            stand_in.ask(f"s{i}", command=f"rm -rf /tmp/{i}", timeout_s=0.5)
        ids = [await asked(connections[i % 5], f"rm -rf /tmp/{i}") for i in range(COUNT)]
        deadline = time.monotonic() + 0.5
        for i in range(COUNT):
            stand_in.expire_at(f"s{i}", deadline)

        async def answer(i: int) -> None:
            """From 50 ms before to 50 ms after."""
            at = deadline - 0.05 + 0.1 * i / (COUNT - 1)
            await asyncio.sleep(at - time.monotonic())
            first = await tap(connections[i % 5], ids[i], "once")
            late = await tap(connections[(i + 1) % 5], ids[i], "deny")
            end = await find(connections[i % 5], "approval.resolved", approval_id=ids[i])
            later = await tap(connections[(i + 2) % 5], ids[i], "deny")
            [(_, choice, command_id)] = [one for one in stand_in.decided if one[0] == f"s{i}"]
            if choice == "timeout":
                truth = {"choice": "deny", "outcome": "expired", "decided_by": "timeout"}
            else:
                assert choice == "once"
                assert command_id is not None
                assert first.payload["state"] == "accepted"
                truth = {"choice": "once", "outcome": "applied", "decided_by": "remote"}
            assert {name: end.payload[name] for name in truth} == truth
            assert later.payload["params"] == {**truth, "state": truth["outcome"]}
            assert late.payload["params"]["state"] in ("claimed", truth["outcome"])
            if first.type == "error":
                assert first.payload["params"] == later.payload["params"]

        await asyncio.gather(*(answer(i) for i in range(COUNT)))
        assert len(stand_in.decided) == COUNT
        rows = await ledger(daemon)
        told = {name: row["state"] for name, row in rows.items()}
        ran = {shim_id for shim_id, choice, _ in stand_in.decided if choice == "once"}
        assert told == {
            name: "applied" if f"s{i}" in ran else "expired" for i, name in enumerate(ids)
        }


async def test_an_answer_that_did_not_run_is_told_to_all_and_can_be_given_again(
    daemon: Daemon, stand_in: Host
) -> None:
    stand_in.errors["approve"] = "starting"
    async with phones(daemon, 2) as (one, two):
        stand_in.ask("s1", command="rm -rf /")
        approval_id = await asked(two, "rm -rf /")
        await asked(one, "rm -rf /")
        body = {"approval_id": approval_id, "choice": "once", "request_id": "mine"}
        accepted = await one.request("approval.resolve", **body)
        assert accepted.payload["state"] == "accepted"
        mine = {"device_id": one.phone.device_id, "request_id": "mine", "reason": "gateway_offline"}
        for phone in (one, two):
            again = await find(phone, "approval.required", returned=mine)
            assert again.frame.replay
            assert again.payload["approval_id"] == approval_id
            assert again.payload["choices"]
        failed = await approve(daemon, approval_id, "once")
        assert failed.returncode == 1
        assert "waits again" in failed.stderr
        stand_in.errors.clear()
        await one.send("approval.resolve", body)
        await find(two, "approval.resolved", approval_id=approval_id, outcome="applied")
        answers = [got.payload for got in one.got if got.payload.get("request_id") == "mine"]
        assert answers == [accepted.payload] * 2
    assert [(choice, bool(by)) for _, choice, by in stand_in.decided] == [("once", True)]


async def test_the_ledger_says_who_was_shown_it(daemon: Daemon, stand_in: Host) -> None:
    stand_in.ask("s1")
    await until(lambda: daemon.status()["pending_approvals"])
    (row,) = (await ledger(daemon)).values()
    assert (row["state"], row["shown_to"]) == ("pending", None)
    async with phones(daemon, 1) as (phone,):
        async with asyncio.timeout(10):
            while row["state"] == "pending":
                (row,) = (await ledger(daemon)).values()
        assert (row["state"], row["shown_to"]) == ("shown", phone.phone.device_id)
        assert row["shown_at"] >= row["asked_at"]


async def test_loomictl_lists_what_waits_and_what_became_of_the_rest(
    daemon: Daemon, stand_in: Host
) -> None:
    empty = await asyncio.to_thread(loomictl, daemon.runtime_dir, "approvals")
    assert (empty.returncode, empty.stdout) == (0, "")
    stand_in.ask("s1", command="rm -rf /tmp/\x1b[31mred\n" + "x" * 80)
    async with phones(daemon, 1) as (phone,):
        got = await phone.wait_type("approval.required")
        name = got.payload["approval_id"]
        table = await asyncio.to_thread(loomictl, daemon.runtime_dir, "approvals")
        head, row = table.stdout.splitlines()
        columns = ["APPROVAL", "STATE", "CHOICE", "BY", "WHEN", "ENDS", "TASK", "COMMAND"]
        assert head.split() == columns
        assert row.startswith(name)
        assert re.search(r" seconds? ago +in \d+ (seconds|minutes) ", row)
        assert "\x1b" not in table.stdout
        wrong = await approve(daemon, "apr_nothing", "once")
        assert (wrong.returncode, "there is no approval" in wrong.stderr) == (1, True)
        nonsense = await approve(daemon, name, "yes")
        assert (nonsense.returncode, "for 'CHOICE'" in nonsense.stderr) == (2, True)
        unoffered = await approve(daemon, name, "always")
        assert (unoffered.returncode, "not offered" in unoffered.stderr) == (1, True)
        offered = [one["choice"] for one in got.payload["choices"]]
        assert f"(choices: {', '.join(offered)})" in unoffered.stderr
        done = await approve(daemon, name.removeprefix("apr_")[:8], "deny")
        assert (done.returncode, done.stdout) == (0, "Applied: deny.\n")
        late = await approve(daemon, name, "once")
        assert late.returncode == 1
        assert "decided_by: local" in late.stderr
        table = await asyncio.to_thread(loomictl, daemon.runtime_dir, "approvals")
        assert table.stdout.splitlines()[1].split()[:4] == [name, "applied", "deny", "loomictl"]
        assert re.search(r" ago +- ", table.stdout)
        assert re.search(rf"loomictl answered {name}: deny$", daemon.log(), re.MULTILINE)
        listed = await asyncio.to_thread(loomictl, daemon.runtime_dir, "approvals", "--json")
        (row,) = json.loads(listed.stdout)["approvals"]
        assert (row["state"], row["choice"], row["device_id"]) == ("applied", "deny", "loomictl")
        stand_in.ask("s2", command="make")
        body = {"approval_id": await asked(phone, "make"), "choice": "once", "request_id": "r1"}
        await phone.request("approval.resolve", **body)
        await find(phone, "approval.resolved", approval_id=body["approval_id"])
        table = await asyncio.to_thread(loomictl, daemon.runtime_dir, "approvals")
        assert f" once    Pixel ({phone.phone.device_id}) " in table.stdout


class Process:
    """A gateway in a process of its own, that asks and never decides."""

    def __init__(self, socket: Path, boot: str = "b1") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.host", "--socket", str(socket), "--boot", boot],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, shim_id: str, command: str) -> None:
        body = {"approval_id": shim_id, "session_key": key_of("c1"), "session_id": "s-c1"}
        body |= {"turn_id": None, "call_id": None, "command": command, "description": ""}
        body |= {"choices": ["once", "deny"], "smart_denied": False, "timeout_s": 60.0}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"emit": "approval.asked", "body": body}) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


async def test_a_gateway_that_was_killed_has_approved_nothing(daemon: Daemon) -> None:
    gateway = Process(daemon.runtime_dir / "hermes.sock")
    try:
        for i in range(3):
            gateway.ask(f"s{i}", f"rm -rf /tmp/{i}")
        async with phones(daemon, 2) as (one, two):
            ids = [await asked(one, f"rm -rf /tmp/{i}") for i in range(3)]
            assert (await tap(one, ids[0], "once")).payload["state"] == "accepted"
            gateway.kill()
            for name in ids:
                end = await find(two, "approval.resolved", approval_id=name)
                told = [end.payload[field] for field in ("choice", "decided_by", "outcome")]
                assert told == ["deny", "agent", "lost"]
            for name in ids:
                assert (await tap(two, name, "once")).payload["params"] == LOST
        await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        async with two.phone.connect() as again:
            for name in ids:
                assert (await tap(again, name, "once")).payload["params"] == LOST
    finally:
        gateway.kill()
