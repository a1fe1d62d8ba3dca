"""What all tests share."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A job in the background of a script ignores SIGINT, and so would all its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
