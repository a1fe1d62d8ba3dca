"""session.send with files, and attachment.get: what leaves for the host, and what stays here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from loomid.errors import PhoneError, TooLarge
from loomid.fileindex import Use
from tests.support import samples
from tests.support.answering import LIMITS, PHONE, TABLET, Host, Side, key_of
from tests.support.handing import event, events, handed, untaken
from tests.support.samples import b64, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

PNG = {"data": b64(samples.png()), "media_type": "image/png", "name": "a/b.png"}
TEXT = {"data": b64(b"hello"), "name": "note.md", "media_type": "text/markdown"}


async def refused(side: Side, *attachments: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    asked = {"text": "", "request_id": "r1", "attachments": list(attachments), **more}
    with pytest.raises(PhoneError) as caught:
        await side.ask("session.send", **asked)
    return caught.value.code, caught.value.params


def kept(side: Side) -> list[str]:
    return sorted(one.name for one in side.files.folder.iterdir())


async def test_a_message_takes_its_files_along(side: Side, host: Host):
    await side.ask("session.send", text="", request_id="r1", attachments=[PNG, TEXT])
    (command,) = host.ops("inject_files")
    assert command.args["text"] == ""
    assert command.args["message_type"] == "photo"
    picture, note = command.args["files"]
    assert (picture["name"], picture["media_type"]) == ("b.png", "image/png")
    assert (note["name"], note["media_type"]) == ("note.md", "text/markdown")
    assert picture["path"] == str(side.files.folder / sha256(samples.png()))
    refs = command.args["attachments"]
    assert [one["name"] for one in refs] == ["b.png", "note.md"]
    assert host.ops("inject") == []


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([PNG], "photo"),
        ([TEXT], "document"),
        ([{"data": b64(samples.OGG)}], "audio"),
        ([{"data": b64(samples.OGG), "voice": True}], "voice"),
        ([{"data": b64(samples.MP4)}], "video"),
        ([{"data": b64(samples.OGG), "voice": True}, PNG], "photo"),
    ],
)
async def test_the_kind_of_message(side: Side, host: Host, files: list[Any], wanted: str):
    await side.ask("session.send", text="x", request_id="r1", attachments=files)
    assert host.ops("inject_files")[0].args["message_type"] == wanted


async def test_who_may_see_them(side: Side, host: Host):
    """The device that brought a file; once Hermes has the message, whoever may see its task."""
    host.silent.add("inject_files")
    sha = sha256(b"hello")
    with pytest.raises(PhoneError):
        await side.ask("session.send", text="", request_id="r1", attachments=[TEXT])
    assert (await get(side, sha))["data"] == TEXT["data"]
    assert await unknown(side, sha, TABLET)
    host.silent.clear()
    done = await side.ask("session.send", text="", request_id="r2", attachments=[TEXT])
    got = await get(side, sha, TABLET, task_id=done["task_id"], request_id="r3")
    assert got == {
        "attachment": {
            "attachment_id": f"att_{sha}",
            "media_type": "text/markdown",
            "bytes": 5,
            "name": "note.md",
        },
        "data": TEXT["data"],
        "request_id": "r3",
    }
    assert await unknown(side, sha, PHONE, task_id="task_of_others")
    assert await unknown(side, sha256(b"other"), PHONE)


async def get(side: Side, sha: str, device: Any = PHONE, **more: Any) -> dict[str, Any]:
    return await side.ask("attachment.get", device, attachment_id=f"att_{sha}", **more)


async def unknown(side: Side, sha: str, device: Any, **more: Any) -> bool:
    with pytest.raises(PhoneError) as caught:
        await get(side, sha, device, **more)
    return caught.value.code == "unknown_file"


async def test_a_file_that_was_brought_before(side: Side, host: Host):
    await side.ask("session.send", text="", request_id="r1", attachments=[PNG])
    again = {"attachment_id": f"att_{sha256(samples.png())}", "media_type": "image/png"}
    await side.ask("session.send", text="", request_id="r2", attachments=[again])
    first, second = host.ops("inject_files")
    assert first.args["files"] == second.args["files"]
    lying = {**again, "media_type": "application/pdf"}
    assert await refused(side, lying, request_id="r3") == (
        "bad_file",
        {"reason": "mismatch", "found": "image/png"},
    )
    other = {"attachment_id": f"att_{sha256(b'never brought')}"}
    assert (await refused(side, other, request_id="r4"))[0] == "unknown_file"


@pytest.mark.parametrize(
    ("bad", "code", "reason"),
    [
        ({"data": b64(samples.PDF), "media_type": "image/png"}, "bad_file", "mismatch"),
        ({"data": b64(samples.png(30_000, 30_000))}, "bad_file", "too_many_pixels"),
        ({"data": b64(b"")}, "bad_file", "empty"),
        ({"data": "not base64!"}, "bad_file", "base64"),
        ({"data": "data:image/png;base64,iVBORw0KGgo="}, "bad_file", "base64"),
        ({"data": b64(b"x"), "media_type": "image/"}, "bad_file", "media_type"),
        ({}, "bad_frame", None),
        ({"data": b64(b"x"), "attachment_id": "att_x"}, "bad_frame", None),
        ({"attachment_id": "../../../etc/passwd"}, "unknown_file", None),
        ({"data": b64(bytes((LIMITS.max_inline_bytes or 0) + 1))}, "too_large", None),
    ],
)
async def test_one_bad_file_refuses_all(
    side: Side, host: Host, bad: dict[str, Any], code: str, reason: str | None
):
    """And leaves nothing behind, of the good one neither."""
    said = await refused(side, PNG, bad)
    assert (said[0], said[1].get("reason")) == (code, reason)
    assert kept(side) == []
    assert host.commands == []
    await side.ask("session.send", text="", request_id="r1", attachments=[PNG])
    assert len(host.commands) == 1, "the same request_id may be used again"


async def test_a_message_has_text_or_files(side: Side, host: Host):
    assert (await refused(side))[0] == "bad_frame"
    assert (await refused(side, TEXT, text="/new", command=True))[0] == "bad_frame"
    assert host.commands == []


async def test_too_many(side: Side, host: Host):
    with pytest.raises(PhoneError) as caught:
        await side.ask("session.send", text="", request_id="r1", attachments=[TEXT] * 21)
    assert caught.value.code == "bad_frame"


async def test_hermes_does_not_take_it(side: Side, host: Host):
    host.errors["inject_files"] = "bad_file"
    assert await refused(side, TEXT) == ("bad_file", {"reason": "refused"})


async def test_an_older_plugin(side: Side, host: Host):
    host.errors["inject_files"] = "unknown_op"
    code, params = await refused(side, TEXT)
    assert (code, params) == ("not_permitted", {"reason": "not_supported"})


async def test_a_large_file_is_not_given_in_a_frame(side: Side, host: Host, tmp_path: Path):
    path = tmp_path / "large.bin"
    path.write_bytes(bytes((LIMITS.max_inline_bytes or 0) + 1))
    host.link.emit("file.sent", handed("out-1", path))
    sent = await event(side, "run.attachment")
    with pytest.raises(PhoneError) as caught:
        await side.ask("attachment.get", attachment_id=sent["attachment_id"])
    assert caught.value.code == "too_large"
    assert caught.value.params == {"max_inline_bytes": LIMITS.max_inline_bytes}


@pytest.mark.parametrize("note", ["", "[A note of Hermes]\n\n", "x" * 3000])
async def test_every_phone_is_told_what_came_with_a_message(side: Side, host: Host, note: str):
    done = await side.ask("session.send", text="look", request_id="r1", attachments=[PNG])
    (command,) = host.ops("inject_files")
    args = {k: v for k, v in command.args.items() if k not in ("chat_id", "files", "message_type")}
    key = key_of(command.args["chat_id"])
    host.link.emit("injected", {**args, "session_key": key, "busy": False})
    taken_up = {"session_key": key, "message_id": args["message_id"]}
    host.link.emit("processing.started", taken_up)
    turn = {"turn_id": "t1", "session_id": "s", "platform": "loomi", "model": "m"}
    host.link.emit("turn.started", {**turn, "session_key": key, "user_message": f"{note}look"})
    started = await event(side, "run.started")
    assert (started["task_id"], started["prompt"]) == (done["task_id"], "look")
    assert [one["name"] for one in started["origin"]["attachments"]] == ["b.png"]
    assert started["origin"]["request_id"] == "r1"


# ── what the agent sends ────────────────────────────────────────────────────


async def test_a_file_of_the_agent_belongs_to_its_run(side: Side, host: Host, tmp_path: Path):
    path = tmp_path / "x.pdf"
    path.write_bytes(samples.PDF)
    host.start_turn("t1")
    started = await event(side, "run.started")
    host.link.emit("file.sent", handed("out-1", path, caption=" Here ", ours=True))
    sent = await event(side, "run.attachment")
    assert sent == {
        "task_id": started["task_id"],
        "run_id": started["run_id"],
        "attachment_id": f"att_{sha256(samples.PDF)}",
        "media_type": "application/pdf",
        "bytes": len(samples.PDF),
        "name": "report.pdf",
        "caption": "Here",
        "part": sent["part"],
    }
    assert not path.exists(), "a copy made for us is removed"
    got = await get(side, sha256(samples.PDF), TABLET, task_id=started["task_id"])
    assert got["data"] == b64(samples.PDF)


async def test_of_a_job_it_belongs_to_no_run(side: Side, host: Host, tmp_path: Path):
    path = tmp_path / "x.pdf"
    path.write_bytes(samples.PDF)
    host.start_turn("t1")
    await event(side, "run.started")
    host.link.emit("file.sent", handed("out-1", path, metadata={"job_id": "daily"}))
    assert (await event(side, "run.attachment"))["run_id"] is None
    assert path.exists(), "what is not ours stays"


async def test_a_link_is_told_as_it_is(side: Side, host: Host):
    host.link.emit("file.sent", handed("out-1", "", name="", url="https://example.org/a.png"))
    sent = await event(side, "run.attachment")
    assert (sent["url"], sent["attachment_id"]) == ("https://example.org/a.png", None)
    assert kept(side) == []


async def test_what_cannot_be_taken(side: Side, host: Host, tmp_path: Path):
    """No link is followed, and nothing waited for."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "link").symlink_to(secret)
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    bomb = tmp_path / "bomb.png"
    bomb.write_bytes(samples.png(30_000, 30_000))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**40)  # no disk has room for it
    for path, wanted in (
        (tmp_path / "none", "gone"),
        (tmp_path / "link", "gone"),
        (tmp_path / "empty", "empty"),
        (tmp_path / "folder", "not_a_file"),
        (tmp_path / "pipe", "not_a_file"),
        (Path("/dev/zero"), "not_a_file"),
        (bomb, "too_many_pixels"),
        (large, "too_large"),
    ):
        host.link.emit("file.sent", handed(f"out-{path.name}", path))
        sent = await event(side, "run.attachment", error=wanted)
        assert (sent["attachment_id"], sent["name"]) == (None, "report.pdf")
    assert kept(side) == []


async def test_a_file_that_grows_while_it_is_copied(side: Side):
    """As far as its size tells it is empty."""
    side.files.max_file_bytes = 10
    with pytest.raises(TooLarge):
        await side.files.take(Path("/proc/self/status"), Use("a"))
    assert kept(side) == []


async def test_a_file_is_taken_once_whenever_loomid_dies(
    tmp_path: Path, make_host: Callable[..., Host]
):
    """Its fact waits on disk; one that was stored and not told of is known by its source."""
    path = tmp_path / "x.pdf"
    path.write_bytes(samples.PDF)
    host = make_host()
    async with Side(tmp_path) as side:
        side.intake._wanted.put_nowait = lambda _: None  # type: ignore[method-assign] - it dies
        await side.online(host)
        host.link.emit("file.sent", handed("out-1", path, ours=True))
        await until(lambda: untaken(side))
        host.start_turn("t1")
        await side.run_begun("t1")
    host.link.stop(0.1)
    async with Side(tmp_path) as side:
        await event(side, "run.attachment", attachment_id=f"att_{sha256(samples.PDF)}")
        assert not path.exists()
    async with Side(tmp_path) as side:
        assert len(events(side, "run.attachment")) == 1
        assert not untaken(side)


async def test_a_source_is_taken_once(side: Side, tmp_path: Path):
    path = tmp_path / "x.pdf"
    path.write_bytes(samples.PDF)
    use = Use("x.pdf", task_id="task_1", source="gw1:boot1:out-1")
    first = await side.files.take(path, use)
    path.unlink()
    assert await side.files.take(path, use) == first
