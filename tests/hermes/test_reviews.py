"""What Hermes does aside in the name of a session is no run: phones see what the user sees."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.matrix.past import KINDS, live_run, turns_of
from tests.matrix.world import RUN_S, World
from tests.support.hermes import merged
from tests.support.model import REVIEW
from tests.support.stored import common

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.matrix.world import Player
    from tests.support.hermes import Release
    from tests.support.model import Model


EACH_TURN = {
    "platform_toolsets": {"loomi": ["terminal", "skills", "memory"]},
    "memory": {"memory_enabled": True, "nudge_interval": 1},
    "skills": {"creation_nudge_interval": 1},
}
"""The conversation is reviewed after each turn, for what to remember and what to learn."""


@pytest.fixture
def reviewing(release: Release, model: Model) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="lo-") as name:
        world = World(release, Path(name), model)
        world.gateway.config = merged(world.gateway.config, EACH_TURN)
        with world:
            yield world


async def reviewed(player: Player, task_id: str, count: int) -> None:
    """Wait until Hermes told the user so often what a review came to."""

    def told() -> bool:
        news = [g for g in player.phone.events("notification") if g.frame.task_id == task_id]
        return len(news) >= count

    await player.connection.wait_for(told, RUN_S)


async def test_a_review_is_no_run(reviewing: World) -> None:
    async with reviewing.player("snapshot") as player:
        first, _ = await player.play("tool")
        task_id = first.payload["task_id"]
        await reviewed(player, task_id, 1)
        # While 0.19 and 0.20 review this turn the next one begins; 0.22 gives up the review.
        runs = [first, *[(await player.play(t, task_id=task_id))[0] for t in ("say 3", "tools")]]
        await reviewed(player, task_id, 2)
        runs.append((await player.play("say 2", task_id=task_id))[0])
        await reviewed(player, task_id, 3)
        assert reviewing.model.asked(REVIEW)
        assert [g.frame.run_id for g in player.phone.events("run.started")] == player.runs
        (task,) = (await player.request("task.list")).payload["tasks"]
        assert (task["task_id"], task["status"]) == (task_id, "idle")
        turns = await turns_of(player, task_id)
        assert [turn.prompt for turn in turns] == ["tool", "say 3", "tools", "say 2"]
        for started, turn in zip(runs, turns, strict=True):
            run = live_run(player, started.payload["run_id"])
            assert (run.status, turn.status) == ("completed", "completed")
            assert common(run.parts(), *KINDS) == common(turn.parts, *KINDS)
