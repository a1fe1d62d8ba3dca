"""The matrix, once: every scenario on every release, through the real daemon to a phone."""

from __future__ import annotations

import pytest

from tests.matrix.checks import FIELDS
from tests.matrix.scenarios import SCENARIOS
from tests.matrix.world import World

played: dict[str, set[str]] = {}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario(world: World, name: str) -> None:
    async with world.player("snapshot") as player:
        await SCENARIOS[name](player)
    played.setdefault(world.release.name, set()).add(name)


def test_every_row_of_the_protocol_was_seen(world: World) -> None:
    """Seed §4, server to client; a server's own ping comes after 25 s (see tests/web)."""
    if played.get(world.release.name) != set(SCENARIOS):
        pytest.skip("not every scenario was played")
    assert set(FIELDS) - {"ping"} <= world.seen
