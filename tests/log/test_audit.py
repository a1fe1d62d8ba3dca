"""The audit on a real file: as true as what it tells of, and bounded."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loomid import audit, dbtool
from loomid.audit import Deed
from loomid.lmp import scopes
from loomid.lmp.decisions import Claim
from loomid.log import Batch
from loomid.store import Store
from loomid.vault import Device, Intent, Token, Vault
from tests.support.log import asked, open_log, resolved

if TYPE_CHECKING:
    from pathlib import Path

ANN = Device("dev_1", "Ann's", bytes(32), 0, 1.0, scopes=("view",))


async def pair(vault: Vault, device: Device, token: bytes = b"t") -> None:
    now = time.time()
    await vault.add_token(token, Token(now + 9, None, device.scopes), now)
    assert await vault.redeem(token, device, now) == "ok"


async def told(vault: Vault, device_id: str | None = None) -> list[tuple[str, str, str | None]]:
    """Oldest first: who, action, name."""
    rows = await vault.audit.latest(device_id, 0.0)
    return [(one["who"], one["action"], one["name"]) for one in reversed(rows)]


async def test_devices(path: Path) -> None:
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        await pair(vault, ANN)
        assert await vault.redeem(b"t", replace(ANN, device_id="dev_2"), time.time()) == "used"
        change = Deed(time.time(), "loomictl", "device.scopes", "dev_1")
        assert await vault.change_device("dev_1", {"scopes": scopes.ALL}, [change])
        assert not await vault.change_device("dev_2", {"scopes": scopes.ALL}, [change])
        assert await vault.remove_device("dev_1", "loomictl", time.time())
        assert not await vault.remove_device("dev_1", "loomictl", time.time())
        assert await told(vault) == [
            ("dev_1", "device.paired", "Ann's"),
            ("loomictl", "device.scopes", None),
            ("loomictl", "device.revoked", None),
        ]
        assert await told(vault, "dev_1") == await told(vault)
        assert await told(vault, "dev_2") == []


async def test_an_end_and_its_row_are_one_transaction(path: Path) -> None:
    """What is not stored of the event is not stored of the audit either."""
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        await log.commit(Batch(events=[asked("apr_1")]))
        claim = Claim("apr_1", "dev_1", "r1", "once", "cmd_1", 3.0)
        await Vault(store).begin(
            "dev_1", "r1", b"f", Intent("approval.resolve", "cmd_1", "g", "b", 3.0)
        )
        await store.ledger.claim(claim)
        seen: list[tuple[str, str | None]] = []

        def look(statement: str) -> None:
            """At each COMMIT of the log: before it both are as they were, for others."""
            if statement == "COMMIT":
                with closing(sqlite3.connect(path)) as other:
                    seen.extend(
                        other.execute(
                            """SELECT decision.state, outcome FROM decision, audit
                            WHERE about = decision.id"""
                        )
                    )

        await log._store._line.run(lambda line: line.set_trace_callback(look))
        await log.commit(Batch(events=[resolved("apr_1")]))
        await log._store._line.run(lambda line: line.set_trace_callback(None))
        assert seen == [("claimed", None)]
        (row,) = await Vault(store).audit.latest(None, 0.0)
        assert (row["who"], row["detail"], row["outcome"]) == (
            "dev_1",
            {"choice": "once"},
            "applied",
        )


async def test_bounded_by_time_and_by_kind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of one device's messages pushes out neither its own answers nor another's rows."""
    monkeypatch.setattr(audit, "KEPT", 3)
    async with (
        await Store.open(path, time.time) as store,
        open_log(path, retention_s=60.0) as log,
    ):
        vault, now = Vault(store), time.time()
        await vault.audit.note(Deed(now - 61, "dev_1", "device.paired"))
        await vault.audit.note(Deed(now - 9, "dev_1", "approval.resolve"))
        await vault.audit.note(Deed(now - 9, "dev_2", "session.send"))
        for _ in range(5):
            await vault.audit.note(Deed(now, "dev_1", "session.send"))
        await log.upkeep.forget()
        assert await told(vault) == [
            ("dev_1", "approval.resolve", None),
            ("dev_2", "session.send", None),
            *[("dev_1", "session.send", None)] * 3,
        ]
        assert len(await vault.audit.latest(None, now - 1)) == 3
        monkeypatch.setattr(audit, "SHOWN", 2)
        assert len(await vault.audit.latest(None, 0.0)) == 2


async def test_a_restore_neither_forgets_nor_gives_back(path: Path) -> None:
    """Rows since the copy stay, and so do scopes that were taken since."""
    copy = path.with_name("copy")
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        await pair(vault, replace(ANN, scopes=scopes.ALL))
        dbtool.backup(path, copy)
        deed = Deed(time.time(), "loomictl", "device.scopes", "dev_1", {"to": ["view"]})
        await vault.change_device("dev_1", {"scopes": ("view",)}, [deed])
        await vault.audit.note(Deed(time.time(), "dev_1", "refused", "session.send"))
        before = await vault.audit.latest(None, 0.0)
    dbtool.restore(path.parent, copy)
    async with await Store.open(path, time.time) as store:
        vault = Vault(store)
        assert [one.scopes for one in await vault.devices()] == [("view",)]
        assert await vault.audit.latest(None, 0.0) == before
        assert len(before) == 3
