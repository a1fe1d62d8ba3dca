"""The ring: bounded in number and in bytes, and honest about what has left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loomid import ring
from loomid.ring import Entry, Gone, Ring
from tests.support.log import open_log, push, text_of

if TYPE_CHECKING:
    from pathlib import Path


def entry(position: int, size: int = 10) -> Entry:
    return Entry(position, b"x" * size, "run.delta", urgent=False)


def positions(it: Ring) -> list[int]:
    return [one.position for one in it.read(it.floor, 10**6)]


def test_small_events_are_bounded_in_number():
    it = Ring(512)
    for position in range(1, 20_001):
        it.extend([entry(position)])
    shown = positions(it)
    assert shown == list(range(it.floor + 1, 20_001))
    assert ring.MAX_ENTRIES <= len(shown) <= ring.MAX_ENTRIES * 5 // 4
    assert it.window_floor == 20_000 - 512
    with pytest.raises(Gone):
        it.read(it.floor - 1, 1)


def test_large_events_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ring, "MAX_BYTES", 100_000)
    it = Ring(512)
    for position in range(1, 1001):
        it.extend([entry(position, 1000)])
        assert sum(len(one.parts) for one in it.read(it.floor, 10**6)) <= 100_000
    assert positions(it) == list(range(it.floor + 1, 1001))
    assert len(positions(it)) >= 75
    assert it.window_floor == it.floor
    it.extend([entry(1001, 500_000)])
    assert positions(it) == [1001]
    it.extend([entry(1002)])
    assert positions(it) == [1002]


async def test_a_start_loads_no_more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "loomid.db"
    async with open_log(path) as log:
        await push(log, *(f"{i:4} " + "x" * 995 for i in range(100)))
        before = [one.position for one in log.read(log._ring.floor, 999)]
    monkeypatch.setattr("loomid.log.MAX_BYTES", 50_000)
    async with open_log(path) as log:
        shown = log.read(log._ring.floor, 999)
        assert [int(text_of(one)[:4]) for one in shown] == list(range(100 - len(shown), 100))
        assert 40 <= len(shown) < 50
        assert log._ring.floor == before[-len(shown) - 1]
        assert log.resumable(log._ring.floor)
        assert not log.resumable(log._ring.floor - 1)
