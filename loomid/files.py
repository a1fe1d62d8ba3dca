"""The files that phones and agents send: kept under their digest in the state directory.

A file is in its place before the index knows it, and leaves the index before its place; what
a crash leaves between the two is swept away at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import io
import logging
import os
import stat
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from loomid import database, doors
from loomid.errors import BadFile, StorageFailing, TooLarge, UnknownFile
from loomid.fileindex import FileIndex, FileRow, Use
from loomid.filetypes import examine
from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.filenames import clean_name
from loomid.lmp.payload import given
from loomid.sentindex import SentIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomid.filetypes import Content
    from loomid.store import Store

T = TypeVar("T")

log = logging.getLogger("loomid.files")

FOLDER = "files"
INBOX = "inbox"
"""In the state directory; there gateways put what the agent sends."""
SPARE_BYTES = 16 * 2**20
"""Of the disk, which files never take: else the first thing to fail were the database."""
_PREFIX = "att_"
_PIECE = 2**20
_NEW = ".new-"


@dataclass(frozen=True, slots=True)
class Kept:
    """A file and the name that it has for whoever asked."""

    row: FileRow
    name: str
    path: Path

    @property
    def attachment_id(self) -> str:
        """The same for the same bytes."""
        return _PREFIX + self.row.sha256

    def ref(self) -> AttachmentRef:
        """What phones are told of it."""
        row = self.row
        return AttachmentRef(
            attachment_id=self.attachment_id,
            media_type=row.media_type,
            bytes=row.bytes,
            name=self.name,
            width=given(row.width),
            height=given(row.height),
        )


class Files:
    """The store. `open` before all else."""

    def __init__(
        self,
        state_dir: Path,
        store: Store,
        clock: Callable[[], float],
        *,
        max_file_bytes: int = 64 * 2**20,
        max_bytes: int = 2**30,
        retention_s: float = 7 * 86_400.0,
    ) -> None:
        self.folder = state_dir / FOLDER
        self.inbox = state_dir / INBOX
        self.max_file_bytes = max_file_bytes
        self.index = FileIndex(store)
        self.sent = SentIndex(store)
        self.removed: Counter[str] = Counter()
        """Files that went since the start: `evicted` for others, or `unused`."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._retention_s = retention_s
        self._placing = asyncio.Lock()

    async def open(self) -> None:
        """Make the directory, and remove what a crash left in it."""
        known = await self.index.names()
        await asyncio.to_thread(sweep, self.folder, known)
        await asyncio.to_thread(self.inbox.mkdir, mode=0o700, exist_ok=True)

    async def tend(self) -> None:
        """Remove what nobody has used for the retention, or may see any more.

        Raises StorageFailing.
        """
        async with self._placing:
            now = self._clock()
            await self._remove("unused", await self.index.expire(now - self._retention_s, now))

    # ── in ──────────────────────────────────────────────────────────────────

    def check_size(self, size: int) -> None:
        """Raise TooLarge for a file that is not taken whatever is in it."""
        if size > self.max_file_bytes:
            raise TooLarge(max_file_bytes=self.max_file_bytes)

    async def put(self, data: bytes, content: Content, use: Use) -> Kept:
        """Keep bytes that were examined. Raises BadFile (`no_room`) or StorageFailing."""
        new, sha256 = await on_disk(_write, self.folder, data)
        return await self._place_new(new, sha256, len(data), content, use)

    async def adopt(self, part: Path, sha256: str, size: int, content: Content, use: Use) -> Kept:
        """Keep a file of our own, on disk already; `make_room` was asked before.

        Raises StorageFailing: then `part` is where it was.
        """
        return await self._place(part, sha256, size, content, use, need=0)

    async def take(self, source: Path, use: Use) -> Kept:
        """Keep a copy of a file that the agent sends; once for each `use.source`.

        Raises BadFile (`not_a_file`, `gone`, `empty`, `no_room`), TooLarge or StorageFailing.
        """
        if use.source is not None:
            known = await self.index.made_from(use.source)
            if known is not None:
                return self._kept(*known)
        new, sha256, size, content = await on_disk(_copy, source, self.folder, self.max_file_bytes)
        use = replace(use, name=clean_name(use.name, content.media_type))
        return await self._place_new(new, sha256, size, content, use)

    async def make_room(self, need: int) -> None:
        """Evict what was used longest ago. Raises BadFile (`no_room`) or StorageFailing."""
        async with self._placing:
            await self._make_room(need)

    async def _place_new(
        self, new: Path, sha256: str, size: int, content: Content, use: Use
    ) -> Kept:
        try:
            return await self._place(new, sha256, size, content, use, need=size)
        finally:
            await on_disk(_unlink, [new])

    async def _place(
        self, new: Path, sha256: str, size: int, content: Content, use: Use, *, need: int
    ) -> Kept:
        """Move a file to its place, unless it is there already, and note it."""
        row = FileRow(sha256, content.media_type, size, content.width, content.height)
        place = self.folder / sha256
        async with self._placing:
            known = await on_disk(place.exists)
            if need and not known:
                await self._make_room(need)
            try:
                if not known:
                    await on_disk(_settle, new, place)
                await self.index.add(row, use, self._clock())
            except StorageFailing:
                if not known:
                    await on_disk(_back, place, new)
                raise
        return self._kept(row, use.name)

    async def _make_room(self, need: int) -> None:
        gone = await self.index.make_room(need, self._max_bytes, self._clock())
        if gone is None:
            raise BadFile(reason="no_room")
        await self._remove("evicted", gone)

    async def _remove(self, why: str, names: list[str]) -> None:
        if names:
            log.info("removed %d files (%s)", len(names), why)
            self.removed[why] += len(names)
            await on_disk(_unlink, [self.folder / name for name in names])

    # ── out ─────────────────────────────────────────────────────────────────

    async def find(self, attachment_id: str, device_id: str, task_id: str | None = None) -> Kept:
        """A file that this device may see. Raises UnknownFile for all others."""
        found = await self.index.find(_digest(attachment_id), device_id, task_id)
        if found is None:
            raise UnknownFile
        return self._kept(*found)

    async def read(self, kept: Kept) -> BinaryIO:
        """The file, open; it stays readable should it be evicted now.

        Raises UnknownFile or StorageFailing.
        """
        file = await on_disk(_open, kept.path)
        if file is None:
            async with self._placing:  # else one that is being placed just now were forgotten
                if not await on_disk(kept.path.exists):
                    await self.index.forget(kept.row.sha256)
            raise UnknownFile
        with contextlib.suppress(StorageFailing):
            await self.index.touch(kept.row.sha256, self._clock())
        return file

    async def send_with(self, kept: Kept, use: Use) -> None:
        """A message takes a known file along. Raises UnknownFile if it was evicted just now."""
        if not await self.index.use(kept.row.sha256, use, self._clock()):
            raise UnknownFile

    async def settle(self, message_id: str, task_id: str) -> None:
        """A message was taken: who may see its task may see its files."""
        await self.index.settle(message_id, task_id)

    async def release(self, message_id: str) -> None:
        """A message never ran: what was kept for it alone goes. Raises StorageFailing."""
        async with self._placing:
            await self._remove("unused", await self.index.release(message_id))

    def _kept(self, row: FileRow, name: str) -> Kept:
        return Kept(row, name, self.folder / row.sha256)


def _digest(attachment_id: str) -> str:
    """The digest in an id. It is looked up, and only what the index has becomes a path."""
    return attachment_id.removeprefix(_PREFIX)


async def on_disk(work: Callable[..., T], *arguments: object) -> T:
    """Run a function that uses files in a thread. Raises StorageFailing for a disk's errors."""
    try:
        return await asyncio.to_thread(partial(work, *arguments))
    except OSError as error:
        log.error("the files cannot be read or written: %s", error.strerror)
        raise StorageFailing from None


# ── on a thread ─────────────────────────────────────────────────────────────


def sweep(folder: Path, known: set[str]) -> None:
    """Make a folder, and remove from it what nobody knows of."""
    folder.mkdir(mode=0o700, exist_ok=True)
    with os.scandir(folder) as found:  # a folder is none of ours: lost+found, say
        files = [one for one in found if not one.is_dir(follow_symlinks=False)]
    _unlink([Path(one) for one in files if one.name not in known])


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def check_free(folder: Path, need: int) -> None:
    """Raise OSError unless the disk has room for so many bytes, and some to spare."""
    disk = os.statvfs(folder)
    if need + SPARE_BYTES > disk.f_bavail * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _fresh(folder: Path, size: int) -> tuple[BinaryIO, Path]:
    check_free(folder, size)
    handle, name = tempfile.mkstemp(prefix=_NEW, dir=folder)  # 0600
    return os.fdopen(handle, "w+b"), Path(name)


def _write(folder: Path, data: bytes) -> tuple[Path, str]:
    file, path = _fresh(folder, len(data))
    with file, _or_remove(path):
        file.write(data)
        _sync(file)
    return path, hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _or_remove(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _settle(new: Path, place: Path) -> None:
    new.replace(place)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _back(place: Path, new: Path) -> None:
    """Undo `_settle`, however far it came."""
    with contextlib.suppress(FileNotFoundError):
        place.replace(new)


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _copy(source: Path, folder: Path, most: int) -> tuple[Path, str, int, Content]:
    """A copy of a regular file: no link is followed, and no pipe or device waited for."""
    with _regular(source) as original:
        size = os.fstat(original.fileno()).st_size
        if _is_ours(original, folder.parent):
            raise BadFile(reason="refused")
        if size > most:  # before the disk is asked, which has no room for it now and never will
            raise TooLarge(max_file_bytes=most)
        file, path = _fresh(folder, size)
        with file, _or_remove(path):
            sha256, size = hashlib.sha256(), 0
            while piece := _piece_of(original):
                size += len(piece)
                if size > most:
                    raise TooLarge(max_file_bytes=most)
                sha256.update(piece)
                file.write(piece)
            _sync(file)
            return path, sha256.hexdigest(), size, examine(file, None, strict=False)


def _regular(source: Path) -> BinaryIO:
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # no path has a NUL
        raise BadFile(reason="gone") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadFile(reason="not_a_file")
    return os.fdopen(handle, "rb")


def _is_ours(file: BinaryIO, state_dir: Path) -> bool:
    """Whether it is loomid's own by whatever name: the owner's token, the database."""
    stat = os.fstat(file.fileno())
    secrets = [*state_dir.glob(f"{database.FILE}*"), *state_dir.glob(doors.TOKEN_FILE)]
    return any(os.path.samestat(stat, one.stat(follow_symlinks=False)) for one in secrets)


def _piece_of(original: BinaryIO) -> bytes:
    try:
        return original.read(_PIECE)
    except OSError:
        raise BadFile(reason="unreadable") from None


def check_upload(part: Path, sha256: str, declared: str | None) -> Content:
    """What an uploaded file is; it is on disk then. Raises BadFile."""
    with part.open("r+b") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise BadFile(reason="digest")
        content = examine(file, declared, strict=True)
        _sync(file)
    return content


def examine_bytes(data: bytes, declared: str | None) -> Content:
    """What inline bytes of a phone are. Raises BadFile."""
    return examine(io.BytesIO(data), declared, strict=True)
