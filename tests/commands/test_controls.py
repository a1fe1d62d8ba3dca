"""What a phone steers beside messages: what leaves for the gateway, what comes back."""

from __future__ import annotations

import pytest

from tests.support.answering import Host, Side

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
