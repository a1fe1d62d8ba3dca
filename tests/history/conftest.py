"""Hermes homes of each release, with the schema that the release makes; one, and its gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.answering import Side
from tests.support.hermes_home import RELEASES, Home
from tests.support.past import linked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.answering import Host


@pytest.fixture(params=RELEASES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Of each release in turn, in the journal mode that it uses."""
    journal = "wal" if request.param == "19" else "delete"
    return Home(tmp_path / "hermes", request.param, journal=journal)


@pytest.fixture
def hermes(tmp_path: Path) -> Home:
    """What a gateway has on its disk: nothing yet."""
    return Home(tmp_path / "hermes")


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    async with Side(tmp_path) as started:
        yield started


@pytest.fixture
async def host(side: Side, hermes: Home) -> AsyncIterator[Host]:
    async with linked(side, hermes) as host:
        yield host
