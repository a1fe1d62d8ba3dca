"""The same parts as for tests/commands: loomid's side and a gateway, without phones; and a
server with a phone that carries files, without gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.commands.conftest import host, make_host, side
from tests.support.carrying import MIB, carrying
from tests.support.hub import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.hub import Server
    from tests.support.samples import Carrier

__all__ = ["carrier", "host", "make_host", "server", "side"]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path, files_config={"max_file_bytes": 4 * MIB}) as server:
        yield server


@pytest.fixture
async def carrier(server: Server) -> AsyncIterator[Carrier]:
    async with carrying(server) as carrier:
        yield carrier
