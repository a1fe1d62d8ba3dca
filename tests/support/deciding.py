"""Phones and loomictl that answer approvals of one daemon, and what each of them is told."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.loomictl import loomictl
from tests.support.phone import Connection, Got, Phone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.daemon import Daemon

LOST = {"state": "lost", "choice": "deny", "outcome": "lost", "decided_by": "agent"}
WAIT_S = 60.0
"""Turns of a real Hermes may take long to come to a question."""
_serial = itertools.count(1)


@asynccontextmanager
async def phones(daemon: Daemon, count: int) -> AsyncIterator[list[Connection]]:
    """So many newly paired phones, connected."""
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(count):
            code = await asyncio.to_thread(daemon.pair)
            phone = Phone(daemon.url, ["snapshot"])
            connections.append(await stack.enter_async_context(phone.connect(code["qr"]["token"])))
        yield connections


async def asked(phone: Connection, command: str) -> str:
    """Wait until this phone is asked for a command; the approval's id."""
    got = await find(phone, "approval.required", command=command)
    return str(got.payload["approval_id"])


async def find(phone: Connection, type_: str, **fields: Any) -> Got:
    """Wait for the first frame of this type with these values."""

    def found() -> Got | None:
        for got in phone.got:
            if got.type == type_ and all(got.payload.get(k) == v for k, v in fields.items()):
                return got
        return None

    got: Got = await phone.wait_for(found, WAIT_S)
    return got


async def tap(phone: Connection, approval_id: str, choice: str) -> Got:
    """Answer on a phone: the result or error frame."""
    body = {"approval_id": approval_id, "choice": choice, "request_id": f"r{next(_serial)}"}
    return await phone.request("approval.resolve", **body)


async def ledger(daemon: Daemon) -> dict[str, dict[str, Any]]:
    """What the owner is shown, by approval id."""
    found = await asyncio.to_thread(daemon.call, "GET", "/approvals")
    return {one["approval_id"]: one for one in found["approvals"]}


async def approve(
    daemon: Daemon, approval_id: str, choice: str
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(loomictl, daemon.runtime_dir, "approve", approval_id, choice)


@dataclass
class Said:
    """What one who answered was told: that it won, or what was decided by another."""

    device_id: str
    choice: str
    won: bool
    told: str
    """The choice that stands."""


async def by_phone(phone: Connection, approval_id: str, choice: str) -> Said:
    answer = (await tap(phone, approval_id, choice)).payload
    if answer.get("state") == "accepted":
        return Said(str(phone.phone.device_id), choice, True, answer["choice"])
    assert answer["code"] == "already_resolved"
    return Said(str(phone.phone.device_id), choice, False, answer["params"]["choice"])


async def by_owner(daemon: Daemon, approval_id: str, choice: str) -> Said:
    done = await approve(daemon, approval_id, choice)
    if done.returncode == 0:
        assert done.stdout == f"Applied: {choice}.\n"
        return Said("loomictl", choice, True, choice)
    told = re.search(r"decided already.*choice: (\w+)", done.stderr)
    assert told is not None, done.stderr
    return Said("loomictl", choice, False, told[1])
