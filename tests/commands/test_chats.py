"""Titles and new tasks: what leaves for the gateway, what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.answering import Host, Side, key_of

OTHER = "agent:main:telegram:dm:7"


@pytest.fixture
def tasks(side: Side, host: Host) -> dict[str, str]:
    """A task of each kind of surface."""
    rows = {"loomi": key_of("old"), "telegram": OTHER, "cli": None}
    host.sessions = [
        {"id": f"s-{source}", "session_key": key, "source": source, "started_at": 1.0}
        | {"last_active": 5.0}
        for source, key in rows.items()
    ]
    return {source: side.task_id(key or f"s-{source}") for source, key in rows.items()}


@pytest.mark.parametrize(
    ("surface", "session"),
    [
        ("loomi", {"session_key": key_of("old"), "session_id": "s-loomi"}),
        ("telegram", {"session_key": OTHER, "session_id": "s-telegram"}),
        ("cli", {"session_id": "s-cli"}),
    ],
)
async def test_rename(
    side: Side, host: Host, tasks: dict[str, str], surface: str, session: dict[str, str]
) -> None:
    host.values["rename"] = {"title": "as kept"}
    asked = {
        "request_id": "r1",
        "task_id": tasks[surface],
        "title": " Holidays \U0001f468\u200d\U0001f467 ",
    }
    answer = await side.ask("task.rename", **asked)
    assert answer == {"request_id": "r1", "task_id": tasks[surface], "title": "as kept"}
    (command,) = host.ops("rename")
    assert command.args == {"title": "Holidays \U0001f468\u200d\U0001f467"} | session


@pytest.mark.parametrize("type_", ["task.rename", "task.new"])
@pytest.mark.parametrize(
    ("title", "code"),
    [
        ("", "bad_frame"),
        (" \n ", "bad_frame"),
        ("two\nlines", "bad_frame"),
        ("bell\x07", "bad_frame"),
        ("x" * 101, "too_large"),
        (7, "bad_frame"),
    ],
)
async def test_bad_titles(
    side: Side, host: Host, tasks: dict[str, str], type_: str, title: object, code: str
) -> None:
    more = {"task_id": tasks["loomi"]} if type_ == "task.rename" else {}
    assert (await side.refused(type_, request_id="r1", title=title, **more)).code == code
    assert not host.ops("rename")
    assert not host.ops("open")


async def test_a_title_that_is_taken(side: Side, host: Host, tasks: dict[str, str]) -> None:
    host.errors["rename"] = "title_taken"
    asked = {"request_id": "r1", "task_id": tasks["cli"], "title": "mine"}
    refused = await side.refused("task.rename", **asked)
    assert (refused.code, refused.params) == ("not_permitted", {"reason": "title_taken"})
    del host.errors["rename"]
    host.values["rename"] = {"title": "mine"}
    assert (await side.ask("task.rename", **asked))["title"] == "mine"  # it was not kept


def new_chat(host: Host, **more: Any) -> None:
    """Have the host open a chat under the id that it is given."""
    for op in ("_open", "_branch"):
        setattr(host, op, lambda c: {"value": {"session_key": key_of(c.args["chat_id"]), **more}})


async def test_a_new_task_takes_its_first_message(side: Side, host: Host) -> None:
    new_chat(host, title="Holidays")
    answer = await side.ask("task.new", request_id="r1", title="Holidays")
    (command,) = host.ops("open")
    chat = command.args["chat_id"]
    task_id = side.task_id(key_of(chat))
    said = {"request_id": "r1", "gateway_id": "gw1", "title": "Holidays"}
    assert answer == said | {"task_id": task_id}
    await side.ask("session.send", request_id="r2", task_id=task_id, text="hi")
    assert host.ops("inject")[0].args["chat_id"] == chat
    assert (await side.ask("task.new", request_id="r1", title="Holidays")) == answer
    refused = await side.refused("task.new", request_id="r3", gateway_id="gw2")
    assert refused.code == "gateway_offline"


@pytest.mark.parametrize(
    ("type_", "surface", "share"),
    [
        ("task.fork", "loomi", False),
        ("task.fork", "cli", False),
        ("task.continue", "telegram", True),
        ("task.continue", "cli", True),
    ],
)
async def test_branches(
    side: Side, host: Host, tasks: dict[str, str], type_: str, surface: str, share: bool
) -> None:
    new_chat(host, session_id="s-new", shared=surface == "cli" and share, title=None)
    answer = await side.ask(type_, request_id="r1", task_id=tasks[surface])
    (command,) = host.ops("branch")
    assert (command.args["share"], command.args["session_id"]) == (share, f"s-{surface}")
    assert answer["task_id"] == side.task_id(key_of(command.args["chat_id"]))
    assert answer["origin_task_id"] == tasks[surface]
    assert answer["shared"] is (surface == "cli" and share)  # as the host says, not as asked
    await side.ask("session.send", request_id="r2", task_id=answer["task_id"], text="on")


async def test_branches_that_are_refused(side: Side, host: Host, tasks: dict[str, str]) -> None:
    async def why(type_: str, task_id: str) -> tuple[str, str | None]:
        refused = await side.refused(type_, request_id="r1", task_id=task_id)
        return refused.code, refused.params.get("reason")

    assert await why("task.continue", tasks["loomi"]) == ("not_permitted", "own_task")
    assert await why("task.fork", "task_unknown") == ("unknown_task", None)
    assert not host.ops("branch")
    host.errors["branch"] = "busy"
    assert await why("task.fork", tasks["loomi"]) == ("not_permitted", "busy")
    host.errors["branch"] = "not_found"
    assert await why("task.fork", tasks["loomi"]) == ("not_permitted", "not_found")
