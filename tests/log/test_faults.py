"""A disk that fails or stalls: nothing is lost or doubled, control frames keep flowing."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from loomid import positions
from loomid.lmp import envelope
from loomid.lmp.frames import Event
from loomid.log import Batch, Log
from loomid.store import Store
from loomid.vault import Vault
from tests.support import disk
from tests.support.log import (
    arrival,
    completed,
    delta,
    open_log,
    push,
    started,
    text_of,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Stall:
    """The thread of a store hangs at a statement, until it may go on."""

    def __init__(self, statement: str) -> None:
        self.go, self.hung = threading.Event(), threading.Event()
        self._statement = statement

    @classmethod
    async def begin(cls, store: Store, statement: str = "COMMIT") -> Stall:
        stall = cls(statement)
        await store._line.run(lambda line: line.set_trace_callback(stall._trace))
        return stall

    def _trace(self, executed: str) -> None:
        if executed == self._statement and not self.go.is_set():
            self.hung.set()
            self.go.wait(30)


async def texts(log: Log, after: int) -> list[str]:
    return [text_of(one) for one in log.read(after, 9999)]


async def test_a_locked_database(path: Path, caplog: pytest.LogCaptureFixture):
    async with open_log(path) as log:
        start = log.visible
        await push(log, "before")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.TaskGroup() as group:
                group.create_task(push(log, "a", "b"))
                await until(lambda: log.health.failing_since is not None)
                controls = []
                for _ in range(100):
                    position = log.take_position()
                    await until(lambda: log.visible >= position)  # noqa: B023 - awaited here
                    controls.append(position)
                assert await texts(log, start) == ["before"]
                await asyncio.sleep(1.0)
                other.execute("ROLLBACK")
        assert log.health.failing_since is None
        assert await texts(log, start) == ["before", "a", "b"]
        shown = [one.position for one in log.read(start + 1, 9)]
        assert min(shown) > max(controls)
        assert log.visible == max(shown)
    said = [one.levelno for one in caplog.records if one.name == "loomid.health"]
    assert said == [logging.ERROR, logging.WARNING]
    async with open_log(path) as log:
        assert await texts(log, start) == ["before", "a", "b"]


async def told_while_it_hangs(log: Log, storing: asyncio.Task[None]) -> None:
    """Before a commit has come to its transaction; control frames pass it."""
    await until(lambda: log.health.failing_since is not None)
    assert log.health.reason == "too slow"
    assert log.take_position() <= log.visible
    assert not storing.done()


async def test_a_lock_while_positions_are_reserved(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(positions, "BLOCK", 8)
    async with open_log(path) as log, asyncio.TaskGroup() as group:
        start = log.visible
        await push(log, *"abcde")
        with disk.locked(path):
            storing = group.create_task(push(log, *"vwxyz"))
            await told_while_it_hangs(log, storing)
        await storing
        assert log.health.failing_since is None
        assert await texts(log, start) == [*"abcdevwxyz"]


async def test_a_disk_that_hangs_while_room_is_made(tmp_path: Path):
    ext4 = disk.Ext4(tmp_path / "image", tmp_path / "mounted")
    with ext4.mounted() as place:
        async with open_log(place / "loomid.db") as log, asyncio.TaskGroup() as group:
            start = log.visible
            await push(log, "a")
            log.upkeep.room.wrote(2**40)
            with ext4.frozen():
                storing = group.create_task(push(log, "b"))
                await told_while_it_hangs(log, storing)
            await storing
            assert log.health.failing_since is None
            assert await texts(log, start) == ["a", "b"]


async def test_a_failed_attempt_burns_no_positions(path: Path):
    async with open_log(path) as log:
        start = log.visible
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.TaskGroup() as group:
                group.create_task(push(log, "a"))
                await until(lambda: log.health.failing_since is not None)
                other.execute("ROLLBACK")
        assert log.visible == start + 1


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
async def test_a_stalled_disk(path: Path, statement: str):
    """The thread hangs before or in the COMMIT, which then succeeds after all."""
    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        start = log.visible
        await push(log, "before")
        stall = await Stall.begin(store, statement)
        async with asyncio.TaskGroup() as group:
            first = Batch([delta("a"), delta("b")], [(arrival(1), "t")], acks={("gw", "b"): 1})
            group.create_task(log.commit(first))
            group.create_task(push(log, "c"))
            await until(stall.hung.is_set)
            waiting = log.take_position()
            assert log.visible < waiting
            await until(lambda: log.visible >= waiting)
            assert log.health.failing_since is not None
            control = log.take_position()
            assert log.visible == control
            assert await texts(log, start) == ["before"]
            stall.go.set()
        assert await texts(log, start) == ["before", "a", "b", "c"]
        shown = list(log.read(start, 99))
        assert shown[1].position > control
        assert await store.facts() == [(arrival(1), "t")]
        await log.close()
    async with open_log(path) as log:
        assert list(log.read(start, 99)) == shown


async def test_killed_after_a_stalled_commit_that_succeeded(path: Path):
    """Phones have seen later numbers: what was stored gets new ones, and comes once."""
    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        start = log.visible
        await push(log, "before")
        stall = await Stall.begin(store)
        async with asyncio.TaskGroup() as group:
            batch = Batch([started("run_9"), delta("a"), delta("b")], [(arrival(1), "t")])
            storing = group.create_task(log.commit(batch))
            await until(stall.hung.is_set)
            waiting = log.take_position()
            await until(lambda: log.visible >= waiting)
            seen = log.take_position()
            assert await log.lasting(start, seen, 99, 0.0) == []
            storing.cancel()
            stall.go.set()
    async with open_log(path, clean=False) as log:
        assert log.resumable(seen)
        entries = log.read(seen, 9)
        assert [entry.type for entry in entries] == ["run.started", "run.delta", "run.delta"]
        assert log.read(start, 9)[1:] == entries
        assert log.visible == entries[-1].position
        assert list(log.projection.live_runs()) == ["run_9"]
        await push(log, "c")
    async with open_log(path) as log:
        assert log.read(seen, 9)[:3] == entries
        assert list(log.projection.live_runs()) == ["run_9"]


async def test_given_up_without_a_place_for_the_note(path: Path):
    """Nothing is shown behind a batch until it is known what became of it."""
    async with await Store.open(path, time.time) as store:
        nowhere = path.parent / "no" / "where"
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel", given_up=nowhere)
        start = log.visible
        stall = await Stall.begin(store)
        async with asyncio.TaskGroup() as group:
            group.create_task(push(log, "a"))
            await until(stall.hung.is_set)
            behind = log.take_position()
            with pytest.raises(TimeoutError):
                await until(lambda: log.visible >= behind, 2.5)
            stall.go.set()
        assert await texts(log, start) == ["a"]
        assert log.visible > behind
        await log.close()


async def test_a_full_disk(path: Path):
    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        start = log.visible
        await push(log, "before")

        def room(pages: int) -> Callable[[sqlite3.Connection], object]:
            return lambda line: line.execute(f"PRAGMA max_page_count = {pages}").fetchone()

        await store._line.run(room(1))  # as small as the file is
        async with asyncio.TaskGroup() as group:
            group.create_task(push(log, "x" * 100_000, "y"))
            await until(lambda: log.health.failing_since is not None)
            control = log.take_position()
            await until(lambda: log.visible >= control)
            await store._line.run(room(2**30))
        assert [len(one) for one in await texts(log, start)] == [6, 100_000, 1]
        await log.close()


async def test_the_vault_waits_for_a_long_commit_and_the_log_for_the_vault(path: Path):
    async with await Store.open(path, time.time) as store, open_log(path) as log:
        vault = Vault(store)
        async with asyncio.TaskGroup() as group:
            for i in range(50):
                group.create_task(push(log, str(i)))
                group.create_task(vault.set_base("dev", i))
        assert log.health.failing_since is None


async def test_a_commit_that_is_cancelled_keeps_what_is_numbered_behind_it_waiting(path: Path):
    async with open_log(path) as log:
        start = log.visible
        task = None
        async with asyncio.TaskGroup() as group:
            task = group.create_task(push(log, "a"))
            await asyncio.sleep(0)
            control = log.take_position()
            task.cancel()
        assert log.visible < control
    async with open_log(path) as log:
        # Shown after the restart if it was stored; no phone was told of anything beyond.
        assert await texts(log, start) in ([], ["a"])


async def test_behind_a_commit_that_is_broken_off_nothing_is_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As at a stop just after a commit was too slow: its facts are stored, and acknowledged or
    not; the events of the next one must not be stored instead of its own."""
    monkeypatch.setattr("loomid.log.COMMIT_S", 0.0)
    async with open_log(path) as log:
        start = log.visible
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(push(log, "a"))
            behind = group.create_task(push(log, "b"))
            await until(lambda: log.health.failing_since is not None)
            monkeypatch.setattr("loomid.log.COMMIT_S", 10.0)
            slow.cancel()
            await asyncio.wait([slow])
            await log._store.settle()
            assert not behind.done()
            behind.cancel()
    async with open_log(path) as log:
        assert await texts(log, start) in ([], ["a"])


async def test_an_event_that_cannot_be_encoded_becomes_a_placeholder(
    path: Path, caplog: pytest.LogCaptureFixture
):
    async with open_log(path) as log:
        start = log.visible
        await push(log, "a", "secret \ud800", "b")
        assert await texts(log, start) == ["a", "[not shown: UnicodeEncodeError]", "b"]
        assert log.odd == {"unencodable": 1}
    assert "secret" not in caplog.text
    assert "a run.delta is unencodable: UnicodeEncodeError" in caplog.text


async def test_a_run_whose_end_cannot_be_encoded_ends(path: Path):
    """And so do others: what comes in its place keeps the order of a run's events."""
    async with open_log(path) as log:
        for text in ("\ud800", object()):
            end = completed()
            odd = msgspec.structs.replace(end.payload, text=text)
            await log.commit(Batch(events=[started(), Event(odd, end.ts, "task_1", "run_1")]))
            assert log.projection.live_runs() == []
        told = [one.type for one in log.read(0, 9)]
        assert told == ["run.started", "run.completed", "run.started", "run.failed"]
    async with open_log(path) as log:
        assert log.projection.live_runs() == []


async def test_what_cannot_be_told_at_all_is_a_notification(path: Path):
    async with open_log(path) as log:
        start = log.visible
        payload = msgspec.structs.replace(delta("x").payload, text=object())
        await log.commit(Batch(events=[Event(payload, 1.0, "task_1", "run_1")]))
        (one,) = log.read(start, 9)
        frame, told = envelope.decode_server(envelope.render(1, one.parts))
        assert (frame.type, frame.run_id) == ("notification", "run_1")
        assert told.source == "loomid"
        assert told.text == "loomid could not tell a run.delta: TypeError"


async def test_what_is_stored_and_cannot_be_read_stops_no_start(path: Path):
    async with open_log(path) as log:
        await log.commit(
            Batch(
                events=[started("run_1"), started("run_2")],
                facts=[(arrival(1), "t1"), (arrival(2), "t2")],
            )
        )
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE event SET payload = x'7b7d' WHERE run_id = 'run_1'")
        other.execute("UPDATE fact SET body = x'7b7d' WHERE tag = 't1'")
        other.execute(
            "INSERT INTO fact SELECT 9, 'g', 'b', 3, t, at, 'no', body, tag FROM fact LIMIT 1"
        )
    async with open_log(path) as log:
        assert log.projection.live_runs() == ["run_2"]
        assert log.odd == {"unreadable": 1}
        assert [a.n for a, _ in await log._store.facts()] == [2]
        assert log._store.unreadable == {"delta": 1, "no": 1}


async def test_a_batch_that_takes_long_is_stored_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """However slow the disk is: an attempt that was given up is given more time."""
    monkeypatch.setattr("loomid.log.COMMIT_S", 0.05)

    def slow(executed: str) -> None:
        if executed == "COMMIT":
            time.sleep(0.2)

    async with await Store.open(path, time.time) as store:
        log = await Log.open(store, window=512, clock=time.time, boot_id="kernel")
        start = log.visible
        await store._line.run(lambda connection: connection.set_trace_callback(slow))
        async with asyncio.timeout(10):
            await push(log, "a", "b")
        assert await texts(log, start) == ["a", "b"]
        await log.close()


async def test_a_stop_that_cannot_be_recorded_is_a_stop(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Store, "end", fails)
    async with open_log(path) as log:
        await push(log, "a")
    assert "cannot record a clean stop" in caplog.text
