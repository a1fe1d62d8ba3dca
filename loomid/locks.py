"""The state and runtime directories: made, checked and held by one loomid each.

The locks are taken before anything is bound, because ZeroMQ silently takes over an
ipc path that another process serves.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING

from loomid.config import ADMIN_SOCKET
from loomid.errors import BusyError, ConfigError, StateError
from loomid.wire import SOCKET_NAME

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from loomid.config import Config

MAX_SOCKET_PATH = 107
"""Bytes that fit into sockaddr_un.sun_path with its final NUL."""


def prepare(config: Config) -> Locks:
    """Make both directories and take both locks; everything after this is ours alone."""
    for name in (SOCKET_NAME, ADMIN_SOCKET):
        path = config.runtime_dir / name
        length = len(os.fsencode(path))
        if length > MAX_SOCKET_PATH:
            raise ConfigError(
                f"{path}: {length} bytes, a socket path may have {MAX_SOCKET_PATH};"
                " set LOOMI_RUNTIME_DIR to a shorter directory"
            )
    locks = Locks()
    try:
        for path, what in ((config.state_dir, "state"), (config.runtime_dir, "runtime")):
            _make(path, what)
            locks.take(path / f"{what}.lock", what)
    except BaseException:
        locks.release()
        raise
    return locks


def hold_state(path: Path) -> Locks:
    """Make and lock the state directory alone, to work on it while no loomid runs.

    Not that of another account, root's powers or not: loomid could not open what is left there.
    """
    _make(path, "state")
    if path.stat().st_uid != os.geteuid():
        raise StateError(f"state directory {path} belongs to another account; run this as that one")
    locks = Locks()
    try:
        locks.take(path / "state.lock", "state")
    except BusyError as busy:
        locks.release()
        raise BusyError(f"stop loomid first: {busy}") from None
    except BaseException:
        locks.release()
        raise
    return locks


def _make(path: Path, what: str) -> None:
    """A directory that others may write to is refused rather than changed: it may be /tmp."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise _unusable(path, what, error) from None
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise StateError(f"{what} directory {path}: others may write to it; chmod it to 700")


def _unusable(path: Path, what: str, error: OSError) -> StateError:
    return StateError(
        f"{what} directory {path}: {error.strerror}; give this account a place to write there,"
        f" or choose another with LOOMI_{what.upper()}_DIR"
    )


class Locks:
    """The files locked so far; the kernel lets go of them when the process dies."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def take(self, path: Path, what: str) -> None:
        """Lock `path` and write our pid into it; it stays there when we are gone."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(path, flags, 0o600)
        except OSError as error:
            raise _unusable(path.parent, what, error) from None
        self._files.append(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
            raise BusyError(
                f"{what} directory {path.parent}: another loomid uses it (pid {pid})"
            ) from None
        try:
            os.ftruncate(file, 0)
            os.write(file, b"%d\n" % os.getpid())
        except OSError as error:
            raise _unusable(path.parent, what, error) from None

    def release(self) -> None:
        """Let go of all locks."""
        while self._files:
            os.close(self._files.pop())

    def __enter__(self) -> Locks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
