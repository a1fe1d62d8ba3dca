"""What systemd is told (sd_notify, watchdog) and what it hands over (sockets)."""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING

from loomid.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

log = logging.getLogger("loomid.notify")

FIRST_FD = 3


class Notifier:
    """Talks to the service manager, if there is one; never blocks and never raises."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        self.watchdog_s = _watchdog(environ)
        """Half of the time in which the manager wants a sign of life; None: it asks for none."""

    def send(self, *fields: str) -> None:
        """Fields as in sd_notify(3), such as READY=1."""
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            self._socket.sendto("\n".join(fields).encode(), address)
        except OSError as error:
            log.warning("the service manager cannot be told: %s", error.strerror)

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _watchdog(environ: Mapping[str, str]) -> float | None:
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


def inherited_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening sockets of socket activation (sd_listen_fds(3)), once.

    The variables are removed, so that no child takes the sockets for its own.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets: list[socket.socket] = []
    for fd in range(FIRST_FD, FIRST_FD + int(count)):
        try:
            os.set_inheritable(fd, False)
            found = socket.socket(fileno=fd)
        except OSError as error:
            raise ConfigError(f"inherited descriptor {fd}: {error.strerror}") from None
        sockets.append(found)
        if found.family not in {socket.AF_INET, socket.AF_INET6} or not found.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        ):
            raise ConfigError(f"inherited descriptor {fd}: not a listening TCP socket")
        found.setblocking(False)
    return sockets
