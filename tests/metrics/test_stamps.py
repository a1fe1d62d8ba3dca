"""Stamps and buckets by themselves: exact, and bounded."""

from __future__ import annotations

import math

import pytest

from loomid import stamps
from loomid.histogram import BOUNDS_S, Histogram
from loomid.lmp import frames
from loomid.lmp.frames import Event
from loomid.stamps import Stamps


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def it(clock: Clock) -> Stamps:
    return Stamps(clock)


def events(count: int, cause: tuple[float, float] | None, folded: float) -> list[Event]:
    payload = frames.RunDelta(run_id="r", text="x", kind="text", iteration=1)
    return [Event(payload, folded, None, "r", cause) for _ in range(count)]


def show(it: Stamps, first: int, shown: list[Event]) -> None:
    it.shown(first, [event.type for event in shown], shown)


def test_each_event_has_its_stamps(it, clock):
    clock.now = 102.0
    show(it, 10, events(2, (100.0, 101.0), 101.0) + events(3, (100.5, 101.0), 101.0))
    assert it.of(10) == it.of(11) == ((100.0, 101.0), 101.0, 102.0)
    assert it.of(12) == it.of(14) == ((100.5, 101.0), 101.0, 102.0)
    assert it.of(9) is it.of(15) is None
    assert it.events == {"run.delta": 5}


def test_between_two_batches_there_is_nothing(it):
    show(it, 10, events(1, None, 1.0))
    show(it, 20, events(1, None, 1.0))
    assert it.of(15) is None
    assert it.of(20) is not None


def test_each_event_is_observed_at_its_first_write(it, clock):
    show(it, 10, events(4, (100.0, 100.0), 100.0))
    clock.now = 100.5
    it.wrote("a", 9, 12)  # one of the batch is left
    assert (it.hook_to_phone.count, it.hook_to_phone.sum) == (3, 1.5)
    it.wrote("b", 9, 12)
    assert it.hook_to_phone.count == 3
    clock.now = 102.0
    it.wrote("b", 12, 13)
    it.wrote("a", 12, 13)
    assert (it.hook_to_phone.count, it.hook_to_phone.sum) == (4, 3.5)


def test_what_was_held_back_is_taken_off(it, clock):
    show(it, 10, events(1, (100.0, 101.0), 107.0))
    clock.now = 107.5
    it.wrote("a", 0, 10)
    assert it.hook_to_phone.sum == 1.5


def test_what_no_hook_caused_is_not_observed(it):
    show(it, 10, events(1, None, 100.0))
    it.wrote("a", 0, 10)
    assert it.hook_to_phone.count == 0


def test_what_nobody_was_there_for_is_not_observed(it):
    show(it, 10, events(2, (1.0, 1.0), 1.0))
    it.skip(11)
    show(it, 12, events(2, (100.0, 100.0), 100.0))
    it.wrote("a", 0, 13)
    assert it.hook_to_phone.count == 2


def test_writes_of_an_event(it, clock):
    show(it, 10, events(3, None, 1.0))
    it.wrote("a", 9, 11)
    clock.now = 101.0
    it.wrote("b", 9, 12)
    it.wrote("a", 11, 12)
    it.wrote("a", 9, 12)
    assert it.writes(11) == {"a": [100.0, 101.0], "b": [101.0]}
    assert it.writes(9) == {}


def test_memory_is_bounded_and_what_is_forgotten_is_told(it, clock):
    for n in range(stamps.TOLD_KEPT + 10):
        clock.now = 100.0 + n
        show(it, n, events(1, (clock.now, clock.now), clock.now))
    assert it.of(9) is None
    assert it.of(10) is not None
    it.wrote("a", 0, 1)
    assert it.remembers(0.0)
    clock.now += 1.0
    for _ in range(stamps.WRITES_KEPT):
        it.wrote("b", 1, 2)
    assert it.writes(1) == {}
    assert not it.remembers(clock.now - 1.0)
    assert it.remembers(clock.now)


def test_buckets():
    seen = Histogram()
    assert (seen.count, seen.within(0.5)) == (0, None)
    for seconds in (-1.0, BOUNDS_S[0], 0.0011, 0.0011, 99.0):
        seen.observe(seconds)
    buckets = dict(seen.buckets())
    assert list(buckets) == [*BOUNDS_S, math.inf]
    assert (buckets[BOUNDS_S[0]], buckets[0.001], buckets[0.0025], buckets[10.0]) == (2, 2, 4, 4)
    assert buckets[math.inf] == seen.count == 5
    assert seen.sum == pytest.approx(99.0023)
    assert (seen.within(0.4), seen.within(0.5), seen.within(0.99)) == (
        BOUNDS_S[0],
        0.0025,
        math.inf,
    )
