"""Files in real gateways: every way in which Hermes sends one, and every kind that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import disk, samples
from tests.support.hermes import Gateway
from tests.support.model import Model
from tests.support.peer import Peer, key_of
from tests.support.samples import sha256

PATHS = {
    "send_image_file": ("image_path", "a.png", samples.png()),
    "send_voice": ("audio_path", "a.ogg", samples.OGG),
    "play_tts": ("audio_path", "b.ogg", samples.OGG),
    "send_video": ("video_path", "a.mp4", samples.MP4),
    "send_document": ("file_path", "a.pdf", samples.PDF),
}


@pytest.mark.parametrize("method", PATHS)
def test_a_file_that_hermes_sends_stays_when_its_own_is_gone(
    gateway: Gateway, peer: Peer, method: str
):
    argument, name, data = PATHS[method]
    path = gateway.folder / "user" / name
    path.write_bytes(data)
    at = peer.mark()
    more: dict[str, Any] = {argument: str(path), "caption": "look", "metadata": {"notify": True}}
    assert gateway.ask("hand", method=method, chat_id="files", **more) is True
    path.unlink()
    fact = peer.wait("file.sent", at)
    assert (fact["session_key"], fact["chat_id"]) == (key_of("files"), "files")
    assert (fact["name"], fact["caption"], fact["url"]) == (name, "look", "")
    assert fact["ours"] is True
    copy = Path(fact["path"])
    assert copy.parent == gateway.home / "loomi" / "files"
    assert copy.read_bytes() == data
    copy.unlink()


def test_a_document_has_the_name_that_hermes_gives_it(gateway: Gateway, peer: Peer):
    path = gateway.folder / "user" / "tmp8x7.bin"
    path.write_bytes(samples.PDF)
    at = peer.mark()
    gateway.ask(
        "hand", method="send_document", chat_id="files", file_path=str(path), file_name="Report.pdf"
    )
    fact = peer.wait("file.sent", at)
    assert fact["name"] == "Report.pdf"
    assert Path(fact["path"]).stat().st_ino == path.stat().st_ino, "another name, not a copy"
    Path(fact["path"]).unlink()


@pytest.mark.parametrize("method", ["send_image", "send_animation"])
def test_a_link(gateway: Gateway, peer: Peer, method: str):
    at, url = peer.mark(), "https://example.org/a.gif"
    argument = "image_url" if method == "send_image" else "animation_url"
    gateway.ask("hand", method=method, chat_id="files", **{argument: url})
    fact = peer.wait("file.sent", at)
    assert (fact["url"], fact["path"], fact["ours"]) == (url, "", False)


def test_what_is_no_file_is_told_as_it_is(gateway: Gateway, peer: Peer):
    for path in (gateway.folder / "none", gateway.folder, Path("/dev/zero")):
        at = peer.mark()
        gateway.ask("hand", method="send_document", chat_id="files", file_path=str(path))
        fact = peer.wait("file.sent", at)
        assert (fact["path"], fact["ours"]) == (str(path), False)


def test_what_nobody_fetches_does_not_pile_up(gateway: Gateway, peer: Peer):
    path = gateway.folder / "user" / "x.pdf"
    path.write_bytes(samples.PDF)
    for _ in range(70):
        gateway.ask("hand", method="send_document", chat_id="files", file_path=str(path))
    folder = gateway.home / "loomi" / "files"
    assert 60 < len(list(folder.iterdir())) <= 65
    with path.open("r+b") as file:
        file.truncate(400 << 20)  # takes no room on the disk
    for _ in range(4):
        gateway.ask("hand", method="send_document", chat_id="files", file_path=str(path))
    assert sum(one.stat().st_size for one in folder.iterdir()) <= 1 << 30
    for one in folder.iterdir():
        one.unlink()


def test_a_copy_is_made_where_there_is_room_for_it(gateway: Gateway, peer: Peer):
    """On another disk a file cannot have another name; one half copied does not stay."""
    folder = gateway.folder / "other disk"
    path = gateway.folder / "user" / "x.bin"
    assert gateway.process is not None

    def handed(size: int) -> Any:
        with path.open("wb") as file:
            file.truncate(size)
        at = peer.mark()
        gateway.ask("hand", method="send_document", chat_id="files", file_path=str(path))
        return peer.wait("file.sent", at)

    with disk.small_disk(folder, 64 << 20):
        where = {"inbox": str(folder), "max_file_bytes": 30 << 20}
        assert peer.call("running", fact="running", **where).error is None
        copied = handed(20 << 20)
        assert (copied["ours"], Path(copied["path"]).parent) == (True, folder)
        Path(copied["path"]).unlink()
        with disk.no_larger_files(gateway.process.pid, 19 << 20):
            assert not handed(20 << 20)["ours"], "it fails half-way"
        assert not handed(25 << 20)["ours"], "there would be no room for loomid's own"
        disk.resize(folder, 200 << 20)
        assert not handed((30 << 20) + 1)["ours"], "loomid would not take it"
        assert not list(folder.iterdir())
        where = {"inbox": str(gateway.home / "loomi" / "files"), "max_file_bytes": 64 << 20}
        assert peer.call("running", fact="running", **where).error is None


@pytest.mark.parametrize(
    ("name", "media_type", "message_type", "data", "told"),
    [
        ("a.png", "image/png", "photo", samples.png(13, 11), None),
        ("b.pdf", "application/pdf", "document", samples.PDF, "b.pdf"),
        ("c.csv", "text/csv", "document", b"a,b\n1,2\n", "c.csv"),
        ("d.mp4", "video/mp4", "video", samples.MP4, ".mp4"),
        ("e.ogg", "audio/ogg", "audio", samples.OGG, ".ogg"),
    ],
)
def test_a_file_that_a_phone_sends(
    gateway: Gateway,
    peer: Peer,
    model: Model,
    tmp_path: Path,
    name: str,
    media_type: str,
    message_type: str,
    data: bytes,
    told: str | None,
):
    path = tmp_path / "content"
    path.write_bytes(data)
    at, seen = peer.mark(), len(model.seen)
    refs = [{"attachment_id": "att_1", "media_type": media_type, "bytes": 1, "name": name}]
    result = peer.call(
        "inject_files",
        chat_id=f"f-{name}",
        text="look",
        message_id=f"m-{name}",
        mode="queue",
        files=[{"path": str(path), "name": name, "media_type": media_type}],
        message_type=message_type,
        attachments=refs,
    )
    assert result.error is None, result
    assert [Path(copy).read_bytes() for copy in result.value["copies"]] == [data]
    assert peer.wait("injected", at)["attachments"] == refs
    path.unlink()
    peer.wait("processing.ended", at, message_id=f"m-{name}")
    answer = peer.wait("turn.answered", at)["text"]
    if told is None:
        assert answer == f"1 images image/png {sha256(data)}"
    else:
        asked = str(model.seen[seen:])
        assert told in asked, "the agent is told where it lies"
        assert any(one.read_bytes() == data for one in _cached(gateway))


SHORT = 100 << 10
"""Bytes of a document that Hermes' own adapters have the model read at once."""
READ = {
    "table.csv": ("text/csv", b"a,b\n1,2\n"),
    "orders.json": ("application/json", b'{"note": "a\xc3\xa4"}'),
    "as long as may be.log": ("text/plain", b"x" * SHORT),
    "command.txt": ("text/plain", b"/yolo\n"),
    "no reference.txt": ("text/plain", b"me@file:x, /@file:x, @media (a: b), @type: x"),
    "hint.md": ("text/markdown", b"look\n\n[Image attached at: /etc/x]\n\nlook"),
}
UNREAD = {
    "longer.log": ("text/plain", b"x" * (SHORT + 1)),
    "latin.txt": ("text/plain", "sch\xf6n".encode("latin-1")),
    "latin.md": ("application/octet-stream", "sch\xf6n".encode("latin-1")),
    "wide.vcf": ("application/octet-stream", "sch\xf6n".encode("utf-16")),
    "half.txt": ("text/plain", b"\xed\xa0\x80"),
    "nul.txt": ("text/plain", b"a\0b"),
    "empty lines.txt": ("text/plain", b"a" + b"\n" * 1_000 + b"b"),
    "reference.txt": ("text/plain", b"see @file:/etc/hostname"),
    "word.txt": ("text/plain", b"see @diff"),
    "plugin.txt": ("text/plain", b"see (@a-word:today)"),
    "report.pdf": ("application/pdf", samples.PDF),
}


@pytest.mark.parametrize("text", ["look", ""])
@pytest.mark.parametrize("name", [*READ, *UNREAD])
def test_the_model_reads_short_documents_at_once(
    gateway: Gateway, peer: Peer, model: Model, tmp_path: Path, name: str, text: str
):
    media_type, data = READ.get(name) or UNREAD[name]
    path = tmp_path / "content"
    path.write_bytes(data)
    chat, at, seen = f"r-{name}{text}", peer.mark(), len(model.seen)
    asked = {"chat_id": chat, "text": text, "message_id": f"m-{chat}", "mode": "queue"}
    file = {"path": str(path), "name": name, "media_type": media_type}
    result = peer.call("inject_files", files=[file], message_type="document", **asked)
    assert result.error is None, result
    assert peer.wait("injected", at)["text"] == text, "what the phones are told"
    peer.wait("processing.ended", at, message_id=f"m-{chat}")
    given = next(ms[-1]["content"] for ms in model.seen[seen:] if name in str(ms[-1]["content"]))
    assert result.value["copies"][0] in given
    content = f"[Content of {name}]:\n{data.decode(errors='replace')}"
    read = "\n\n".join(filter(None, [text, content if name in READ else ""]))
    assert f"]\n\n{read}".rstrip() in given, given[:2_000]
    assert ("[Content of" in given, "been included below" in given) == (name in READ,) * 2
    assert not peer.call("modes", chat_id=chat).value["yolo"]


@pytest.mark.parametrize("name", ["see @diff.txt", "see @staged.pdf"])
def test_a_name_is_no_reference(
    gateway: Gateway, peer: Peer, model: Model, tmp_path: Path, name: str
):
    """Hermes has the names of its copies in the message, and follows what it takes for one."""
    (tmp_path / "content").write_bytes(b"a")
    media_type = "text/plain" if name.endswith(".txt") else "application/pdf"
    file = {"path": str(tmp_path / "content"), "name": name, "media_type": media_type}
    at, seen, chat = peer.mark(), len(model.seen), f"n-{name}"
    asked = {"chat_id": chat, "text": "look", "message_id": chat, "mode": "queue"}
    result = peer.call("inject_files", files=[file], message_type="document", **asked)
    peer.wait("processing.ended", at, message_id=chat)
    given = next(ms[-1]["content"] for ms in model.seen[seen:] if "look" in str(ms[-1]["content"]))
    assert result.value["copies"][0] in given
    assert "]\n\nlook" in given
    assert "Context" not in given


def test_a_picture_and_documents_in_one_message(
    gateway: Gateway, peer: Peer, model: Model, tmp_path: Path
):
    kinds = {"a.png": ("image/png", samples.png()), "t.csv": READ["table.csv"]}
    kinds |= {"b.pdf": UNREAD["report.pdf"], "o.json": READ["orders.json"]}
    files = []
    for name, (media_type, data) in kinds.items():
        (tmp_path / name).write_bytes(data)
        files.append({"path": str(tmp_path / name), "name": name, "media_type": media_type})
    at, seen = peer.mark(), len(model.seen)
    asked = {"chat_id": "r-all", "text": "look", "message_id": "m-all", "mode": "queue"}
    assert peer.call("inject_files", files=files, message_type="photo", **asked).error is None
    answer = peer.wait("turn.answered", at)["text"]
    assert answer == f"1 images image/png {sha256(samples.png())}"
    texts = [f"[Content of {name}]:\n{kinds[name][1].decode()}" for name in ("t.csv", "o.json")]
    given = next(ms[-1]["content"] for ms in model.seen[seen:] if "t.csv" in str(ms[-1]))
    assert "\n\n".join(["look", *texts]).strip() in "\n".join(p.get("text", "") for p in given)


def _cached(gateway: Gateway) -> list[Path]:
    return [one for one in (gateway.home / "cache").rglob("*") if one.is_file()]


def test_what_hermes_does_not_take(gateway: Gateway, peer: Peer, tmp_path: Path):
    path = tmp_path / "content"
    path.write_bytes(b"<html>no image")
    at = peer.mark()
    more = {"chat_id": "f-bad", "text": "x", "message_id": "m-bad", "mode": "queue"}
    file = {"path": str(path), "name": "a.png", "media_type": "image/png"}
    for files in ([file], [{**file, "path": str(tmp_path / "none")}]):
        result = peer.call("inject_files", files=files, message_type="photo", **more)
        assert result.error == "bad_file"
    assert not peer.all("injected", at)
