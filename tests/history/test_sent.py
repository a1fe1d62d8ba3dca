"""The past of files that the agent sent: remembered here, as Hermes keeps nothing of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from loomid import handedindex
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.history_frames import LEAST_BYTES
from loomid.lmp.parts import attachment
from tests.support.answering import Host, Side, key_of
from tests.support.handing import event, events, handed
from tests.support.hermes_home import Home
from tests.support.past import linked, turns
from tests.support.samples import b64, sha256
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize(("bound", "most"), [("MOST", 2), ("MOST_BYTES", 600)])
async def test_the_newest_of_what_was_sent_is_remembered(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(handedindex, bound, most)
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
