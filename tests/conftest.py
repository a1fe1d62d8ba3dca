"""What all tests share."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# How long one example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

SHRINKING_S = 600
"""Hypothesis takes five minutes at most to make a failing example small. A timeout amid that is
one more failure to it, at random places: it would report that instead of what failed."""


def pytest_configure() -> None:
    """A job in the background of a script ignores SIGINT, and so would all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of properties have the time to say what is wrong."""
    for item in items:
        if item.get_closest_marker("hypothesis") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SHRINKING_S))
