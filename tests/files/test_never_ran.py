"""A message that never ran leaves nothing of its files behind, whenever that turns out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import disk, samples
from tests.support.answering import Host, Side
from tests.support.samples import b64, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loomid.vault import Request

PNG = {"data": b64(samples.png()), "name": "b.png"}
NOTE = {"data": b64(b"hello"), "name": "note.md"}
SEND: dict[str, Any] = {"text": "", "request_id": "r1", "attachments": [PNG, NOTE]}


async def left(side: Side) -> tuple[list[str], int]:
    """The files, and how many uses of them wait for their message."""
    uses = await side.files.index._rows(
        "SELECT count(*) FROM file_use WHERE message_id IS NOT NULL AND task_id IS NULL"
    )
    return [one.name for one in side.files.folder.iterdir()], uses[0][0]


@pytest.mark.parametrize("error", ["bad_file", "unknown_op", "starting", "reserved_text"])
async def test_it_is_refused(side: Side, host: Host, error: str):
    host.errors["inject_files"] = error
    assert (await side.refused("session.send", **SEND)).proves_nothing_ran
    assert await left(side) == ([], 0)
    assert side.files.removed == {"unused": 2}
    host.errors.clear()
    await side.ask("session.send", **SEND)
    assert len((await left(side))[0]) == 2


async def test_it_may_have_run(side: Side, host: Host):
    host.errors["inject_files"] = "failed"
    assert not (await side.refused("session.send", **SEND)).proves_nothing_ran
    names, waiting = await left(side)
    assert (len(names), waiting) == (2, 2)


async def test_what_another_message_needs_stays(side: Side, host: Host):
    await side.ask("session.send", text="", request_id="r0", attachments=[NOTE])
    host.errors["inject_files"] = "bad_file"
    await side.refused("session.send", **SEND)
    assert await left(side) == ([sha256(b"hello")], 0)


async def test_it_ran_before(side: Side, host: Host):
    """Then its repetition brings nothing."""
    first = await side.ask("session.send", **SEND)
    assert await side.ask("session.send", **SEND) == first
    names, waiting = await left(side)
    assert (len(names), waiting) == (2, 0)


async def test_it_cannot_be_written_down(side: Side, host: Host, tmp_path: Path):
    begin = side.vault.begin

    async def locked(*args: Any) -> Request | None:
        with disk.locked(tmp_path / "state.db"):
            return await begin(*args)

    side.vault.begin = locked  # type: ignore[method-assign] - the disk fails just then
    assert (await side.refused("session.send", **SEND)).code == "storage_failing"
    assert await left(side) == ([], 0)


async def test_its_second_file_finds_no_room(side: Side, host: Host):
    side.files._max_bytes = len(samples.png())
    refused = await side.refused("session.send", **SEND)
    assert refused.params == {"reason": "no_room"}
    assert await left(side) == ([], 0)


async def test_loomid_dies_before_it_left(tmp_path: Path, make_host: Callable[..., Host]):
    """After a restart the gateway says that it never got it."""
    host = make_host()
    async with Side(tmp_path) as side:
        await side.online(host)
        written = asyncio.Event()

        async def never(*_: Any, **__: Any) -> dict[str, Any]:
            written.set()
            return await asyncio.Future()

        side.gateways.command = never  # type: ignore[method-assign] - it dies there
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(side.ask("session.send", **SEND))
            await written.wait()
            asking.cancel()
        names, waiting = await left(side)
        assert (len(names), waiting) == (2, 2)
    async with Side(tmp_path) as side:
        await until(lambda: side.gateways.boot_of("gw1") == host.boot)
        await until(lambda: not side.under_way)
        assert await left(side) == ([], 0)
        assert host.commands == []
