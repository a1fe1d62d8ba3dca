"""What a later version says is kept or passed over: in the log, in answers, by the demo's phone."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from loomid import demo_phone
from loomid.errors import OutcomeUnknown
from loomid.lmp import envelope, frames, requests
from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.recalled import Sent
from loomid.sentindex import SentIndex
from loomid.store import Store
from tests.support import vectors
from tests.support.hub import approval, serving, started
from tests.support.plain_phone import PlainPhone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOMORROW = {"kind": "hologram", "parts": [1, None, {"x": "é"}]}


# ── the log ─────────────────────────────────────────────────────────────────


def rewrite(path: Path) -> None:
    """As if a loomid of tomorrow, with the same tables, had written: each payload has a field
    more, and one type is new."""
    with closing(sqlite3.connect(path / "loomid.db", isolation_level=None)) as line:
        line.create_function(
            "more", 1, lambda payload: json.dumps(json.loads(payload) | {"more": TOMORROW}).encode()
        )
        line.execute("UPDATE event SET payload = more(payload)")
        line.execute("UPDATE event SET type = 'run.hologram' WHERE type = 'run.delta'")


async def told(phone: PlainPhone, count: int) -> list[tuple[str, dict[str, Any]]]:
    """The type and payload of the next frames."""
    async with asyncio.timeout(10):
        got = [json.loads(await phone.socket.receive_str()) for _ in range(count)]
    return [(one["type"], one["payload"]) for one in got]


def credentials(phone: PlainPhone) -> dict[str, Any]:
    return {name: phone.hello_ok[name] for name in ("device_id", "credential", "last_seq")}


async def test_events_of_a_later_loomid_are_told_whole_after_a_downgrade(tmp_path: Path) -> None:
    """Both those in the replay and those of what is alive, as they were stored."""
    async with aiohttp.ClientSession() as session:
        async with serving(tmp_path) as server:
            one = await PlainPhone.connect(session, server.url, token=await server.token())
            who = credentials(one)
            delta = frames.RunDelta(run_id="run_1", text="x", kind="text", iteration=1)
            await server.publish(started(), delta, approval())
            before = await told(one, 3)
            await one.socket.close()
        rewrite(tmp_path)
        async with serving(tmp_path) as server:
            again = await PlainPhone.connect(session, server.url, **who)
            more = [("run.hologram" if t == "run.delta" else t, p) for t, p in before]
            expected = [(type_, payload | {"more": TOMORROW}) for type_, payload in more]
            assert await told(again, 3) == expected
            await again.socket.close()
            del who["last_seq"]
            snapshot = {**who, "capabilities": ["snapshot"]}
            third = await PlainPhone.connect(session, server.url, **snapshot)
            begun, _, asked = expected
            assert await told(third, 3) == [begun, asked, ("snapshot.done", {})]
            assert server.log.odd == {"unreadable": 1}  # what a hologram does to a run is not known
            await third.socket.close()


async def test_nothing_of_them_is_lost_on_the_way_back(tmp_path: Path) -> None:
    def stored() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(tmp_path / "loomid.db")) as line:
            return line.execute("SELECT * FROM event ORDER BY position").fetchall()

    async with serving(tmp_path) as server:
        await server.publish(started(), approval())
    rewrite(tmp_path)
    before = stored()
    async with serving(tmp_path) as server:
        await server.publish(started("run_2"))
    assert stored()[: len(before)] == before


# ── answers ─────────────────────────────────────────────────────────────────


def test_an_answer_in_words_of_a_later_loomid() -> None:
    """Whether it ran is not to be read from it, and it must not be carried out again."""
    kept = requests.dump(("session.send.result", _sent()))
    for change in (
        {"type": "session.send.later"},
        {"type": "error:too_late", "message": "Too late.", "params": {}},
        {"payload": {"request_id": 5}},
    ):
        later = json.dumps(json.loads(kept) | change).encode()
        assert isinstance(requests.load(later), OutcomeUnknown)
    more = json.loads(kept)
    more["payload"]["more"] = TOMORROW
    assert requests.load(json.dumps(more).encode()) == ("session.send.result", _sent())


def _sent() -> frames.SendResult:
    return frames.SendResult(request_id="r", task_id="t", accepted=True)


# ── the demo's phone ────────────────────────────────────────────────────────


async def test_files_of_a_message_that_a_later_loomid_remembered(tmp_path: Path) -> None:
    path, one = tmp_path / "loomid.db", {"media_type": "image/png", "bytes": 1, "name": "a.png"}
    async with await Store.open(path, time.time) as store:
        sent = SentIndex(store)
        ref = AttachmentRef(attachment_id="att_1", **one)
        await sent.note("m1", "look", [ref], 1.0)
        await sent.settle("m1", "task_1", [])
        more = json.dumps([{"attachment_id": "att_1", **one, "more": TOMORROW}])
        with closing(sqlite3.connect(path, isolation_level=None)) as line:
            line.execute("UPDATE sent SET files = ?", (more,))
        assert await sent.of_task("task_1") == [Sent(1.0, "look", (ref,))]


@asynccontextmanager
async def later_server(*said: dict[str, Any]) -> AsyncIterator[str]:
    """A server that answers a hello with these frames, and closes when the phone does."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive_str()
        for frame in said:
            await socket.send_str(json.dumps(frame))
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get("/ws", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}/ws"
    finally:
        await runner.cleanup()


async def test_the_demo_phone_passes_over_what_it_does_not_know() -> None:
    golden = vectors.load("server")
    last = golden["notification"]
    strange: list[dict[str, Any]] = []
    for frame in golden.values():
        strange.append({**frame, "type": f"{frame['type']}.later"})
        strange.append({**frame, "payload": TOMORROW})
        more = {**frame, "hologram": TOMORROW, "payload": {**frame["payload"], "more": TOMORROW}}
        strange.append(more)
    strange.append({"v": 1, "type": "later", "whatever": TOMORROW})
    shown: list[str] = []
    seen = asyncio.Event()

    def show(text: str) -> None:
        shown.append(text)
        if "the end" in text:
            seen.set()

    end = {**last, "payload": {**last["payload"], "text": "the end"}}
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    async with later_server(*strange, end) as url, asyncio.TaskGroup() as group:
        phone = demo_phone.Phone({"url": url, "token": "t"}, show)
        group.create_task(phone.run(lines))
        async with asyncio.timeout(10):
            await seen.wait()
        lines.put_nowait(None)
    told_anyway = "".join(shown)
    assert "Paired with" in told_anyway  # of the frame with fields that it does not know
    assert "closed" not in told_anyway


def test_frames_of_a_later_phone() -> None:
    """Unknown types can be answered, and unknown fields change nothing."""
    text = json.dumps({"v": 1, "type": "task.paint", "payload": {"request_id": "r", "x": TOMORROW}})
    frame = envelope.decode_client(text)
    assert (frame.payload, frame.request_id) == (None, "r")
