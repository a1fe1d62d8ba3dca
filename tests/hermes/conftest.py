"""Real gateways: one a release for the whole run, and more where a test needs its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.matrix.world import World, second
from tests.support.hermes import RELEASES, Gateway, Release, Unavailable
from tests.support.model import Model
from tests.support.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


LONG_S = 300
"""A test's bound: the first of a release installs it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of these tests runs a gateway."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.hermes)
            item.add_marker(pytest.mark.timeout(LONG_S))


def _python_or_skip(release: Release) -> None:
    try:
        release.python()
    except Unavailable as why:
        if os.environ.get("LOOMI_REQUIRE_HERMES") == "1":
            pytest.fail(str(why))
        pytest.skip(str(why))


@pytest.fixture(scope="session", params=RELEASES, ids=lambda release: f"hermes{release.name}")
def release(request: pytest.FixtureRequest) -> Release:
    """Each Hermes release in turn."""
    _python_or_skip(request.param)
    return request.param


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    """The scripted model server."""
    with Model() as server:
        yield server


@pytest.fixture(scope="session")
def pair(release: Release, model: Model) -> Iterator[tuple[Gateway, Peer]]:
    """A running gateway of the release and what listens to its shim, shared by the tests."""
    with tempfile.TemporaryDirectory(prefix="lo-") as name, Peer(Path(name)) as peer:
        config = {
            "quick_commands": {"again": {"type": "alias", "target": "/status"}, "odd": "/status"},
            "providers": {"second": second(model.url)},
        }
        gateway = Gateway(release, Path(name), model.url, peer.endpoint, config, other=True)
        try:
            gateway.start()
            peer.until(lambda: peer.hellos, 10, "the shim's hello")
            yield gateway, peer
        finally:
            gateway.stop()


@pytest.fixture
def gateway(pair: tuple[Gateway, Peer]) -> Gateway:
    """The shared gateway."""
    return pair[0]


@pytest.fixture
def peer(pair: tuple[Gateway, Peer]) -> Peer:
    """What listens to the shared gateway's shim."""
    return pair[1]


@pytest.fixture(scope="module")
def world(release: Release, model: Model) -> Iterator[World]:
    """A gateway and a daemon, shared by the tests of a module."""
    with (
        tempfile.TemporaryDirectory(prefix="lo-") as name,
        World(release, Path(name), model) as running,
    ):
        yield running


@pytest.fixture
def own(
    release: Release, model: Model, folder: Path
) -> Iterator[Callable[..., tuple[Gateway, Peer]]]:
    """Makes a gateway (not started) and a peer for one test alone."""
    made: list[tuple[Gateway, Peer]] = []

    def make(**options: Any) -> tuple[Gateway, Peer]:
        peer = Peer(folder)
        peer.__enter__()
        made.append((Gateway(release, folder, model.url, peer.endpoint, **options), peer))
        return made[-1]

    yield make
    for gateway, peer in made:
        gateway.stop()
        peer.__exit__()
