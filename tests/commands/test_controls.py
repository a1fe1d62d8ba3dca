"""What a phone steers beside messages: what leaves for the gateway, what comes back."""

from __future__ import annotations

import pytest

from loomid import __version__
from tests.support.answering import Host, Side, key_of

MODELS = {
    "providers": [
        {"slug": "a", "name": "A", "total_models": 9, "models": [{"model": "a-1"}]},
        {
            "slug": "b",
            "name": "B",
            "total_models": 2,
            "models": [{"model": "b-1", "context_length": 1000}, {"model": "both"}],
        },
        {"slug": "c", "name": "C", "total_models": 1, "models": [{"model": "both"}]},
    ],
    "default": {"model": "b-1", "provider": "b", "context_length": 1000},
}

REGISTRY = {
    "commands": [
        {"name": "new", "aliases": ["reset"], "args_hint": "[name]", "description": "Start anew"},
        {"name": "restart", "aliases": ["reboot"], "args_hint": "", "description": "Restart"},
    ],
    "short": {"again": "/reboot"},
}


async def test_the_commands_of_a_host(side: Side, host: Host) -> None:
    host.values["commands"] = REGISTRY
    answer = await side.ask("command.list", request_id="r1")
    assert answer["gateway_id"] == "gw1"
    assert answer["commands"][0] == {
        "name": "new",
        "aliases": ["reset"],
        "arguments": "[name]",
        "meaning": "Start anew",
    }
    assert [c["name"] for c in answer["commands"] if c.get("whole_gateway")] == ["restart", "again"]
    refused = await side.refused("command.list", request_id="r2", gateway_id="gw2")
    assert refused.code == "gateway_offline"


@pytest.mark.parametrize("text", ["/restart", "/reboot now", "/again"])
async def test_what_reaches_beyond_its_task_is_confirmed(side: Side, host: Host, text: str) -> None:
    host.values["commands"] = REGISTRY
    said = {"text": text, "command": True}
    refused = await side.refused("session.send", request_id="r1", **said)
    assert refused.code == "confirm_required"
    assert refused.params == {"effect": "restart", "gateway_id": "gw1"}
    assert not host.ops("inject")
    await side.ask("session.send", request_id="r1", confirm=True, **said)
    assert [command.args["text"] for command in host.ops("inject")] == [text]


async def test_an_older_plugin_has_no_registry(side: Side, host: Host) -> None:
    host.errors["commands"] = "unknown_op"
    refused = await side.refused("command.list", request_id="r1")
    assert (refused.code, refused.params) == ("not_permitted", {"reason": "not_supported"})
    said = {"text": "/restart", "command": True}
    assert (await side.refused("session.send", request_id="r2", **said)).code == "confirm_required"
    await side.ask("session.send", request_id="r3", text="/new", command=True)
    assert [command.args["text"] for command in host.ops("inject")] == ["/new"]


async def test_without_an_answer_no_command_leaves(side: Side, host: Host) -> None:
    host.errors["commands"] = "failed"
    said = {"request_id": "r1", "text": "/new", "command": True}
    assert (await side.refused("session.send", **said)).code == "gateway_error"
    host.values["commands"] = {"commands": [{"name": 1}]}
    del host.errors["commands"]
    assert (await side.refused("session.send", **said)).code == "gateway_error"
    assert not host.ops("inject")
    host.values["commands"] = {}
    assert (await side.ask("session.send", **said))["accepted"] is True


async def a_task(side: Side, host: Host) -> str:
    """A task of ours in chat `old`."""
    row = {"id": "s", "session_key": key_of("old"), "source": "loomi"}
    host.sessions = [row | {"started_at": 1.0, "last_active": 5.0}]
    return side.task_id(key_of("old"))


async def test_models(side: Side, host: Host) -> None:
    host.values["models"] = MODELS | {"current": {"model": "both", "provider": "c"}}
    task_id = await a_task(side, host)
    answer = await side.ask("model.list", request_id="r1", task_id=task_id)
    assert host.ops("models")[0].args == {"chat_id": "old"}
    assert [row["provider"] for row in answer["providers"]] == ["a", "b", "c"]
    assert answer["providers"][1]["models"][0] == {"model": "b-1", "context_length": 1000}
    assert answer["default"] == {"model": "b-1", "provider": "b", "context_length": 1000}
    assert answer["current"] == {"model": "both", "provider": "c"}
    answer = await side.ask("model.list")
    assert host.ops("models")[1].args == {}


@pytest.mark.parametrize(
    ("asked", "provider"),
    [
        ({"model": "b-1"}, "b"),
        ({"model": "both"}, "b"),  # the provider in use comes first
        ({"model": "both", "provider": "c"}, "c"),
        ({"model": "not listed"}, None),
        ({"model": "--global"}, None),
        ({"model": "\u2014global"}, None),
        ({"model": ""}, None),
        ({"model": "not-listed"}, "a"),  # it has more than it lists
        ({"model": "not-listed", "provider": "b"}, None),
        ({"model": "b-1", "provider": "nobody"}, None),
    ],
)
async def test_another_model_for_a_task(
    side: Side, host: Host, asked: dict[str, str], provider: str | None
) -> None:
    host.values["models"] = MODELS
    host.values["set_model"] = {"model": "new", "provider": provider, "asked": False}
    request = {"request_id": "r1", "task_id": await a_task(side, host), **asked}
    if provider is None:
        assert (await side.refused("model.set", **request)).code == "unknown_model"
        assert not host.ops("set_model")
        return
    answer = await side.ask("model.set", **request)
    assert answer["model"] == "new"  # what the host says is true now
    assert (answer["state"], answer["task_id"]) == ("set", request["task_id"])
    (command,) = host.ops("set_model")
    assert command.args == {"model": asked["model"], "provider": provider, "chat_id": "old"}


async def test_the_default_model_is_confirmed(side: Side, host: Host) -> None:
    host.values["models"] = MODELS
    host.values["set_model"] = {"model": "b-1", "provider": "b", "asked": True}
    request = {"request_id": "r1", "model": "both", "default": True}
    refused = await side.refused("model.set", **request)
    assert refused.code == "confirm_required"
    assert refused.params == {"effect": "default_model", "gateway_id": "gw1"}
    answer = await side.ask("model.set", **request, confirm=True)
    assert (answer["state"], answer["model"]) == ("asked", "b-1")
    assert "task_id" not in answer
    assert "chat_id" not in host.ops("set_model")[0].args


async def test_models_that_are_refused(side: Side, host: Host) -> None:
    host.values["models"] = MODELS
    task_id = await a_task(side, host)

    async def code(**asked: object) -> str:
        return (await side.refused("model.set", request_id="r1", model="both", **asked)).code

    assert await code() == "bad_frame"
    assert await code(task_id=task_id, default=True) == "bad_frame"
    assert await code(task_id="task_unknown") == "unknown_task"
    assert await code(task_id=task_id, gateway_id="gw2") == "unknown_task"
    assert not host.ops("set_model")
    host.errors["set_model"] = "unknown_model"
    assert await code(task_id=task_id) == "unknown_model"
    host.errors["set_model"] = "busy"
    refused = await side.refused("model.set", request_id="r1", model="both", task_id=task_id)
    assert (refused.code, refused.params) == ("not_permitted", {"reason": "busy"})


async def test_the_answer_of_a_model_is_remembered(side: Side, host: Host) -> None:
    host.values["models"] = MODELS
    host.values["set_model"] = {"model": "both", "provider": "b"}
    request = {"request_id": "r1", "model": "both", "task_id": await a_task(side, host)}
    first = await side.ask("model.set", **request)
    assert await side.ask("model.set", **request) == first
    assert len(host.ops("set_model")) == 1


MODES = {"approvals": "manual", "efforts": ["low", "high"], "reasoning": None, "yolo": False}


async def test_modes(side: Side, host: Host) -> None:
    host.values["modes"] = MODES
    host.values["set_mode"] = MODES | {"reasoning": "high"}
    task_id = await a_task(side, host)
    answer = await side.ask("mode.get", task_id=task_id)
    assert answer == {
        "gateway_id": "gw1",
        "approvals": "manual",
        "approvals_choices": ["manual", "smart", "off"],
        "reasoning": "default",
        "reasoning_choices": ["default", "none", "low", "high"],
        "yolo": False,
        "task_id": task_id,
    }
    asked = {"request_id": "r1", "mode": "reasoning", "value": "low", "task_id": task_id}
    answer = await side.ask("mode.set", **asked)
    assert answer["reasoning"] == "high"  # what the host says is true now
    assert (answer["task_id"], answer["request_id"]) == (task_id, "r1")
    (command,) = host.ops("set_mode")
    assert command.args == {"mode": "reasoning", "value": "low", "chat_id": "old"}


@pytest.mark.parametrize(
    ("mode", "value", "of_task", "code"),
    [
        ("approvals", "smart", False, None),
        ("approvals", "off", False, "confirm_required"),
        ("approvals", "smart", True, "bad_frame"),
        ("approvals", "never", False, "bad_choice"),
        ("yolo", "off", True, None),
        ("yolo", "on", True, "confirm_required"),
        ("yolo", "off", False, "bad_frame"),
        ("yolo", "true", True, "bad_choice"),
        ("reasoning", "none", False, None),
        ("reasoning", "default", True, None),
        ("reasoning", "default", False, "bad_choice"),
        ("reasoning", "low --global", True, "bad_choice"),
        ("colour", "red", True, "bad_frame"),
    ],
)
async def test_what_a_mode_may_be(
    side: Side, host: Host, mode: str, value: str, of_task: bool, code: str | None
) -> None:
    host.values["modes"] = host.values["set_mode"] = MODES
    asked = {"request_id": "r1", "mode": mode, "value": value}
    if of_task:
        asked["task_id"] = await a_task(side, host)
    if code is not None:
        assert (await side.refused("mode.set", **asked)).code == code
        assert not host.ops("set_mode")
    if code in (None, "confirm_required"):
        await side.ask("mode.set", **asked, confirm=code is not None)
        assert len(host.ops("set_mode")) == 1


async def test_the_host(side: Side, host: Host) -> None:
    said = {"hermes_version": "0.22.2", "python": "3.11.7", "os": "Linux", "home": "/h"}
    said |= {"uptime": 5.5, "running": 1, "disk_free": 7, "disk_total": 9}
    host.values["host"] = said | {"load": None, "environment": {"KEY": "secret"}}
    answer = await side.ask("host.info", request_id="r1")
    more = {"gateway_id": "gw1", "server_version": __version__, "request_id": "r1"}
    assert answer == said | more
    assert (await side.refused("host.info", gateway_id="gw2")).code == "gateway_offline"
