"""What crosses ZeroMQ between hermes_shim and loomid, as far as the shim must know it.

One message part is one JSON object `{"m": <tag>, ...}`. The types of all messages and facts
are in loomid/wire.py, and so is the door that makes their texts valid. Times are float
epoch seconds unless a name says otherwise.
"""

import json
import logging
from typing import Any

WIRE_VERSION = 1
SOCKET_NAME = "hermes.sock"
BEAT_S = 2.0
BEATS_MISSED = 3
HOME_CHAT = "home"
PREVIEW_CHARS = 2_000
PLATFORM = "loomi"
# One fact or result above this would crowd out all others.
MESSAGE_MAX = 4 << 20
# Of results that could not be sent yet the shim keeps so many, the newest.
UNSENT_RESULTS = 256

Message = dict[str, Any]
# Hermes puts loggers below "hermes_plugins" into its gateway.log.
log = logging.getLogger(f"hermes_plugins.{PLATFORM}.shim")
said: set[str] = set()
"""Lines that are not to be repeated until we are linked anew."""


def dump(value: object) -> bytes:
    """JSON in ASCII, whatever halves of characters its texts contain; b"" when JSON cannot
    hold it, or it is too large."""
    try:
        data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        return b""
    return data if len(data) <= MESSAGE_MAX else b""


def once(text: str) -> None:
    """Log a line the first time only."""
    if text not in said:
        said.add(text)
        log.warning("loomi: %s", text)
