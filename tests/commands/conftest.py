from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.answering import BEAT_S, Host, Side
from tests.support.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    """loomid's side, started."""
    async with Side(tmp_path) as started:
        yield started


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Makes gateways; all are stopped at the end."""
    made: list[Host] = []

    def make(gateway_id: str = "gw1", boot: str = "boot1") -> Host:
        made.append(Host(tmp_path / "h.sock", gateway_id, boot, beat_s=BEAT_S))
        return made[-1]

    yield make
    for host in made:
        host.link.stop(0.1)


@pytest.fixture
async def host(side: Side, make_host: Callable[..., Host]) -> Host:
    """A gateway, linked."""
    return await side.online(make_host())


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon of its own."""
    with Daemon(tmp_path) as running:
        yield running


@pytest.fixture
def stand_in(daemon: Daemon) -> Iterator[Host]:
    """A gateway that links to that daemon."""
    host = Host(daemon.runtime_dir / "hermes.sock")
    host.link.start()
    yield host
    host.link.stop(0.1)
