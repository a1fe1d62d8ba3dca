"""Copies that gateways make for us, and tell of or do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loomid import intake
from loomid.caretaker import Caretaker
from loomid.uploads import Uploads
from tests.support import disk, samples
from tests.support.answering import Host, Side
from tests.support.handing import event, events, handed, untaken
from tests.support.samples import sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def round_at(side: Side, seconds: float) -> None:
    """The housekeeping at a time."""
    side.intake._clock = lambda: seconds
    await side.intake.tend()


async def test_copies_that_nobody_tells_of_are_removed_in_the_end(tmp_path: Path):
    """Also those from before a restart; but not before their gateway had time to tell."""
    copy = tmp_path / "inbox" / "out-gone-1"
    async with Side(tmp_path) as side:
        copy.write_bytes(samples.PDF)
        await round_at(side, 1.0)
    async with Side(tmp_path) as side:
        await round_at(side, 2 * intake.UNTOLD_S)
        await round_at(side, 3 * intake.UNTOLD_S)
        assert copy.exists()
        await round_at(side, 3 * intake.UNTOLD_S + 1)
        assert not copy.exists()


async def test_one_that_waits_to_be_taken_stays(tmp_path: Path, make_host: Callable[..., Host]):
    """However long that takes, and in the next loomid too."""
    host = make_host()
    async with Side(tmp_path) as side:
        side.intake._wanted.put_nowait = lambda _: None  # type: ignore[method-assign] - it waits
        await side.online(host)
        copy = side.files.inbox / "out-1"
        copy.write_bytes(samples.PDF)
        host.link.emit("file.sent", handed("out-1", copy, ours=True))
        await until(lambda: untaken(side))
        for hours in range(4):
            await round_at(side, hours * 2 * intake.UNTOLD_S)
        assert copy.exists()
    host.link.stop(0.1)
    async with Side(tmp_path) as side:
        await event(side, "run.attachment", media_type="application/pdf")
        assert not copy.exists()


async def test_one_that_left_and_comes_again_is_new(side: Side):
    copy = side.files.inbox / "out-1"
    copy.touch()
    await round_at(side, 1.0)
    copy.unlink()
    await round_at(side, 2.0)
    copy.touch()
    await round_at(side, 2 * intake.UNTOLD_S)
    assert copy.exists()


async def test_they_are_looked_after_although_the_database_fails(side: Side, tmp_path: Path):
    uploads = Uploads(tmp_path, side.files, lambda: 0.0)
    await uploads.open()
    await uploads.begin("dev_revoked", 5, sha256(b"hello"), None, None)
    copy = side.files.inbox / "out-1"
    copy.touch()
    await round_at(side, 1.0)
    side.intake._clock = lambda: 2 * intake.UNTOLD_S
    async with asyncio.TaskGroup() as tasks:
        with disk.locked(tmp_path / "state.db"):
            rounds = tasks.create_task(Caretaker(side.files, uploads, side.intake).run())
            await until(lambda: not copy.exists())
        rounds.cancel()
    assert len(await side.files.index.uploads()) == 1, "the database did fail"


async def test_one_that_is_not_taken_is_removed_at_once(side: Side, host: Host):
    copy = side.files.inbox / "out-1"
    copy.touch()
    host.link.emit("file.sent", handed("out-1", copy, ours=True))
    await event(side, "run.attachment", error="empty")
    assert not copy.exists()
    assert len(events(side, "run.attachment")) == 1


async def test_nothing_of_loomids_own_goes_to_phones(side: Side, host: Host):
    """By whatever name the agent calls it: that token opens the owner's door."""
    await side.online(host)
    token = side.files.folder.parent / "admin.token"
    token.write_text("secret")
    link = side.files.inbox / "out-1"
    link.hardlink_to(token)
    host.link.emit("file.sent", handed("out-1", link, ours=True))
    host.link.emit("file.sent", handed("out-2", token))
    await until(lambda: len(events(side, "run.attachment")) == 2)
    assert [one["error"] for one in events(side, "run.attachment")] == ["refused", "refused"]
    assert token.exists()
