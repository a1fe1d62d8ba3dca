"""What all tests share."""

from __future__ import annotations

import re
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long one example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

LONGEST = ("hermes", "chaos", "bench")
"""The folders whose tests take minutes."""
SHRINKING_S = 600
"""Hypothesis takes five minutes at most to make a failing example small. A timeout amid that is
one more failure to it, at random places: it would report that instead of what failed."""


def pytest_configure() -> None:
    """A job in the background of a script ignores SIGINT, and so would all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="lo-") as name:
        yield Path(name)


class Groups(LoadScopeScheduling):
    """Side by side (`-n`), the tests of a file, or of a release of Hermes, are one process'."""

    def _split_scope(self, nodeid: str) -> str:
        release = re.match(r"tests/hermes/.*\[(hermes\d+)", nodeid)
        return release[1] if release else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    """Has the groups begin in the order of the tests."""
    config.option.loadscopereorder = False
    return Groups(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of properties have the time to say what is wrong; what takes longest begins first."""
    for item in items:
        if item.get_closest_marker("hypothesis") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)
