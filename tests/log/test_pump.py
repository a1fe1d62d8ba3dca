"""The pump between a real link and a real log; also killed in the middle of a run."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from loomid import wire
from loomid.lmp import envelope, frames
from loomid.lmp.runs import Runs
from loomid.vault import Vault
from tests.support.pumping import (
    Host,
    delta,
    ended,
    endings,
    pumping,
    session_key,
    stream_started,
    text_of,
    turn_started,
    types,
)
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


async def test_a_turn_becomes_a_run(tmp_path: Path, host: Host):
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        words = [f" {i}" for i in range(100)]
        text = "go" + "".join(words)
        for word in ("go", *words):
            host.link.emit("delta", delta(word))
        await until(lambda: text_of(half.shown()) == text)
        assert half.pump.runs["gw1"].live()[0].active
        for kind, body in endings(text):
            host.link.emit(kind, body)
        await until(lambda: ended(half.shown()))
        names = types(half.shown())
        assert names.count("run.started") == names.count("run.completed") == 1
        (run,) = (one for one in half.shown() if isinstance(one, frames.RunStarted))
        row = await Vault(half.store).task(run.task_id)
        assert row is not None
        assert row.preview == "hello"
        assert half.log.projection.status(run.task_id) == "idle"


async def test_a_restart_goes_on_where_it_stopped(tmp_path: Path, host: Host):
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        host.link.emit("delta", delta("one"))
        await until(lambda: text_of(half.shown()) == "one")
        first = half.shown()
        start = half.start
    host.link.emit("delta", delta(" two"))
    async with pumping(tmp_path) as half:
        half.start = start
        await until(lambda: text_of(half.shown()) == "one two")
        assert half.shown()[: len(first)] == first
        for kind, body in endings("one two"):
            host.link.emit(kind, body)
        await until(lambda: ended(half.shown()))
        assert types(half.shown()).count("run.started") == 1
        assert half.log.projection.live_runs() == []


async def test_a_fold_that_breaks_costs_one_fact(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    fold = Runs.fold

    def broken(self: Runs, arrival: Any) -> Any:
        if isinstance(arrival.fact, wire.Delta) and "secret" in arrival.fact.text:
            raise KeyError(arrival.fact.text)
        return fold(self, arrival)

    monkeypatch.setattr(Runs, "fold", broken)
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        host.link.emit("delta", delta("one"))
        await until(lambda: text_of(half.shown()) == "one")
        host.link.emit("delta", delta("secret"))
        await until(lambda: "a delta broke the fold: KeyError" in caplog.text)
        host.link.emit("delta", delta(" two"))
        await until(lambda: text_of(half.shown()) == "one two")
    assert "secret" not in caplog.text


async def test_a_run_ends_even_if_its_end_breaks_the_fold(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("loomid.lmp.work.of_turn", lambda *_: 1 / 0)
    async with pumping(tmp_path) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        for kind, body in endings("one"):
            host.link.emit(kind, body)
        await until(lambda: ended(half.shown()))
        assert half.shown()[-2].error == "internal"
        assert half.log.projection.live_runs() == []
        assert half.pump.runs["gw1"].dropped["broke_the_fold"] == 1
    async with pumping(tmp_path) as half:
        assert half.log.projection.live_runs() == []


HOSTILE = [
    ("delta", {"turn_id": "t0", "iteration": 10**300, "delta": "x", "kind": "text"}),
    ("delta", {"turn_id": "t0", "iteration": 1, "delta": "\ud800\x00 \udfff", "kind": "text"}),
    ("delta", {"turn_id": "t0", "iteration": 1, "delta": ["x"] * 9, "kind": "text"}),
    ("delta", {"turn_id": 10**4_000, "iteration": 1, "delta": "x", "kind": "text"}),
    ("tool.started", {"turn_id": "t0", "tool_call_id": "c", "tool_name": "t", "args": {"a": 1},
                      "session_id": "s", "api_request_id": "t0:api:" + "9" * 5_000}),
    ("tool.started", {"turn_id": "t0", "tool_call_id": "d", "tool_name": "x" * 3_000_000,
                      "args": {"a": 1}, "session_id": "s", "api_request_id": "t0:api:1"}),
    ("tool.ended", {"turn_id": "t0", "tool_call_id": "d", "tool_name": "t", "status": "ok",
                    "duration_ms": 10**400}),
    ("sent", {"chat_id": "c", "session_key": None, "message_id": "m", "text": "y" * 3_000_000,
              "reply_to": None, "metadata": {"job_id": 10**400}}),
    ("approval.asked", {"approval_id": "a" * 10_000, "session_key": "k", "command": "z" * 10**6,
                        "choices": ["once"] * 10_000, "description": "\ud800", "turn_id": "t0"}),
    ("turn.started", {"turn_id": "t0", "user_message": {"deep": [[[]]]}, "platform": 7}),
    ("no.such", {"x": 1}),
]  # fmt: skip


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


async def test_no_content_stops_the_stream(tmp_path: Path, host: Host):
    """Each is done with once: nothing is sent again, nothing behind it waits."""
    async with pumping(tmp_path) as half:
        for kind, body in [*HOSTILE, *(("delta", {"x": deep(n)}) for n in (500, 100_000))]:
            host.link.emit(kind, body)
        host.link.emit("turn.started", turn_started())
        for kind, body in endings("all is well"):
            host.link.emit(kind, body)
        await until(lambda: "all is well" in [getattr(e, "text", "") for e in half.shown()])
        await until(lambda: not host.link._backlog.facts)
        odd = half.gateways.figures().oddities
        assert sum(n for kind, n in odd.items() if kind.startswith("invalid fact")) >= 6
        assert not half.pump.runs["gw1"].dropped["broke_the_fold"]
        assert half.log.odd == {}
    async with pumping(tmp_path) as half:
        assert half.store.unreadable == {}


async def test_a_foreign_turn_is_asked_after(tmp_path: Path, host: Host):
    shift = 0.0

    async with pumping(tmp_path, clock=lambda: time.time() + shift) as half:
        host.link.emit("turn.started", turn_started(platform="telegram"))
        host.link.emit("stream.started", stream_started(surface="telegram"))
        host.link.emit("delta", delta("x"))
        host.keys = (session_key("telegram"),)
        await until(lambda: text_of(half.shown()) == "x")
        await until(lambda: [one.op for one in host.commands] == ["running"])
        host.keys = ()
        await until(lambda: ended(half.shown()))
        asked = [one.id for one in host.commands]
        assert len(asked) == len(set(asked)) <= 4


async def test_a_clock_that_is_set_back(tmp_path: Path, host: Host):
    shift = 0.0

    async with pumping(tmp_path, clock=lambda: time.time() + shift) as half:
        host.link.emit("turn.started", turn_started())
        host.link.emit("stream.started", stream_started())
        host.link.emit("delta", delta("a"))
        await until(lambda: text_of(half.shown()) == "a")
        shift = -3600.0
        for i in range(5):
            host.link.emit("delta", delta(str(i)))
            # Coalesced text is due by the clock of the fold, which goes on.
            await until(lambda i=i: text_of(half.shown()).endswith(str(i)), 2.0)
        stamps = [
            envelope.decode_server(envelope.render(one.position, one.parts))[0].ts
            for one in half.log.read(half.start, 999)
        ]
        assert all(one <= two for one, two in pairwise(stamps))


@contextmanager
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.pumping", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
            yield one
        finally:
            one.kill()


async def test_killed_four_times_in_one_run_of_2000_deltas(tmp_path: Path, host: Host):
    dice = random.Random(3)
    words = ["go", *(f" {i}" for i in range(1, 2000))]
    text = "".join(words)
    host.link.emit("turn.started", turn_started())
    host.link.emit("stream.started", stream_started())
    for kill in range(4):
        with process(tmp_path):
            for word in words[kill * 300 : kill * 300 + 300]:
                host.link.emit("delta", delta(word))
                await asyncio.sleep(0.0005)
            await asyncio.sleep(dice.uniform(0, 0.1))
    for word in words[1200:]:
        host.link.emit("delta", delta(word))
    for kind, body in endings(text):
        host.link.emit(kind, body)
    async with pumping(tmp_path) as half:
        half.start = half.log._ring.floor
        await until(lambda: ended(half.shown()))
        shown = half.shown()
        assert text_of(shown) == text
        names = types(shown)
        assert names.count("run.started") == 1
        assert names.count("run.completed") == 1
        assert "run.text" not in names
        final = next(one for one in shown if isinstance(one, frames.RunCompleted))
        assert final.text == text
