"""The ledger of approvals on a real file: one row an approval, as true as its events."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from loomid import ledger as ledger_module
from loomid.database import MIGRATIONS
from loomid.errors import AlreadyResolved, UnknownApproval
from loomid.lmp import envelope, frames
from loomid.lmp.decisions import Claim, Entry
from loomid.lmp.frames import Event
from loomid.log import Batch
from loomid.store import Store
from loomid.vault import Intent, Vault
from tests.support.log import asked, open_log, resolved

if TYPE_CHECKING:
    from pathlib import Path

    from loomid.ledger import Ledger

CLAIM = Claim("apr_1", "dev_1", "r1", "once", "cmd_1", 3.0)


def ended(approval_id: str, outcome: Any, at: float | None = None) -> Event:
    how = frames.ApprovalResolved(
        approval_id=approval_id, choice="deny", decided_by="timeout", outcome=outcome
    )
    return Event(how, at or time.time(), "task_1", "run_1")


async def entry(ledger: Ledger, approval_id: str = "apr_1") -> Entry:
    found = await ledger.get(approval_id)
    assert found is not None
    return found


async def claim(store: Store, one: Claim) -> None:
    """As a request of its device does."""
    intent = Intent("approval.resolve", one.command_id, "g", "b", one.at)
    await Vault(store).begin(one.device_id, one.request_id, b"f", intent)
    await store.ledger.claim(one)


async def test_a_row_begins_and_ends_with_its_events(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        question = asked("apr_1")
        await log.commit(Batch(events=[question]))
        opened = await entry(store.ledger)
        assert (opened.state, opened.asked_at, opened.preview) == (
            "pending",
            question.ts,
            "rm -rf /",
        )
        # Both in one batch, and the end of one that the ledger does not know.
        both = [asked("apr_2"), ended("apr_2", "expired"), resolved("apr_x"), resolved("apr_1")]
        await log.commit(Batch(events=both))
        first, second = await entry(store.ledger), await entry(store.ledger, "apr_2")
        assert (first.state, first.choice, first.decided_by) == ("applied", "once", "remote")
        assert (second.state, second.choice, second.decided_by) == ("expired", "deny", "timeout")
        assert await store.ledger.get("apr_x") is None


async def test_a_batch_that_is_not_stored_leaves_no_row(path: Path):
    """The row is in the transaction of the event, and another attempt changes nothing."""
    async with await Store.open(path, time.time) as other, open_log(path) as log:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            commit = asyncio.gather(log.commit(Batch(events=[asked("apr_1")])))
            while log.health.failing_since is None:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
            assert await other.ledger.get("apr_1") is None
            holder.execute("ROLLBACK")
            await commit
        await claim(other, CLAIM)
        await log.commit(Batch(events=[asked("apr_1"), ended("apr_1", "expired")]))
        await log.commit(Batch(events=[asked("apr_1"), resolved("apr_1")]))
        known = await entry(other.ledger)
        assert (known.state, known.answer, known.choice) == ("expired", "once", "deny")


async def test_one_of_many_answers_wins(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        with pytest.raises(UnknownApproval):
            await claim(store, CLAIM)
        await log.commit(Batch(events=[asked("apr_1")]))
        claims = [Claim("apr_1", f"dev{i}", "r", "once", f"cmd{i}", 3.0) for i in range(5)]
        results = await asyncio.gather(
            *(claim(store, one) for one in claims), return_exceptions=True
        )
        winner = claims[results.index(None)]
        refused = [one for one in results if isinstance(one, AlreadyResolved)]
        assert [one.params for one in refused] == [{"state": "claimed", "choice": "once"}] * 4
        known = await entry(store.ledger)
        assert (known.claim, known.shown_to) == (winner, winner.device_id)
        assert await store.ledger.of_request(winner.device_id, "r") == known
        assert await store.ledger.of_request("dev_9", "r") is None


async def test_a_claim_is_given_back_with_its_open_request(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        vault, ledger = Vault(store), store.ledger
        await log.commit(Batch(events=[asked("apr_1"), asked("apr_2")]))
        await claim(store, CLAIM)
        assert not await ledger.give_back(Claim("apr_1", "dev_2", "r", "deny", "cmd_2", 3.0))
        assert await ledger.give_back(CLAIM)
        known = await entry(ledger)
        assert (known.state, known.claim, known.shown_to) == ("shown", None, "dev_1")
        assert await vault.request("dev_1", "r1") is None
        # One that ended meanwhile keeps its end.
        late = Claim("apr_2", "dev_1", "r2", "once", "cmd_2", 3.0)
        await claim(store, late)
        await log.commit(Batch(events=[ended("apr_2", "lost")]))
        assert not await ledger.give_back(late)
        assert (await entry(ledger, "apr_2")).state == "lost"


async def test_who_was_shown_it_first_is_noted_once(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        await log.commit(Batch(events=[asked("apr_1"), asked("apr_2")]))
        await claim(store, Claim("apr_2", "dev_3", "r", "once", "cmd", 3.0))
        for device in ("dev_1", "dev_2"):
            seen = {"apr_1": device, "apr_2": device, "apr_x": device}
            await store.ledger.shown(seen, 7.0)
        known, claimed = await entry(store.ledger), await entry(store.ledger, "apr_2")
        assert (known.state, known.shown_to, known.shown_at) == ("shown", "dev_1", 7.0)
        assert (claimed.state, claimed.shown_to) == ("claimed", "dev_3")


async def test_what_ended_is_kept_for_the_retention_and_no_more_than_so_many(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ledger_module, "ENDED_KEPT", 3)
    async with (
        await Store.open(path, time.time) as store,
        open_log(path, retention_s=60.0) as log,
    ):
        now = time.time()
        questions = [Event(asked(f"apr_{i}").payload, now - 100, "t", "r") for i in range(7)]
        await log.commit(Batch(events=questions))
        ends = [ended(f"apr_{i}", "expired", now - 90 + i) for i in range(2)]
        ends += [ended(f"apr_{i}", "expired", now - 10 + i) for i in range(2, 6)]
        await log.commit(Batch(events=ends))
        latest = [one.id for one in await store.ledger.latest(2)]
        assert latest == ["apr_6", "apr_5", "apr_4"]
        await log.upkeep.forget()
        left = [one.id for one in await store.ledger.latest(100)]
        assert left == ["apr_6", "apr_5", "apr_4", "apr_3"]


async def test_what_the_first_schema_knew_is_kept(path: Path):
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        for statement in MIGRATIONS[0]:
            old.execute(statement)
        old.execute("PRAGMA user_version = 1")
        events = [asked(f"apr_{name}") for name in ("waits", "won", "done", "lost_to")]
        events += [resolved("apr_done"), resolved("apr_long_ago"), ended("apr_lost_to", "expired")]
        for position, event in enumerate(events, 1):
            lasting = event.type == "approval.resolved"
            row = (position, event.ts, event.type, event.task_id, event.run_id, lasting)
            body = envelope.encode_payload(event.payload)
            old.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, body))
        for name in ("won", "lost_to", "alone"):
            claim = (f"apr_{name}", "dev_1", f"r_{name}", "once", f"c_{name}", 3.0)
            old.execute("INSERT INTO claim VALUES (?, ?, ?, ?, ?, ?)", claim)
    async with await Store.open(path, time.time) as store:
        found = {one.id.removeprefix("apr_"): one for one in await store.ledger.latest(9)}
    assert {name: one.state for name, one in found.items()} == {
        "waits": "pending",
        "won": "claimed",
        "alone": "claimed",
        "done": "applied",
        "long_ago": "applied",
        "lost_to": "expired",
    }
    assert found["won"].claim == Claim("apr_won", "dev_1", "r_won", "once", "c_won", 3.0)
    assert found["won"].preview == "rm -rf /"
    assert found["alone"].claim is not None
    assert (found["lost_to"].answer, found["lost_to"].choice) == ("once", "deny")
    assert (found["done"].choice, found["done"].decided_by) == ("once", "remote")
    assert found["long_ago"].ended_at is not None
