"""An app can try all that docs/protocol.md tells on the demo: files, the past, models, modes."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest

from loomid.lmp import capabilities
from tests.cli.test_demo_requests import an_app, send
from tests.support.daemon import Daemon
from tests.support.main_job import demo_agent
from tests.support.phone import Phone
from tests.support.samples import b64, png

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.phone import Connection

NOTE = {"data": b64(b"hello"), "name": "note.md", "media_type": "text/markdown"}
PICTURE = {"data": b64(png()), "name": "a b.png"}
ALL = sorted([*capabilities.OPS, *capabilities.FROM_DATABASE])


async def ask(c: Connection, type_: str, request_id: str, **payload: Any) -> dict[str, Any]:
    """The payload of a request's answer, which must be no error."""
    answer = await c.request(type_, request_id=request_id, **payload)
    assert answer.type == f"{type_}.result", answer
    return answer.payload


async def refused(c: Connection, type_: str, request_id: str, **payload: Any) -> tuple[str, Any]:
    answer = await c.request(type_, request_id=request_id, **payload)
    assert answer.type == "error", answer
    return answer.payload["code"], answer.payload.get("params")


async def test_it_offers_whatever_a_gateway_can(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (_, c):
        assert c.hello_ok is not None
        (gateway,) = c.hello_ok.payload["gateways"]
        assert gateway["capabilities"] == ALL
        told = await ask(c, "host.info", "r1")
        assert (told["hermes_version"], told["home"]) == ("demo", str(tmp_path / "home"))
        assert 0 < told["disk_free"] <= told["disk_total"]


@pytest.mark.parametrize("word", ["hello", "tool", "think", "danger", "ask", "file", "fail"])
async def test_a_run_has_the_same_parts_live_and_later(tmp_path: Path, word: str) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", word)
        if word == "danger":
            asked = (await c.wait_type("approval.required")).payload
            body = {"approval_id": asked["approval_id"], "choice": "deny"}
            await ask(c, "approval.resolve", "r2", **body)
        if word == "ask":
            question = (await c.wait_type("question.required")).payload
            answers = [{"id": "q0", "selected": ["blue"]}]
            body = {"question_id": question["question_id"], "answers": answers}
            await ask(c, "question.answer", "r2", **body)
        ended = await c.wait_type("run.failed" if word == "fail" else "run.completed")
        if word == "file":
            await c.wait_type("run.attachment")
        (turn,) = (await ask(c, "task.history", "r3", task_id=task))["turns"]
        assert turn["prompt"] == word
        if word == "fail":
            assert (turn["partial"], turn["parts"]) == (True, [])
            return
        live = {frame.payload["part"] for frame in phone.events() if "part" in frame.payload}
        assert {part["part"] for part in turn["parts"]} == live
        said = [part["text"] for part in turn["parts"] if part["kind"] == "text"]
        assert said[-1] == ended.payload["text"]
        assert turn["status"] == "completed"
        tools = [
            (f.payload["part"], "completed" if f.payload["ok"] else "failed")
            for f in phone.events("run.tool_finished")
        ]
        stored = [(p["part"], p["status"]) for p in turn["parts"] if p["kind"] == "tool"]
        assert stored == tools
        shown = [f.payload["preview"] for f in phone.events("run.tool_started")]
        assert [p["preview"] for p in turn["parts"] if p["kind"] == "tool"] == shown
        stats = await ask(c, "task.stats", "r4", task_id=task)
        assert (stats["calls"], stats["tool_calls"]) == (1 + len(tools), len(tools))


async def test_the_past_is_there_after_a_restart(tmp_path: Path) -> None:
    with Daemon(tmp_path) as daemon:
        phone = Phone(daemon.url)
        code = (await asyncio.to_thread(daemon.pair))["qr"]
        async with phone.connect(code["token"]) as c:
            async with demo_agent(daemon, "0", tmp_path / "home"):
                task = await send(c, "r1", "long live the oak")
                await c.wait_type("run.completed")
            async with demo_agent(daemon, "0", tmp_path / "home"):
                found = (await ask(c, "task.list", "r2"))["tasks"]
                assert [(one["task_id"], one["title"]) for one in found] == [
                    (task, "long live the oak")
                ]
                hits = (await ask(c, "task.search", "r3", query="oak"))["hits"]
                assert [(hit["task_id"], hit["role"]) for hit in hits] == [(task, "user")]
                await send(c, "r4", "and the elm", task_id=task)
                await c.wait_type("run.completed", 2)
                turns = (await ask(c, "task.history", "r5", task_id=task))["turns"]
                assert [turn["prompt"] for turn in turns] == ["long live the oak", "and the elm"]


async def test_files_both_ways(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        await send(c, "r1", "", attachments=[NOTE])
        ended = await c.wait_type("run.completed")
        assert ended.payload["text"] == "You sent note.md (text/markdown, 5 bytes)."
        (started,) = phone.events("run.started")
        assert [one["name"] for one in started.payload["origin"]["attachments"]] == ["note.md"]
        await send(c, "r2", "file")
        sent = (await c.wait_type("run.attachment")).payload
        assert (sent["media_type"], sent["width"], sent["height"]) == ("image/png", 64, 64)
        got = await ask(c, "attachment.get", "r3", attachment_id=sent["attachment_id"])
        assert base64.b64decode(got["data"]).startswith(b"\x89PNG\r\n")
        ended = await c.wait_type("run.completed", 2)
        path = ended.payload["text"].partition("MEDIA:")[2]
        assert await asyncio.to_thread(_gone, path)


async def test_the_past_has_the_files_of_a_message(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (_, c):
        task = await send(c, "r1", "see", attachments=[PICTURE, NOTE])
        alone = await send(c, "r2", "", attachments=[PICTURE, NOTE])
        await c.wait_type("run.completed", 2)
        for one, prompt, preview in ((task, "see", "see"), (alone, "", "a b.png, note.md")):
            (turn,) = (await ask(c, "task.history", f"h-{one}", task_id=one))["turns"]
            names = [file["name"] for file in turn["attachments"]]
            assert (turn["prompt"], names) == (prompt, ["a b.png", "note.md"])
            tasks = (await ask(c, "task.list", f"l-{one}"))["tasks"]
            assert [each["preview"] for each in tasks if each["task_id"] == one] == [preview]


async def test_a_message_with_files_is_folded_into_no_run(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", "long story")
        await c.wait_type("run.delta")
        await send(c, "r2", "see", task_id=task, mode="steer", attachments=[NOTE])
        ended = await c.wait_type("run.completed", 2)
        assert ended.payload["text"].endswith("You sent note.md (text/markdown, 5 bytes).")
        origin = phone.events("run.started")[1].payload["origin"]
        assert [file["name"] for file in origin["attachments"]] == ["note.md"]


def _gone(path: str) -> bool:
    from pathlib import Path

    return path.endswith(".png") and not Path(path).exists()


async def test_models_and_modes(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (phone, c):
        task = await send(c, "r1", "hello")
        await c.wait_type("run.completed")
        large = "demo-model-large"
        await ask(c, "model.set", "r2", model=large, task_id=task)
        told = await ask(c, "model.list", "r3", task_id=task)
        assert (told["default"]["model"], told["current"]["model"]) == ("demo-model", large)
        assert (await refused(c, "model.set", "r4", model="gpt", task_id=task))[0] == (
            "unknown_model"
        )
        await ask(c, "mode.set", "r5", mode="reasoning", value="none", task_id=task)
        await send(c, "r6", "think", task_id=task)
        await c.wait_type("run.completed", 2)
        assert phone.events("run.started")[1].payload["model"] == large
        assert {f.payload["kind"] for f in phone.events("run.delta")} == {"text"}
        await ask(c, "mode.set", "r7", mode="reasoning", value="default", task_id=task)
        yolo = {"mode": "yolo", "value": "on", "task_id": task}
        assert (await refused(c, "mode.set", "r8", **yolo))[0] == "confirm_required"
        assert (await ask(c, "mode.set", "r9", **yolo, confirm=True))["yolo"] is True
        assert (await ask(c, "mode.get", "r10", task_id=task))["reasoning"] == "default"
        await send(c, "r11", "danger", task_id=task)
        await c.wait_type("run.completed", 3)
        assert phone.events("approval.required") == []
        other = await send(c, "r12", "long story")
        await c.wait_type("run.delta")
        busy = await refused(c, "model.set", "r13", model=large, task_id=other)
        assert busy == ("not_permitted", {"reason": "busy"})


async def test_commands(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (_, c):
        listed = (await ask(c, "command.list", "r1"))["commands"]
        assert [one["name"] for one in listed if one.get("whole_gateway")] == ["restart"]
        said = {"text": "/restart", "command": True}
        assert (await refused(c, "session.send", "r2", **said))[0] == "confirm_required"
        await ask(c, "session.send", "r3", **said, confirm=True)
        assert "/restart" in (await c.wait_type("notification")).payload["text"]


async def test_tasks(tmp_path: Path) -> None:
    async with an_app(tmp_path) as (_, c):
        new = await ask(c, "task.new", "r1", title="Trees")
        task = await send(c, "r2", "hello", task_id=new["task_id"])
        await c.wait_type("run.completed")
        assert await refused(c, "task.new", "r3", title="Trees") == (
            "not_permitted",
            {"reason": "title_taken"},
        )
        named = await ask(c, "task.rename", "r4", task_id=task, title="Oaks")
        assert named["title"] == "Oaks"
        fork = await ask(c, "task.fork", "r5", task_id=task)
        assert (fork["origin_task_id"], fork["title"]) == (task, "Oaks #2")
        for one in (task, fork["task_id"]):
            (turn,) = (await ask(c, "task.history", f"h-{one}", task_id=one))["turns"]
            assert turn["prompt"] == "hello"
        assert (await refused(c, "task.continue", "r6", task_id=task))[1] == {"reason": "own_task"}
        empty = await ask(c, "task.new", "r7")
        assert (await refused(c, "task.fork", "r8", task_id=empty["task_id"]))[1] == {
            "reason": "not_found"
        }
        titles = {t["title"] for t in (await ask(c, "task.list", "r9"))["tasks"]}
        assert titles == {"Oaks", "Oaks #2", ""}
