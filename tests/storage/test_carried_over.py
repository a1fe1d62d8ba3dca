"""`loomictl db restore`: what the database that is replaced knows better than the copy."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from loomid import dbtool
from loomid.lmp import scopes
from loomid.lmp.decisions import OWNER, Claim
from loomid.log import Batch
from loomid.positions import BLOCK
from loomid.store import Store
from loomid.vault import Device, Intent, Token, Vault
from tests.support.log import asked, open_log, push, resolved, text_of


async def test_positions_are_carried_over(tmp_path: Path) -> None:
    """Also those that a clock which is wrong by now has led to."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path, clock=time.time) as log:
        await push(log, "a")
    dbtool.backup(path, copy)
    async with open_log(path, clock=lambda: time.time() + 86_400.0, clean=False) as log:
        await push(log, "b")
        reserved = log.visible + BLOCK - 10
    dbtool.restore(tmp_path, copy)
    async with open_log(path) as log:
        assert log.visible > reserved
        assert not log.resumable(reserved)
        assert [text_of(one) for one in log.read(0, 9)] == ["a"]


async def test_where_devices_count_from_is_carried_over(tmp_path: Path) -> None:
    """Else a number of theirs could mean a place in the new start that they never saw."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    device = Device("dev_1", "Pixel", bytes(32), 5, 1.0)
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        await vault.add_token(bytes(32), Token(time.time() + 9, None, scopes.ALL), 1.0)
        assert await vault.redeem(bytes(32), device, time.time()) == "ok"
        dbtool.backup(path, copy)
        await vault.set_base("dev_1", -7)
        await vault.change_device("dev_1", {"name": "Other"}, [])
    dbtool.restore(tmp_path, copy)
    async with await Store.open(path, time.time) as store:
        assert await Vault(store).devices() == [replace(device, base=-7)]


@pytest.mark.parametrize("case", ["removed since", "asked for", "another database", "cut short"])
async def test_who_was_revoked_stays_so_where_that_is_known(tmp_path: Path, case: str) -> None:
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    device = Device("dev_1", "Pixel", bytes(32), 5, 1.0)
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        await vault.secret()
        before = path.with_name("loomid.db-wal").stat().st_size
        await vault.add_token(bytes(32), Token(time.time() + 9, None, scopes.ALL), 1.0)
        await vault.add_token(bytes(31), Token(time.time() + 9, None, scopes.ALL), 1.0)
        assert await vault.redeem(bytes(32), device, time.time()) == "ok"
        await vault.begin("dev_1", "r", b"", Intent("t", None, None, None, 1.0))
        dbtool.backup(path, copy)
        assert await vault.remove_device("dev_1", "loomictl", time.time())
        if case == "cut short":
            for one in (path, path.with_name("loomid.db-wal")):
                (tmp_path / f"{one.name}.kept").write_bytes(one.read_bytes())
    if case == "another database":
        path.unlink()
        async with await Store.open(path, time.time) as store:
            await Vault(store).secret()
    elif case == "cut short":
        (tmp_path / "loomid.db.kept").replace(path)
        log = bytearray((tmp_path / "loomid.db-wal.kept").read_bytes())
        log[before + 100] ^= 1  # SQLite takes what comes before: a database without the phone
        path.with_name("loomid.db-wal").write_bytes(log)
    done = dbtool.restore(tmp_path, copy, bring_back=case == "asked for")
    assert done.missing == [("dev_1", "Pixel")]
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        back = case != "removed since"
        assert (done.back, bool(await vault.devices())) == (back, back)
        assert bool(await vault.open_requests()) == back
        assert [used for *_, used, _ in await vault.tokens()] == [1]


async def test_positions_are_carried_over_by_whatever_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a battery begins in 1970."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    async with open_log(path, clock=time.time) as log:
        await push(log, "a")
    dbtool.backup(path, copy)
    async with open_log(path, clock=time.time, clean=False) as log:
        await push(log, "b", "c")
        shown = log.visible
    with monkeypatch.context() as early:
        early.setattr(time, "time", lambda: 86_400.0)
        dbtool.restore(tmp_path, copy)
    async with open_log(path, clock=lambda: 86_400.0) as log:
        assert log.visible > shown


async def test_what_became_of_answers_is_carried_over(tmp_path: Path) -> None:
    """Else a phone that repeats its answer would hear that nothing ran."""
    path, copy = tmp_path / "loomid.db", tmp_path / "copy"
    claims = [
        Claim(f"apr_{n}", device, f"r{n}", "once", f"c{n}:gw1:boot1", 3.0)
        for n, device in enumerate((OWNER, "dev_2", "dev_2"), 1)
    ]
    async with open_log(path) as log, await Store.open(path, time.time) as store:
        await log.commit(Batch(events=[asked("apr_1"), asked("apr_2")]))
        dbtool.backup(path, copy)
        await log.commit(Batch(events=[asked("apr_3")]))
        for one in claims:
            intent = Intent("approval.resolve", one.command_id, "gw1", "boot1", 3.0)
            await Vault(store).begin(one.device_id, one.request_id, b"f", intent)
            await store.ledger.claim(one)
        await log.commit(Batch(events=[resolved("apr_2"), resolved("apr_3")]))
    dbtool.restore(tmp_path, copy)
    async with await Store.open(path, time.time) as store:
        found = {one.id: one for one in await store.ledger.latest(9)}
        assert {name: one.state for name, one in found.items()} == {
            "apr_1": "claimed",
            "apr_2": "applied",
            "apr_3": "applied",
        }
        assert [one.request_id for one in await Vault(store).open_requests()] == ["r1", "r2", "r3"]
        assert found["apr_1"].claim == claims[0]
