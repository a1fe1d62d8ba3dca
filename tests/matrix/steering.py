"""Rows about what a phone steers beside messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.rows import scenario

if TYPE_CHECKING:
    from tests.matrix.world import Player


@scenario
async def commands(player: Player) -> None:
    """The host's own registry; what reaches beyond a task is asked about first."""
    answer = await player.request("command.list")
    listed = {each["name"]: each for each in answer.payload["commands"]}
    assert {"new", "model", "title", "stop"} <= set(listed)
    assert "clear" not in listed  # of the terminal alone
    assert listed["new"]["aliases"] == ["reset"]
    assert listed["new"]["meaning"].startswith("Start a new session")
    whole = {name for name, each in listed.items() if each.get("whole_gateway")}
    assert {"restart", "update", "reload-mcp"} <= whole
    assert not whole & {"new", "title", "stop", "status"}
    for text in ("/restart", "/reload_mcp", "/set-home", "/yolo", "/model other --global"):
        refused = await player.request("session.send", text=text, command=True)
        assert refused.payload["code"] == "confirm_required", (text, refused.payload)
    answer = await player.request("session.send", text="/status", command=True)
    assert answer.payload["accepted"] is True


@scenario
async def models(player: Player) -> None:
    """A task has another model for its next run, and then the default again."""
    second = "second"
    _, end = await player.play("say 3")
    task_id = end.frame.task_id
    listed = (await player.request("model.list", task_id=task_id)).payload
    mine = {"model": "scripted", "provider": "custom", "context_length": 200000}
    assert (listed["default"], listed["current"]) == (mine, mine)
    offered = {row["provider"]: row["models"] for row in listed["providers"]}
    assert [each["model"] for each in offered[second]] == ["m2", "m3"]
    for asked in ({"model": "nobody"}, {"model": "m3", "provider": "nobody"}):
        refused = await player.request("model.set", task_id=task_id, **asked)
        assert refused.payload["code"] == "unknown_model"
    refused = await player.request("model.set", default=True, model="m2")
    assert refused.payload["code"] == "confirm_required"

    answer = await player.request("model.set", task_id=task_id, model="m3")
    assert (answer.payload["model"], answer.payload["provider"]) == ("m3", second)
    request_id, _ = await player.send("say 3", task_id=task_id)
    started = await player.started(request_id)
    assert started.payload["model"] == "m3"
    await player.ended(started.payload["run_id"])
    answer = await player.request("model.set", task_id=task_id, model="scripted")
    assert answer.payload["provider"] == "custom"
    started, _ = await player.play("say 3", task_id=task_id)
    assert started.payload["model"] == "scripted"


@scenario
async def default_model(player: Player) -> None:
    """All tasks without a model of their own have another one."""
    asked = {"default": True, "confirm": True}
    try:
        answer = await player.request("model.set", model="m2", **asked)
        assert answer.payload["model"] == "m2", answer.payload
        started, _ = await player.play("say 3")
        assert started.payload["model"] == "m2"
        listed = (await player.request("model.list")).payload
        assert (listed["default"]["model"], listed["default"]["provider"]) == ("m2", "second")
    finally:
        player.world.gateway.configure()
    started, _ = await player.play("say 3")
    assert started.payload["model"] == "scripted"


@scenario
async def modes(player: Player) -> None:
    """Reasoning of a task; what is dangerous runs unasked with yolo, and with approvals off."""
    _, end = await player.play("say 3")
    of_task = {"task_id": end.frame.task_id}
    held = (await player.request("mode.get", **of_task)).payload
    assert (held["approvals"], held["yolo"], held["reasoning"]) == ("manual", False, "default")
    for effort in ("high", "none"):
        held = await player.request("mode.set", mode="reasoning", value=effort, **of_task)
        assert held.payload["reasoning"] == effort, held.payload
    held = await player.request("mode.set", mode="reasoning", value="default", **of_task)
    assert held.payload["reasoning"] == "default"

    asked = {"mode": "yolo", "value": "on", **of_task}
    refused = await player.request("mode.set", **asked)
    assert refused.payload["code"] == "confirm_required"
    held = await player.request("mode.set", **asked, confirm=True)
    assert held.payload["yolo"] is True
    await unasked(player, **of_task)
    held = await player.request("mode.set", mode="yolo", value="off", **of_task)
    assert held.payload["yolo"] is False

    try:
        for mode in ("smart", "off"):
            held = await player.request("mode.set", mode="approvals", value=mode, confirm=True)
            assert held.payload["approvals"] == mode, held.payload
        await unasked(player)
        held = await player.request("mode.set", mode="reasoning", value="low")
        assert held.payload["reasoning"] == "low"
        assert (await player.request("mode.get", **of_task)).payload["reasoning"] == "low"
    finally:
        player.world.gateway.configure()
    assert (await player.request("mode.get")).payload["approvals"] == "manual"


async def unasked(player: Player, **of_task: str) -> None:
    """Something dangerous runs without an approval."""
    started, _ = await player.play("danger", **of_task)
    run_id = started.payload["run_id"]
    asked = [g for g in player.phone.events("approval.required") if g.payload["run_id"] == run_id]
    assert not asked


@scenario
async def host_info(player: Player) -> None:
    request_id, _ = await player.send("slow 3")
    started = await player.started(request_id)
    host = (await player.request("host.info")).payload
    gateway = player.world.gateway
    assert host["running"] >= 1
    assert host["home"] == str(gateway.home)
    assert host["hermes_version"].startswith(f"0.{player.world.release.name}.")
    assert 0 < host["uptime"] < 86_400
    assert 0 < host["disk_free"] <= host["disk_total"]
    await player.request("run.cancel", run_id=started.payload["run_id"])
    await player.ended(started.payload["run_id"])
