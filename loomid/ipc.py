"""Where shims find loomid: the ROUTER socket of the link, for this account alone."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import zmq

from loomid.errors import ConfigError, StateError
from loomid.text import valid_json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MESSAGE_MAX = 8 << 20  # twice what a shim sends at most
MESSAGES_MAX = 32  # of one shim that ZeroMQ holds for us; its window is no more than that


@contextmanager
def listening(path: Path, readable: Callable[[], None]) -> Iterator[zmq.Socket[bytes]]:
    """The socket while it listens there; `readable` is called when there may be something.

    Raises ConfigError (the path is too long), StateError.
    """
    loop = asyncio.get_running_loop()
    context = zmq.Context()
    sock = context.socket(zmq.ROUTER)
    try:
        _bind(sock, path)
        fd = int(sock.getsockopt(zmq.FD))
        loop.add_reader(fd, readable)
        try:
            yield sock
        finally:
            loop.remove_reader(fd)
    finally:
        sock.close(linger=0)
        context.term()


def _bind(sock: zmq.Socket[bytes], path: Path) -> None:
    sock.linger = 0
    sock.setsockopt(zmq.MAXMSGSIZE, MESSAGE_MAX)
    sock.setsockopt(zmq.RCVHWM, MESSAGES_MAX)
    # Sending to who is gone is an error that we see, not silence.
    sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
    before = os.umask(0o077)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sock.bind(f"ipc://{path}")
        path.chmod(0o600)
    except zmq.ZMQError as error:
        kind = ConfigError if error.errno == errno.ENAMETOOLONG else StateError
        raise kind(f"cannot listen at {path}: {error.strerror}") from None
    except OSError as error:
        raise StateError(f"cannot listen at {path}: {error.strerror}") from None
    finally:
        os.umask(before)


def text_of(frames: list[bytes]) -> str:
    """What a peer said; empty in the message that begins a connection. Raises ValueError."""
    if len(frames) != 2:
        raise ValueError("a message has one part")
    return valid_json_text(frames[1].decode())
