"""The state and runtime directories: made for us alone, one loomid each."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from loomid import config, locks
from loomid.errors import BusyError, ConfigError, StateError


@pytest.fixture
def settings(tmp_path):
    overrides = {"state_dir": str(tmp_path / "a" / "state"), "runtime_dir": str(tmp_path / "run")}
    return config.load(overrides, {})


def test_made_for_us_alone_and_held(settings):
    with locks.prepare(settings):
        for path in (settings.state_dir, settings.runtime_dir):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        with pytest.raises(BusyError, match=f"state directory .*pid {os.getpid()}"):
            locks.prepare(settings)
    with locks.prepare(settings):
        pass


@pytest.mark.parametrize("shared", ["state_dir", "runtime_dir"])
def test_either_one_taken(settings, tmp_path, shared):
    other = replace(settings, state_dir=tmp_path / "b", runtime_dir=tmp_path / "c")
    other = replace(other, **{shared: getattr(settings, shared)})
    with locks.prepare(settings):
        with pytest.raises(BusyError):
            locks.prepare(other)
        # What the loser had taken already is free again.
        free = {"state_dir": tmp_path / "b", "runtime_dir": tmp_path / "c", shared: tmp_path / "d"}
        with locks.prepare(replace(other, **free)):
            pass


def test_one_directory_for_both(settings):
    with locks.prepare(replace(settings, runtime_dir=settings.state_dir)):
        pass


def test_a_killed_holder_leaves_nothing_behind(settings):
    settings.state_dir.mkdir(parents=True)
    hold = (
        "import sys; from pathlib import Path; from loomid.locks import Locks;"
        "Locks().take(Path(sys.argv[1]), 'state'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(settings.state_dir / "state.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=f"pid {holder.pid}"):
            locks.prepare(settings)
        holder.kill()
        holder.wait()
    with locks.prepare(settings):
        pass


def test_a_file_in_its_place(settings):
    settings.state_dir.parent.mkdir()
    settings.state_dir.write_text("")
    with pytest.raises(StateError, match="state directory"):
        locks.prepare(settings)


def test_others_may_write(settings):
    settings.runtime_dir.mkdir()
    settings.runtime_dir.chmod(0o777)
    with pytest.raises(StateError, match="others may write"):
        locks.prepare(settings)


def test_a_lock_that_is_a_link(settings):
    settings.state_dir.mkdir(parents=True)
    (settings.state_dir / "state.lock").symlink_to("/etc/passwd")
    with pytest.raises(StateError):
        locks.prepare(settings)


def test_socket_path_length(settings, tmp_path):
    def with_length(length: int) -> Path:
        return tmp_path / ("r" * (length - len(os.fsencode(tmp_path / "x" / "hermes.sock")) + 1))

    assert len(os.fsencode(with_length(107) / "hermes.sock")) == 107
    with locks.prepare(replace(settings, runtime_dir=with_length(107))):
        pass
    with pytest.raises(ConfigError, match="108 bytes"):
        locks.prepare(replace(settings, runtime_dir=with_length(108)))
