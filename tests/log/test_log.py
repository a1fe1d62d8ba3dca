"""Commit then visible, positions and control frames, the ring, the window, restarts."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from loomid.database import FILE_MARK
from loomid.lmp import envelope
from loomid.log import Batch, Gone
from loomid.positions import BLOCK, Exhausted
from tests.support.log import (
    WINDOW,
    asked,
    completed,
    delta,
    gateway,
    open_log,
    push,
    resolved,
    started,
    text_of,
    tool_started,
)

if TYPE_CHECKING:
    from pathlib import Path


async def test_events_are_visible_in_order_after_their_commit(path: Path):
    async with open_log(path) as log:
        start = log.visible
        calls: list[int] = []
        unwatch = log.watch(lambda: calls.append(log.visible))
        await push(log, "a", "b")
        assert [text_of(one) for one in log.read(start, 10)] == ["a", "b"]
        assert calls == [start + 2]
        assert log.visible == start + 2
        unwatch()
        await push(log, "c")
        assert len(calls) == 1
        assert [text_of(one) for one in log.read(start + 1, 1)] == ["b"]
        assert [text_of(one) for one in log.read(start + 2, 10)] == ["c"]
        assert log.read(log.visible, 10) == []


async def test_a_control_frame_waits_for_the_events_below_it(path: Path):
    async with open_log(path) as log:
        assert log.take_position() == log.visible
        order: list[str] = []
        log.watch(lambda: order.append(f"visible {log.visible}"))
        async with asyncio.TaskGroup() as group:
            group.create_task(push(log, "a", "b"))
            await asyncio.sleep(0)
            before = log.visible
            control = log.take_position()
            assert control == before + 3
            assert log.visible == before
        assert order == [f"visible {control}"]
        assert [one.position for one in log.read(before, 9)] == [before + 1, before + 2]


async def test_while_one_batch_is_shown_the_next_is_being_stored(path: Path):
    async with open_log(path) as log:
        start, seen = log.visible, []

        def look() -> None:
            seen.append(([text_of(one) for one in log.read(start, 9)], log.visible - start))

        log.watch(look)
        await asyncio.gather(push(log, "a", "b"), push(log, "c"))
        assert seen == [(["a", "b"], 2), (["a", "b", "c"], 3)]
        assert log.take_position() == start + 4


async def test_who_waits_for_a_moment_at_rest_gets_it_between_two_batches(path: Path):
    async with open_log(path) as log:
        start = log.visible

        def step() -> tuple[int, int, int]:
            return log.behind(start), log.visible, log.take_position()

        async with asyncio.TaskGroup() as group:
            for text in "ab":
                group.create_task(push(log, text))
            await asyncio.sleep(0)  # now one is on its way
            assert log.take_position() > log.visible
            behind, visible, position = await log.at_rest(step)
        assert (behind, position) == (1, visible + 1)
        (_, b) = log.read(start, 9)
        assert b.position > position


async def test_what_is_urgent(path: Path):
    async with open_log(path) as log:
        after = log.visible
        await log.commit(Batch(events=[started(), delta("x"), asked("a"), resolved("a")]))
        await log.commit(Batch(events=[completed()]))
        assert [(one.type, one.urgent) for one in log.read(after, 9)] == [
            ("run.started", False),
            ("run.delta", False),
            ("approval.required", True),
            ("approval.resolved", True),
            ("run.completed", True),
        ]


async def test_a_restart_shows_the_same_events_at_the_same_positions(path: Path):
    async with open_log(path) as log:
        start = log.visible
        await push(log, *(str(i) for i in range(700)))
        shown = list(log.read(start, 1000))
        last = log.visible
    async with open_log(path) as log:
        assert log.visible > last
        assert list(log.read(shown[-WINDOW - 1].position, 1000)) == shown[-WINDOW:]
        with pytest.raises(Gone):
            log.read(shown[-WINDOW - 2].position, 1000)


async def test_the_window_is_what_can_be_resumed(path: Path):
    async with open_log(path) as log:
        base = log.visible
        await push(log, *(str(i) for i in range(WINDOW)))
        assert log.resumable(base)
        await push(log, "one more")
        assert not log.resumable(base)
        assert log.resumable(base + 1)
        assert log.resumable(log.visible)
        assert not log.resumable(log.visible + 1)
    async with open_log(path) as log:
        assert not log.resumable(base)
        assert log.resumable(base + 1)
        assert len(log.read(base + 1, 9999)) == WINDOW
    async with open_log(path, window=10) as log:
        assert log.window == WINDOW
        assert log.resumable(base + 1)


async def test_positions_between_two_starts_belong_to_nobody(path: Path):
    async with open_log(path) as log:
        await push(log, "a")
        last = log.visible
    async with open_log(path, clean=False) as log:
        assert log.resumable(last)
        assert not log.resumable(last + 1)
        crashed = log.take_position()
    async with open_log(path) as log:
        assert log.resumable(crashed)
        assert log.resumable(crashed + 1000)  # reserved: it may have been handed out
        assert not log.resumable(crashed + 2 * BLOCK)
        assert log.visible > crashed + BLOCK - 10


async def test_nothing_before_a_power_loss_can_be_resumed(path: Path):
    async with open_log(path, boot_id="one", clean=False) as log:
        await push(log, "a")
        before = log.visible
    async with open_log(path, boot_id="one", clean=False) as log:
        assert log.resumable(before)
        between = log.visible
    async with open_log(path, boot_id="two", clean=False) as log:
        assert not log.resumable(before)
        assert not log.resumable(between)
        after = log.visible
        assert log.resumable(after)
    async with open_log(path, boot_id="two") as log:
        assert not log.resumable(before)
        assert log.resumable(after)


async def test_a_clean_stop_survives_a_reboot(path: Path):
    async with open_log(path, boot_id="one") as log:
        await push(log, "a")
        before = log.visible
    async with open_log(path, boot_id="two") as log:
        assert log.resumable(before)


async def test_a_clock_set_back_does_not_bring_positions_back(path: Path):
    async with open_log(path) as log:
        await push(log, "a")
        last = log.visible
    async with open_log(path, clock=lambda: 1000.0) as log:
        assert log.visible > last


async def test_positions_run_out_only_while_none_can_be_reserved(path: Path):
    async with open_log(path) as log:
        for _ in range(BLOCK):
            log.take_position()
        with pytest.raises(Exhausted):
            log.take_position()
        await push(log, "a")  # reserves
        last = log.take_position()
    async with open_log(path) as log:
        assert log.visible > last


async def test_positions_are_reserved_in_time(path: Path):
    async with open_log(path) as log:
        tending = None
        async with asyncio.TaskGroup() as group:
            tending = group.create_task(log.tend())
            for _ in range(BLOCK * 2 // 1000):
                await asyncio.sleep(0)
                for _ in range(1000):
                    position = log.take_position()
                async with asyncio.timeout(5):
                    while log._taken.wanted.is_set():  # noqa: ASYNC110 - a thread's work
                        await asyncio.sleep(0.001)
            tending.cancel()
    async with open_log(path) as log:
        assert log.visible > position


async def test_a_database_restored_in_place(path: Path, tmp_path: Path):
    """Of a copy made while loomid was stopped, to the same file: even the inode is the same."""
    async with open_log(path) as log:
        await push(log, "a")
        stopped = log.visible
    shutil.copyfile(path, tmp_path / "copy")
    async with open_log(path, clean=False) as log:
        await push(log, "b")
        lost = log.visible
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    shutil.copyfile(tmp_path / "copy", path)
    async with open_log(path) as log:
        assert log.resumable(stopped)
        assert not log.resumable(lost)


async def test_a_copy_of_the_file_is_another_file(path: Path):
    async with open_log(path) as log:
        await push(log, "a")
        before = log.visible
    try:
        os.removexattr(path, FILE_MARK)  # as cp, scp or rsync would
    except OSError:
        pytest.skip("no extended attributes here")
    async with open_log(path) as log:
        assert not log.resumable(before)
        assert log.resumable(log.visible)


async def test_a_slow_reader_is_told(path: Path):
    async with open_log(path) as log:
        start = log.visible
        for _ in range(12):
            await push(log, *("x" for _ in range(512)))
        with pytest.raises(Gone):
            log.read(start, 10)
        assert len(log.read(log.visible - 4096, 9999)) == 4096


async def test_the_projection_is_what_it_was(path: Path):
    events = [
        gateway("gw", online=False),
        started("run_1"),
        delta("over", "run_1"),
        completed("run_1"),
        started("run_2"),
        asked("a"),
        asked("b"),
        delta("so ", "run_2"),
        resolved("a"),
        gateway("gw"),
        tool_started("c", "run_2"),
        delta("far", "run_2", iteration=2),
    ]
    async with open_log(path, clean=False) as log:
        await log.commit(Batch(events=events[:7]))
        await log.commit(Batch(events=events[7:]))
        await push(log, *("x" for _ in range(600)))
        before = log.projection
    async with open_log(path) as log:
        assert log.projection.snapshot() == before.snapshot()
        assert log.projection.pending() == before.pending()
        assert log.projection.live_runs() == ["run_2"]


async def test_lasting_events_come_back_as_replay(path: Path):
    async with open_log(path) as log:
        start = log.visible
        await log.commit(
            Batch(events=[started(), delta("x"), completed(ts=50.0), resolved("a"), completed("r")])
        )
        upto = log.visible
        await log.commit(Batch(events=[resolved("b")]))
        found = await log.lasting(start, upto, 200, 40.0)
        assert [one.type for one in found] == [
            "run.completed",
            "approval.resolved",
            "run.completed",
        ]
        frame, _ = envelope.decode_server(envelope.render(7, found[0].parts))
        assert (frame.replay, frame.ts, frame.seq) == (True, 50.0, 7)
        found = await log.lasting(start, upto, 1, 60.0)
        assert [one.position for one in found] == [upto]
        assert len(await log.lasting(start, upto, 9, 60.0)) == 2
