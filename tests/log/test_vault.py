"""Devices, tokens, requests and tasks on a real file."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loomid.lmp import scopes
from loomid.log import Batch
from loomid.store import Store
from loomid.vault import Device, Intent, Request, TaskRow, Token, Vault
from tests.support.log import open_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def vault(path: Path) -> AsyncIterator[Vault]:
    async with await Store.open(path, time.time) as store:
        yield Vault(store)


def device(name: str, base: int = 0) -> Device:
    return Device(f"dev_{name}", name, b"hash of " + name.encode(), base, 5.0)


INTENT = Intent("session.send", "cmd_1", "gw", "boot", 7.0)


async def pair(vault: Vault, name: str) -> Device:
    await vault.add_token(name.encode(), Token(100.0, None, scopes.ALL), 1.0)
    assert await vault.redeem(name.encode(), device(name), 50.0) == "ok"
    return device(name)


async def test_the_secret_is_made_once(path: Path):
    async with await Store.open(path, time.time) as store:
        one, two = await asyncio.gather(Vault(store).secret(), Vault(store).secret())
    async with await Store.open(path, time.time) as store:
        assert one == two == await Vault(store).secret()
        assert len(one) == 32


async def test_a_token_pairs_one_device(vault: Vault):
    await vault.add_token(b"token", Token(100.0, "kitchen", scopes.ALL), 1.0)
    results = await asyncio.gather(
        *(vault.redeem(b"token", device(str(i)), 50.0) for i in range(8))
    )
    assert sorted(results) == ["ok", *["used"] * 7]
    assert await vault.devices() == [device(str(results.index("ok")))]


async def test_two_processes_redeem_one_token(path: Path):
    async with await Store.open(path, time.time) as one, await Store.open(path, time.time) as two:
        for i in range(20):
            await Vault(one).add_token(b"%d" % i, Token(100.0, None, scopes.ALL), 1.0)
            results = await asyncio.gather(
                Vault(one).redeem(b"%d" % i, device(f"a{i}"), 50.0),
                Vault(two).redeem(b"%d" % i, device(f"b{i}"), 50.0),
            )
            assert sorted(results) == ["ok", "used"]
        assert len(await Vault(one).devices()) == 20


async def test_tokens_that_pair_nobody(vault: Vault):
    await vault.add_token(b"old", Token(10.0, None, scopes.ALL), 1.0)
    assert await vault.redeem(b"never", device("a"), 5.0) == "unknown"
    assert await vault.redeem(b"old", device("a"), 10.0) == "expired"
    await vault.prune_tokens(before=11.0)
    assert await vault.redeem(b"old", device("a"), 5.0) == "unknown"
    assert await vault.devices() == []


async def test_what_changes_of_a_device(vault: Vault):
    paired = await pair(vault, "a")
    await vault.set_base(paired.device_id, 77)
    await vault.confirm_device(paired.device_id)
    await vault.seen(paired.device_id, 9.5, "Pixel", "15", "1.0")
    assert await vault.change_device(paired.device_id, {"name": "b"}, [])
    assert not await vault.change_device("dev_nobody", {"name": "b"}, [])
    assert await vault.devices() == [
        replace(
            paired,
            name="b",
            base=77,
            confirmed=True,
            last_seen=9.5,
            model="Pixel",
            os="15",
            app_version="1.0",
        )
    ]
    await vault.begin(paired.device_id, "r", b"f", INTENT)
    assert await vault.remove_device(paired.device_id, "loomictl", 9.0)
    assert not await vault.remove_device(paired.device_id, "loomictl", 9.0)
    assert await vault.devices() == []
    assert await vault.open_requests() == []


async def test_a_request_is_begun_once(vault: Vault):
    begun = await asyncio.gather(*(vault.begin("dev", "r", b"f", INTENT) for _ in range(5)))
    standing = Request("dev", "r", b"f", "session.send", "open", None, "cmd_1", "gw", "boot", 7.0)
    assert [one for one in begun if one is None] == [None]
    assert [one for one in begun if one is not None] == [standing] * 4
    assert await vault.open_requests() == [standing]
    await vault.finish("dev", "r", b"answer")
    again = await vault.begin("dev", "r", b"other", INTENT)
    assert again == replace(standing, state="done", answer=b"answer")
    assert await vault.begin("dev2", "r", b"f", INTENT) is None
    await vault.forget("dev", "r", "ok")
    assert await vault.begin("dev", "r", b"f", INTENT) is None


async def test_256_requests_are_remembered_and_every_open_one(vault: Vault):
    await vault.begin("other", "r", b"f", INTENT)
    await vault.finish("other", "r", b"")
    await vault.begin("dev", "open", b"f", INTENT)
    for i in range(260):
        await vault.begin("dev", f"r{i}", b"f", INTENT)
        await vault.finish("dev", f"r{i}", b"")
    assert await vault.begin("other", "r", b"f", INTENT) is not None
    assert await vault.begin("dev", "open", b"f", INTENT) is not None
    assert await vault.begin("dev", "r4", b"f", INTENT) is not None
    assert await vault.begin("dev", "r3", b"f", INTENT) is None


def task(name: str, updated_at: float) -> TaskRow:
    return TaskRow(name, "gw", f"key:{name}", "s", "T", "loomi", "m", 1.0, updated_at, 3, "p")


async def test_tasks_by_pages(vault: Vault):
    rows = [task(f"t{i}", float(i // 2)) for i in range(6)]
    await vault.upsert_tasks(rows)
    newest = rows[::-1]
    assert await vault.tasks(9) == newest
    assert await vault.tasks(2) == newest[:2]
    assert await vault.tasks(9, (newest[2].updated_at, newest[2].task_id)) == newest[3:]
    assert await vault.tasks(9, only=["t1", "t4", "t9"]) == [rows[4], rows[1]]
    assert await vault.tasks(9, only=[]) == []
    assert await vault.tasks(9, exclude=["t1", "t4"]) == [rows[i] for i in (5, 3, 2, 0)]
    assert await vault.task("t3") == rows[3]
    assert await vault.task("t9") is None


async def test_what_hermes_says_of_a_task_and_what_was_seen(path: Path):
    from loomid.lmp.runs import TaskSeen

    async with await Store.open(path, time.time) as store, open_log(path) as log:
        vault = Vault(store)
        seen = TaskSeen("t", "gw", "key:t", "s", "loomi", None, 20.0, "hello")
        await log.commit(Batch(tasks=[seen]))
        new = TaskRow("t", "gw", "key:t", "s", "", "loomi", None, 20.0, 20.0, 0, "hello")
        assert await vault.task("t") == new
        await vault.upsert_tasks([replace(task("t", 10.0), session_key=None)])
        assert await vault.task("t") == replace(task("t", 20.0))
        later = replace(seen, session_key=None, session_id="s2", at=30.0, prompt=None)
        await log.commit(Batch(tasks=[later]))
        assert await vault.task("t") == replace(task("t", 30.0), session_id="s2")
