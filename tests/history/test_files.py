"""The past of messages with files and of files that the agent sent: remembered here, whatever
Hermes makes of them."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from loomid import handedindex, sentindex
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.history_frames import LEAST_BYTES
from loomid.lmp.parts import attachment
from tests.support import samples
from tests.support.answering import PHONE, Host, Side, key_of
from tests.support.handing import event, events, handed
from tests.support.hermes_home import Home
from tests.support.samples import b64, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOTE = {"data": b64(b"hello"), "name": "a b.md", "media_type": "text/markdown"}
PNG = {"data": b64(samples.png()), "name": "b.png"}


@pytest.fixture
def hermes(tmp_path: Path) -> Home:
    return Home(tmp_path / "hermes")


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    async with Side(tmp_path) as started:
        yield started


@asynccontextmanager
async def linked(side: Side, hermes: Home) -> AsyncIterator[Host]:
    made = Host(side.socket, home=str(hermes.folder))
    yield await side.online(made)
    made.link.stop(0.1)


@pytest.fixture
async def host(side: Side, hermes: Home) -> AsyncIterator[Host]:
    async with linked(side, hermes) as host:
        yield host


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


async def turns(side: Side, task_id: str, **more: Any) -> list[Any]:
    found: list[Any] = (await side.ask("task.history", task_id=task_id, **more))["turns"]
    return found


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


# ── what the agent sent ─────────────────────────────────────────────────────


class Agent:
    """Runs of one chat that send files, and what Hermes stores of them."""

    def __init__(self, side: Side, host: Host, hermes: Home, folder: Path) -> None:
        self.side, self.host, self.hermes, self.folder = side, host, hermes, folder
        self.task_id = side.task_id(key_of("c1"))
        self.session = "s-c1"

    async def run(self, turn: str, *names: str, stored: bool = True, **more: Any) -> list[Any]:
        """One run that sends files of these names, with their name in each; its parts as a phone
        has them in the end."""
        self.host.start_turn(turn)
        run_id = (await event(self.side, "run.started", run_id=self.side.run_id(turn)))["run_id"]
        if stored:
            self.hermes._now = time.time()
            for role, text in (("user", f"do {turn}"), ("assistant", "Here it is.")):
                ended = {"finish_reason": "stop"} if role == "assistant" else {}
                self.hermes.message(role, text, self.session, after=0.0, **ended)
        self.host.end_turn(turn)
        await event(self.side, "run.completed", run_id=run_id)
        for name in names:
            (self.folder / name).write_text(name)
            told = handed(f"out-{turn}-{name}", self.folder / name, name=name, **more)
            self.host.link.emit("file.sent", told)
        await until(lambda: len(self.sent(run_id)) == len(names))
        return self.sent(run_id)

    def sent(self, run_id: str) -> list[Any]:
        """The parts that a run has of what was sent, as phones are told."""
        told = [one for one in events(self.side, "run.attachment") if one["run_id"] == run_id]
        payloads = [msgspec.convert(one, RunAttachment) for one in told]
        return [msgspec.to_builtins(attachment(payload)) for payload in payloads]

    async def history(self, **more: Any) -> list[Any]:
        """The same of each turn, as its history has it."""
        return [sent_in(turn) for turn in await turns(self.side, self.task_id, **more)]


def sent_in(turn: Any) -> list[Any]:
    return [part for part in turn["parts"] if part["kind"] == "attachment"]


@pytest.fixture
async def agent(side: Side, host: Host, hermes: Home, tmp_path: Path) -> Agent:
    hermes._now = time.time() - 1
    hermes.session("s-c1", key_of("c1"))
    return Agent(side, host, hermes, tmp_path)


async def test_what_the_agent_sent_is_in_its_turn(agent: Agent) -> None:
    """Also what was sent twice, and files of one name with other bytes."""
    live = [
        await agent.run("t1", "a.md", "b.md", caption=" Look "),
        await agent.run("t2"),
        await agent.run("t3", "b.md"),
    ]
    assert await agent.history() == live
    assert [part["text"] for part in live[0]] == ["Look", "Look"]
    assert live[0][1]["attachment"] == live[2][0]["attachment"]
    for one in ({"max_messages": 1}, {"max_bytes": LEAST_BYTES}, {"view": "full"}):
        assert (await agent.history(**one))[-1:] == live[-1:]
    ref = live[2][0]["attachment"]
    got = await agent.side.ask("attachment.get", attachment_id=ref["attachment_id"])
    assert got["data"] == b64(b"b.md")


async def test_links_and_what_could_not_be_taken(agent: Agent) -> None:
    await agent.run("t1")
    run_id = agent.side.run_id("t1")
    agent.host.link.emit("file.sent", handed("out-1", "", url="https://example.org/a.png"))
    agent.host.link.emit("file.sent", handed("out-2", agent.folder / "none"))
    agent.host.link.emit("file.sent", handed("out-3", "", url="https://example.org/" + "a" * 2048))
    await until(lambda: len(agent.sent(run_id)) == 3)
    (told,) = await agent.history()
    assert told == [one for one in agent.sent(run_id) if len(str(one)) < 2_048]
    by_error = {one["attachment"].get("error"): one["attachment"] for one in told}
    assert by_error["gone"]["name"] == "report.pdf"
    assert by_error[None]["url"] == "https://example.org/a.png"
    assert all("attachment_id" not in one["attachment"] for one in told)


async def test_it_is_not_guessed_whose_it_was(agent: Agent) -> None:
    """Of the first run Hermes stored nothing."""
    await agent.run("t1", "a.md", stored=False)
    live = await agent.run("t2", "b.md")
    assert await agent.history() == [live]


async def test_what_was_sent_after_a_restart_and_when_it_is_gone(
    tmp_path: Path, hermes: Home
) -> None:
    hermes.session("s-c1", key_of("c1"))
    async with Side(tmp_path) as side, linked(side, hermes) as host:
        before = [await Agent(side, host, hermes, tmp_path).run("t1", "a.md", "b.md")]
    async with Side(tmp_path) as side, linked(side, hermes) as host:
        agent = Agent(side, host, hermes, tmp_path)
        assert await agent.history() == before
        await side.files.index.forget(sha256(b"a.md"))
        assert await agent.history() == before
        name = before[0][0]["attachment"]["attachment_id"]
        assert (await side.refused("attachment.get", attachment_id=name)).code == "unknown_file"


async def test_a_branch_has_what_was_sent_before_it_once(agent: Agent) -> None:
    live = [await agent.run("t1", "a.md")]
    agent.hermes._now = time.time() - 1.0  # it begins now
    config = {"_branched_from": "s-c1"}
    agent.hermes.session("s-2", key_of("c1"), parent_session_id="s-c1", model_config=config)
    agent.hermes.copy("s-c1", "s-2", keep_time=True)
    agent.session = "s-2"
    live.append(await agent.run("t2", "b.md"))
    assert await agent.history() == live


async def test_the_newest_of_what_was_sent_is_remembered(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handedindex, "MOST", 2)
    first = await agent.run("t1", "a.md", "b.md")
    second = await agent.run("t2", "c.md")
    assert await agent.history() == [first[1:], second]


async def test_a_page_with_what_was_sent_is_never_above_its_size(agent: Agent) -> None:
    """A turn that is larger comes in pieces; a link that is larger than a page is left out."""
    names = [f"{'n' * 80}{number}.md" for number in range(20)]
    live = await agent.run("t1", *names)
    agent.host.link.emit("file.sent", handed("out-1", "", url='"\\' * 1_024, caption='"' * 2_000))
    await until(lambda: len(agent.sent(agent.side.run_id("t1"))) == 21)
    found: list[Any] = []
    asked = {"task_id": agent.task_id, "max_bytes": LEAST_BYTES}
    while True:
        answer = await agent.side.ask("task.history", **asked)
        assert len(json.dumps(answer, separators=(",", ":"))) <= LEAST_BYTES
        (turn,) = answer["turns"]
        found = [*sent_in(turn), *found]
        if "next_before" not in answer:
            break
        asked["before"] = answer["next_before"]
    assert found[:-1] == live
    assert "attachment" not in found[-1]
