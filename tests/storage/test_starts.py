"""Starts on a disk that cannot be used: the documented exit status and one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import disk
from tests.support.daemon import Daemon

if TYPE_CHECKING:
    pass


def refused(daemon: Daemon) -> tuple[int, str]:
    """Start it; its exit status and its one line."""
    before = len(daemon.log().splitlines())
    daemon.spawn()
    code = daemon.wait(30.0)
    (line,) = daemon.log().splitlines()[before:]
    return code, line


def test_a_full_disk(daemon: Daemon) -> None:
    """Without a byte for the lock, or without one for the database."""
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        with disk.filled(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "No space left" in line, "LOOMI_STATE_DIR" in line) == (73, True, True)
        (daemon.state_dir / "state.lock").write_text("0" * 10)
        with disk.filled(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "full" in line) == (73, True)
        daemon.start()
        daemon.close()


def test_a_read_only_disk(daemon: Daemon) -> None:
    with disk.small_disk(daemon.state_dir, 2 * 2**20):
        daemon.start()
        assert daemon.stop() == 0
        with disk.read_only(daemon.state_dir):
            code, line = refused(daemon)
            assert (code, "Read-only" in line, "LOOMI_STATE_DIR" in line) == (73, True, True)
        daemon.start()
        daemon.close()


def test_a_database_that_stays_locked(daemon: Daemon) -> None:
    daemon.start()
    assert daemon.stop() == 0
    with disk.locked(daemon.state_dir / "loomid.db"):
        code, line = refused(daemon)
        assert (code, "another process holds" in line) == (75, True)
