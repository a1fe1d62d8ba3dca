"""Where log lines go: to journald with priorities when stderr is its stream, else plain."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
JOURNAL = "%(name)s: %(message)s"


def is_journal(environ: Mapping[str, str]) -> bool:
    """Standard error is connected to the journal (systemd.exec(5), JOURNAL_STREAM)."""
    try:
        device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
        found = os.fstat(sys.stderr.fileno())
        return (found.st_dev, found.st_ino) == (int(device), int(inode))
    except (OSError, ValueError):
        return False


def start(environ: Mapping[str, str], level: int = logging.INFO) -> None:
    """Send the log of the whole process to its one place."""
    handler = _journal_handler() if is_journal(environ) else None
    if handler is None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(PLAIN))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    logging.getLogger("aiohttp.server").addFilter(_is_our_fault)


_THEIR_FAULT = {
    *("HttpProcessingError", "PayloadEncodingError", "RequestPayloadError"),
    *("ClientPayloadError", "ConnectionError"),
}
"""Errors of a request that aiohttp could not read."""


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Drop the tracebacks of malformed requests and broken connections: anyone can cause those,
    and they quote what was sent, which may be a secret in a broken header."""
    error = record.exc_info[1] if record.exc_info else None
    return not any(cls.__name__ in _THEIR_FAULT for cls in type(error).__mro__)


def _journal_handler() -> logging.Handler | None:
    from logging_journald import Facility, JournaldLogHandler  # only under systemd

    if not Path(JournaldLogHandler.SOCKET_PATH).is_socket():
        return None  # the stream is there, the socket is not: a sandbox
    try:
        handler: logging.Handler = JournaldLogHandler(
            identifier="loomid", facility=Facility.DAEMON, use_message_id=False
        )
    except OSError:
        return None
    handler.setFormatter(logging.Formatter(JOURNAL))
    return handler


def fatal(message: str, environ: Mapping[str, str]) -> None:
    """The one line of a start that failed; journald reads its priority from `<3>`."""
    line = " ".join(message.split())
    mark = "<3>" if is_journal(environ) else ""
    sys.stderr.write(f"{mark}loomid: {line}\n")
