"""Disks that fail in truth: small, locked, read-only, limited, frozen. Most need root."""

from __future__ import annotations

import contextlib
import os
import resource
import sqlite3
import subprocess
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def _run(*command: str | Path) -> None:
    """Run a system tool; a test that may not, or has none, is skipped with the reason."""
    environ = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{command[0]}: {error.stderr.strip()}")


@contextmanager
def _mounted(place: Path, *how: str | Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    place.mkdir(mode=0o700, exist_ok=True)
    _run("mount", *how, place)
    try:
        place.chmod(0o700)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def small_disk(place: Path, size: int) -> AbstractContextManager[Path]:
    """A file system of so many bytes at `place`."""
    return _mounted(place, "-t", "tmpfs", "-o", f"size={size}", "loomi-test")


def resize(place: Path, size: int) -> None:
    """Give a small disk so many bytes."""
    _run("mount", "-o", f"remount,size={size}", place)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """A mounted file system cannot be written meanwhile; nobody may be writing."""
    _run("mount", "-o", "remount,ro", place)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)


class Ext4:
    """A file system of its own in a file, mounted at `place`."""

    def __init__(self, image: Path, place: Path) -> None:
        self._image, self._place = image, place
        with image.open("wb") as file:
            file.truncate(48 * 2**20)
        _run("mkfs.ext4", "-q", image)

    def mounted(self) -> AbstractContextManager[Path]:
        """Mounted; it becomes read-only after an error, as Debian has it."""
        return _mounted(self._place, "-o", "loop,errors=remount-ro", self._image)

    def fail(self) -> None:
        """Have the kernel meet an error in it: it is read-only from now on."""
        device = self._place.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        try:
            Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("1\n")
        except OSError as error:
            pytest.skip(f"ext4 cannot be made to fail: {error.strerror}")

    def repair(self) -> None:
        """What an owner does, or the machine at its next start."""
        subprocess.run(["e2fsck", "-p", "-f", self._image], capture_output=True, check=False)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Whoever writes hangs."""
        _run("fsfreeze", "--freeze", self._place)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self._place], check=True)


@contextmanager
def filled(place: Path) -> Iterator[None]:
    """Not one byte is free meanwhile."""
    filler = place / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        yield
    finally:
        filler.unlink()


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another connection holds the write lock meanwhile."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=10)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def no_larger_files(pid: int, size: int) -> Iterator[None]:
    """Writing beyond so many bytes of a file is an error of I/O to that process."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def damage_header(database: Path) -> None:
    """Overwrite the beginning of the file."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:
        file.write(b"\x17" * 100)


def damage(database: Path, name: str, *, last: bool = False) -> None:
    """Overwrite the first leaf of a table or an index, that of what was stored first."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)
        ).fetchone()
    with database.open("r+b") as file:
        file.seek((_leaf(file, root, size, last=last) - 1) * size)
        file.write(b"\x17" * size)


def _leaf(file: BinaryIO, page: int, size: int, *, last: bool) -> int:
    """The first or last leaf below a page of a b-tree (interior pages: types 2 and 5)."""
    while True:
        file.seek((page - 1) * size)
        data = file.read(size)
        if data[0] not in (2, 5):
            return page
        at = 8 if last else int.from_bytes(data[12:14], "big")  # right-most child, first cell
        page = int.from_bytes(data[at : at + 4], "big")
