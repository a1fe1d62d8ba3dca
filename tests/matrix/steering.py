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
