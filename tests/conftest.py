"""What all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

# How long one example takes is the machine's business.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """A job in the background of a script ignores SIGINT, and so would all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
