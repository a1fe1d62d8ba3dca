"""The past of messages with files: remembered here, whatever Hermes makes of them."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from loomid import hermesdb, sentindex
from loomid.lmp.history_frames import LEAST_BYTES
from loomid.ownwords import openings
from tests.support import samples
from tests.support.answering import PHONE, Host, Side, key_of
from tests.support.hermes_home import Home
from tests.support.past import linked, turns
from tests.support.samples import b64, sha256

if TYPE_CHECKING:
    from pathlib import Path

NOTE = {"data": b64(b"hello"), "name": "a b.md", "media_type": "text/markdown"}
PNG = {"data": b64(samples.png()), "name": "b.png"}


async def say(
    side: Side, host: Host, hermes: Home, text: str, *files: Any, read: str = "", **more: Any
) -> str:
    """A message with files, which Hermes stores in its own words; its task. `read`: what the model
    reads of them at once."""
    hermes._now = max(hermes._now, time.time())
    asked: dict[str, Any] = {"text": text, "request_id": f"r{len(host.commands)}"}
    if files:
        asked["attachments"] = list(files)
    done = await side.ask("session.send", **asked, **more)
    command = host.commands[-1]
    copies = host._inject_files(command)["value"]["copies"] if files else []
    notes = "".join(f"[The user sent a document. It is saved at: {one}.]\n\n" for one in copies)
    key = key_of(command.args["chat_id"])
    if "task_id" not in more:
        hermes.session(f"s-{key}", key)
    hermes.message("user", notes + "\n\n".join(filter(None, [text, read])), f"s-{key}")
    hermes.message("assistant", "ok", f"s-{key}", finish_reason="stop")
    return str(done["task_id"])


def rows(tmp_path: Path) -> list[Any]:
    with closing(sqlite3.connect(tmp_path / "state.db")) as line:
        return line.execute("SELECT text, task_id FROM sent ORDER BY at").fetchall()


async def test_it_is_told_as_it_was_sent(side: Side, host: Host, hermes: Home) -> None:
    task_id = await say(side, host, hermes, " look ", PNG, NOTE)
    await say(side, host, hermes, "", NOTE, task_id=task_id)
    first, second = await turns(side, task_id)
    assert (first["prompt"], second["prompt"]) == (" look ", "")
    picture = {
        "kind": "image",
        "attachment_id": f"att_{sha256(samples.png())}",
        "media_type": "image/png",
        "bytes": len(samples.png()),
        "name": "b.png",
        "width": 3,
        "height": 2,
    }
    note = {
        "kind": "file",
        "attachment_id": f"att_{sha256(b'hello')}",
        "media_type": "text/markdown",
        "bytes": 5,
        "name": "a b.md",
    }
    assert (first["attachments"], second["attachments"]) == ([picture, note], [note])
    small = await turns(side, task_id, max_bytes=LEAST_BYTES)
    assert small == [first, second]


async def test_a_page_is_never_above_its_size(side: Side, host: Host, hermes: Home) -> None:
    many = [{**NOTE, "name": f"{'n' * 200}{number}.md"} for number in range(20)]
    task_id = await say(side, host, hermes, "look", *many)
    copies = host._inject_files(host.commands[-1])["value"]["copies"]
    hints = "".join(f"\n\n[Image attached at: {one}]" for one in copies)
    hermes.run("UPDATE messages SET content = ? WHERE role = 'user'", f"look{hints}")
    asked = {"task_id": task_id, "max_bytes": LEAST_BYTES}
    answer = await side.ask("task.history", **asked)
    assert len(json.dumps(answer)) <= LEAST_BYTES
    (turn,) = await turns(side, task_id)
    assert len(turn["attachments"]) == 20


async def test_also_after_a_restart_and_when_the_file_is_gone(tmp_path: Path, hermes: Home) -> None:
    async with Side(tmp_path) as side, linked(side, hermes) as host:
        task_id = await say(side, host, hermes, "look", NOTE)
        before = await turns(side, task_id)
    async with Side(tmp_path) as side, linked(side, hermes):
        await side.files.index.forget(sha256(b"hello"))
        assert await turns(side, task_id) == before
        name = before[0]["attachments"][0]["attachment_id"]
        assert (await side.refused("attachment.get", attachment_id=name)).code == "unknown_file"


async def test_what_never_ran_is_not_remembered(side: Side, host: Host, tmp_path: Path) -> None:
    host.errors["inject_files"] = "bad_file"
    await side.refused("session.send", text="look", request_id="r1", attachments=[NOTE])
    assert rows(tmp_path) == []


async def test_messages_without_files_are_not_remembered(
    side: Side, host: Host, tmp_path: Path
) -> None:
    await side.ask("session.send", text="look", request_id="r1")
    assert rows(tmp_path) == []


@pytest.mark.parametrize(("limit", "value"), [("MOST", 2), ("MOST_BYTES", 600)])
async def test_the_newest_are_remembered(
    side: Side,
    host: Host,
    hermes: Home,
    tmp_path: Path,
    limit: str,
    value: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentindex, limit, value)
    task_id = await say(side, host, hermes, f"{'0' * 80}", NOTE)
    for number in (1, 2):
        await say(side, host, hermes, f"{number}" * 80, NOTE, task_id=task_id)
    assert rows(tmp_path) == [("1" * 80, task_id), ("2" * 80, task_id)]
    forgotten, *known = await turns(side, task_id)
    assert forgotten["prompt"].startswith("[The user sent a document."), "as Hermes has it"
    assert [turn["prompt"] for turn in known] == ["1" * 80, "2" * 80]


async def test_an_older_plugin_tells_no_copies(side: Side, host: Host, hermes: Home) -> None:
    for odd in ({}, {"copies": "odd"}, {"copies": [1, None]}):
        host.values["inject_files"] = {"session_key": key_of("c1"), "message_id": "m"} | odd
        task_id = await say(side, host, hermes, "look", NOTE)
        assert task_id == side.task_id(key_of("c1"))


async def test_hits_have_no_folders(side: Side, host: Host, hermes: Home) -> None:
    """Of messages that are not known."""
    hermes.session("s1", key_of("c1"))
    hermes.message("user", f"it is saved at: {hermes.folder}/cache/documents/doc_1_a.md", "s1")
    (hit,) = (await side.ask("task.search", PHONE, query="saved"))["hits"]
    assert hit["snippet"] == "it is saved at: doc_1_a.md"
    assert [hit["snippet"][a:b] for a, b in hit["highlights"]] == ["saved"]
    (hit,) = (await side.ask("task.search", query="cache"))["hits"]
    assert hit["highlights"] == [], "it is in what is left out"


LONG = "please look\nat " + "these " * 20
READ = f"[Content of a b.md]:\n[Image attached at: x]\n\nlook\n\na zebrafish {'y' * 100_000}"


async def listed(side: Side, host: Host, hermes: Home, task_id: str, title: str = "") -> Any:
    """The task in the list; Hermes lists each of its sessions as it does."""
    rows = hermes.rows("SELECT id, session_key, source, started_at FROM sessions")
    host.sessions = []
    for row in rows:
        stored = hermes.rows("SELECT content FROM messages WHERE session_id = ?", row["id"])
        preview = stored[0]["content"][:60] + "..."
        host.sessions.append(
            {**row, "last_active": time.time(), "title": title, "preview": preview}
        )
    tasks = (await side.ask("task.list"))["tasks"]
    return next(task for task in tasks if task["task_id"] == task_id)


@pytest.mark.parametrize(
    ("text", "files", "preview"),
    [
        ("look", [NOTE], "look"),
        (LONG, [PNG, NOTE], f"{' '.join(LONG.split())[:60]}..."),
        ("", [PNG, NOTE], "b.png, a b.md"),
    ],
)
@pytest.mark.parametrize("read", ["", READ])
async def test_the_list_has_the_users_words(
    side: Side, host: Host, hermes: Home, text: str, files: list[Any], preview: str, read: str
) -> None:
    task_id = await say(side, host, hermes, text, *files, read=read)
    await say(side, host, hermes, "another", NOTE, task_id=task_id)
    typed = await say(side, host, hermes, "typed")
    stored = hermes.rows("SELECT content FROM messages ORDER BY id")[0]["content"]
    for title, shown in (
        ("Named by the user", "Named by the user"),
        (stored.splitlines()[0][:40] + "…", (text or preview).splitlines()[0]),
        (stored.splitlines()[0], (text or preview).splitlines()[0]),
    ):
        task = await listed(side, host, hermes, task_id, title)
        assert (task["preview"], task["title"]) == (preview, shown)
    assert (await listed(side, host, hermes, typed))["preview"] == "typed..."
    for limit in (LEAST_BYTES, 2**20):
        first, second = await turns(side, task_id, max_bytes=limit)
        assert (first["prompt"], second["prompt"]) == (text, "another")
        assert [one["name"] for one in first["attachments"]] == [one["name"] for one in files]


async def test_the_list_needs_no_database(side: Side, host: Host, hermes: Home) -> None:
    task_id = await say(side, host, hermes, "look", NOTE)
    known = await listed(side, host, hermes, task_id)
    assert known["preview"] == "look"
    hermes.path.unlink()
    tasks = (await side.ask("task.list"))["tasks"]
    assert tasks[0]["preview"].startswith("[The user sent a document."), "as Hermes has it"


async def test_hits_are_in_the_users_words(side: Side, host: Host, hermes: Home) -> None:
    task_id = await say(side, host, hermes, "compare these", NOTE, read=READ)
    await say(side, host, hermes, "", PNG, NOTE, read=READ)
    await say(side, host, hermes, "nothing of that", task_id=task_id)
    stored = hermes.rows("SELECT content FROM messages ORDER BY id")[0]["content"]
    hermes.run("UPDATE sessions SET title = ? WHERE rowid = 1", stored[:40] + "…")

    async def found(word: str) -> list[Any]:
        return list((await side.ask("task.search", query=word))["hits"])

    (hit,) = await found("compare")
    assert (hit["snippet"], hit["highlights"]) == ("compare these", [[0, 7]])
    assert hit["title"] == "compare these"
    for hit in await found("zebrafish"):
        assert [hit["snippet"][a:b] for a, b in hit["highlights"]] == ["zebrafish"]
        assert hit["snippet"].startswith("[Content of a b.md]:\n")
    told = [(hit["snippet"], hit["highlights"]) for hit in await found("saved")]
    assert told == [("b.png, a b.md", []), ("compare these", [])]
    (hit,) = await found("nothing")
    assert hit["title"] == "compare these"


async def test_a_branch_begins_with_the_users_words_too(
    side: Side, host: Host, hermes: Home
) -> None:
    task_id = await say(side, host, hermes, "look", NOTE)
    (first,) = hermes.rows("SELECT id, session_key FROM sessions")
    branch = {"parent_session_id": first["id"], "model_config": {"_branched_from": first["id"]}}
    hermes.session("s-2", first["session_key"], **branch)
    hermes.copy(first["id"], "s-2", keep_time=True)
    for session, title in ((first["id"], "[The user…"), ("s-2", "[The user sent…")):
        hermes.message("user", f"a zebra in {session}", session)
        hermes.run("UPDATE sessions SET title = ? WHERE id = ?", title, session)
    hits = (await side.ask("task.search", query="zebra"))["hits"]
    told = {(hit["session_id"], hit["task_id"], hit["title"]) for hit in hits}
    assert told == {(first["id"], task_id, "look"), ("s-2", task_id, "look")}


async def test_no_documents_are_held_for_the_list(side: Side, host: Host, hermes: Home) -> None:
    task_id = await say(side, host, hermes, "look", NOTE, read=READ)
    (session,) = hermes.rows("SELECT id FROM sessions")
    sent = await side.files.sent.of_tasks([task_id])
    look = partial(openings, tasks={session["id"]: task_id}, sent=sent)
    own = hermesdb.read(hermes.folder, look)[session["id"]]
    assert (own.preview, own.title("[The user sent…")) == ("look", "look")
    assert len(own.stored) < 2_000
