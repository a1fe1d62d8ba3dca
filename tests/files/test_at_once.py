"""Two of anything at once: one after the other, and each whole."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from loomid import uploads
from loomid.errors import UnknownFile
from loomid.fileindex import Use
from loomid.files import examine_bytes
from tests.support import disk
from tests.support.carrying import cut_off, left_behind
from tests.support.samples import Carrier, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.hub import Server


async def test_a_newer_connection_ends_the_older(server: Server, carrier: Carrier):
    """A phone that changed networks need not wait for its old connection to time out."""
    _, begun = await carrier.begin(b"hello")
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"he"
        await never.wait()
        yield b""

    async with asyncio.TaskGroup() as tasks:
        older = tasks.create_task(cut_off(carrier.append(begun["upload_id"], 0, stuck())))
        part = server.files.folder.parent / "uploads" / begun["upload_id"]
        await until(part.exists)
        status, error = await carrier.append(begun["upload_id"], 0, b"hello")
        if status == 409:
            status, _ = await carrier.append(begun["upload_id"], error["params"]["offset"], b"llo")
        assert status == 200
        assert await older
        never.set()


async def test_the_same_upload_announced_at_once_is_one(carrier: Carrier):
    """Also of others no more are open than a device may have."""
    begun = await asyncio.gather(*(carrier.begin(b"hello there") for _ in range(6)))
    assert len({told["upload_id"] for _, told in begun}) == 1
    others = await asyncio.gather(*(carrier.begin(b"%d" % n) for n in range(8)))
    going_on = await asyncio.gather(
        *(carrier.append(told["upload_id"], 0, b"") for _, told in others)
    )
    assert sum(status == 200 for status, _ in going_on) == uploads.PER_DEVICE


async def test_an_upload_that_is_dropped_while_bytes_come_leaves_nothing(
    server: Server, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
):
    """It makes room for another one just when its own file is about to be opened."""
    opening, may_open = threading.Event(), threading.Event()
    open_part = uploads._append_to

    def slowly(part: Path) -> BinaryIO:
        opening.set()
        assert may_open.wait(10)
        return open_part(part)

    monkeypatch.setattr(uploads, "_append_to", slowly)
    begun = [(await carrier.begin(b"%d" % n))[1]["upload_id"] for n in range(uploads.PER_DEVICE)]
    async with asyncio.TaskGroup() as tasks:
        older = tasks.create_task(cut_off(carrier.append(begun[0], 0, b"0")))
        await until(opening.is_set)
        newer = tasks.create_task(carrier.begin(b"one more"))
        await until(lambda: older.done() or newer.done())  # the newer has cut the older off
        may_open.set()
    assert older.result()
    assert newer.result()[0] == 201
    assert left_behind(server) == []
    assert begun[0] not in [one.upload_id for one in await server.files.index.uploads()]


async def test_an_upload_is_dropped_and_finished_in_any_order(server: Server, carrier: Carrier):
    """However these meet, what lies on disk is what the index has."""
    index = server.files.index
    for round_ in range(8):
        begun = [
            (await carrier.begin(b"%d %d" % (round_, n)))[1]["upload_id"]
            for n in range(uploads.PER_DEVICE)
        ]
        await asyncio.gather(
            carrier.begin(b"%d one more" % round_),
            *(
                cut_off(carrier.append(begun[n % 2], 0, b"%d %d" % (round_, n % 2)))
                for n in range(4)
            ),
        )
        uploading = {one.upload_id for one in await index.uploads()}
        files, there = await index.names(), set(left_behind(server))
        assert files <= there <= files | uploading
        assert begun[0] not in uploading


async def test_a_file_that_comes_again_while_somebody_misses_it_stays_known(
    server: Server, carrier: Carrier
):
    ref = await carrier.upload(b"hello")
    kept = await server.files.find(ref["attachment_id"], str(carrier.phone.device_id))
    kept.path.unlink()

    async def miss() -> None:
        with pytest.raises(UnknownFile):
            await server.files.read(kept)

    async with asyncio.TaskGroup() as tasks, server.files._placing:  # it is being placed again
        missing = tasks.create_task(miss())
        await until(lambda: missing.done() or "waiters:1" in repr(server.files._placing))
        kept.path.write_bytes(b"hello")
    assert await carrier.call("GET", f"/files/{ref['attachment_id']}") == (200, b"hello")


async def test_what_came_whole_and_could_not_be_stored_need_not_come_again(
    server: Server, carrier: Carrier, tmp_path: Path
):
    _, begun = await carrier.begin(b"hello")
    with disk.locked(tmp_path / "loomid.db"):
        status, error = await carrier.append(begun["upload_id"], 0, b"hello")
        assert (status, error["code"]) == (503, "storage_failing")
    assert left_behind(server) == [begun["upload_id"]]
    status, done = await carrier.begin(b"hello")
    assert (status, done["attachment"]["bytes"]) == (200, 5)
    assert left_behind(server) == [sha256(b"hello")]


async def test_no_disk_is_waited_for_on_the_loop(
    server: Server, carrier: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All that asks the file system of a path is called in a thread."""
    waited: list[str] = []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(path: Any, *args: Any, **more: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and str(tmp_path) in str(path):
                waited.append(f"{name} {path}")
            return call(path, *args, **more)

        return asked

    _, begun = await carrier.begin(b"0123456789")
    with monkeypatch.context() as patch:
        for name in ("stat", "unlink", "replace", "open", "listdir", "scandir", "statvfs"):
            patch.setattr(os, name, watched(name, getattr(os, name)))
        patch.setattr(io, "open", watched("open", io.open))
        await carrier.append(begun["upload_id"], 0, b"0123")
        assert (await carrier.begin(b"0123456789"))[1]["offset"] == 4
        _, done = await carrier.append(begun["upload_id"], 4, b"456789")
        assert (await carrier.append(begun["upload_id"], 4, b"456789"))[0] == 404
        path = f"/files/{done['attachment']['attachment_id']}"
        assert (await carrier.call("GET", path))[0] == 200
        content = await asyncio.to_thread(examine_bytes, b"inline", None)
        await server.files.put(b"inline", content, Use("a", message_id="m1"))
        await server.files.release("m1")
        await asyncio.to_thread((server.files.folder / sha256(b"0123456789")).unlink)
        assert (await carrier.call("GET", path))[0] == 404
        await carrier.begin(b"never finished")
        await server.hub.desk.revoke(str(carrier.phone.device_id))
        await server.uploads.tend()
        await server.files.tend()
    assert waited == []
