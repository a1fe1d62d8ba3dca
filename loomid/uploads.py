"""Uploads in pieces: begun, appended to however often the connection breaks, then a file.

How far one has come is the size of what is on disk; nothing else need be remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from loomid.errors import BadFile, BadRange, StorageFailing, UnknownFile
from loomid.fileindex import UploadRow, Use
from loomid.files import check_upload, on_disk, sweep
from loomid.filetypes import declared_type
from loomid.lmp.filenames import clean_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from loomid.files import Files, Kept

log = logging.getLogger("loomid.files")

FOLDER = "uploads"
"""In the state directory."""
PER_DEVICE = 4
MOST = 64
KEPT_S = 24 * 3600.0
HOUSEKEEPING_S = 600.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an upload is: `offset` bytes are here; or it is a file."""

    upload_id: str
    offset: int
    done: Kept | None = None


@dataclass(slots=True)
class _Writer:
    """The one connection that appends."""

    give_way: Callable[[], object]
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Uploads:
    """The uploads of all devices. `open` before all else, then `run`."""

    def __init__(self, state_dir: Path, files: Files, clock: Callable[[], float]) -> None:
        self._folder = state_dir / FOLDER
        self._index = files.index
        self._files = files
        self._clock = clock
        self._beginning = asyncio.Lock()
        self._open: dict[str, UploadRow] = {}
        self._writing: dict[str, _Writer] = {}

    async def open(self) -> None:
        """Go on with what there is; parts that belong to no upload are removed."""
        self._open = {one.upload_id: one for one in await self._index.uploads()}
        await asyncio.to_thread(sweep, self._folder, set(self._open))

    async def run(self) -> None:
        """Give up what is too old, until cancelled."""
        while True:
            oldest = self._clock() - KEPT_S
            with contextlib.suppress(StorageFailing):
                await self._drop([one for one in self._open.values() if one.at < oldest])
            await asyncio.sleep(HOUSEKEEPING_S)

    async def begin(
        self, device_id: str, size: int, sha256: str, media_type: str | None, name: str | None
    ) -> Progress:
        """Begin an upload, or go on with the one of the same content.

        What this device may see already is done. Raises TooLarge, BadFile or StorageFailing.
        """
        self._files.check_size(size)
        declared = declared_type(media_type)
        with contextlib.suppress(UnknownFile):
            return Progress("", size, await self._files.find(sha256, device_id))
        async with self._beginning:  # else two at once would both find nothing, and room
            for one in self._open.values():
                if (one.device_id, one.sha256, one.bytes) == (device_id, sha256, size):
                    return Progress(one.upload_id, _size(self._folder / one.upload_id))
            await self._drop(self._surplus(device_id))
            await self._files.make_room(size)
            upload_id = f"up_{secrets.token_hex(12)}"
            upload = UploadRow(upload_id, device_id, sha256, size, declared, name, self._clock())
            await self._index.begin(upload)
            self._open[upload_id] = upload
            return Progress(upload_id, 0)

    async def append(
        self,
        device_id: str,
        upload_id: str,
        offset: int,
        pieces: AsyncIterator[bytes],
        give_way: Callable[[], object],
    ) -> Progress:
        """Append what comes; a file once all is there. `give_way` ends `pieces`.

        Raises UnknownFile, BadRange (with the `offset` to go on from), BadFile (then the
        upload is gone), StorageFailing, or what `pieces` raises: what came before it stays.
        """
        async with self._alone(upload_id, give_way):
            upload = self._mine(device_id, upload_id)
            part = self._folder / upload_id
            have = _size(part)
            if offset != have:
                raise BadRange(offset=have)
            file = await on_disk(_append_to, part)
            try:
                have += await _append(file, pieces, upload.bytes - have)
            finally:
                await on_disk(file.close)
            if have < upload.bytes:
                return Progress(upload_id, have)
            return Progress(upload_id, have, await self._finish(upload, part))

    def size(self, device_id: str, upload_id: str) -> int:
        """How many bytes it is to have. Raises UnknownFile."""
        return self._mine(device_id, upload_id).bytes

    async def _finish(self, upload: UploadRow, part: Path) -> Kept:
        try:
            content = await on_disk(check_upload, part, upload.sha256, upload.media_type)
        except BadFile:
            await self._forget([upload])
            raise
        name = clean_name(upload.name, content.media_type)
        use = Use(name, device_id=upload.device_id)
        kept = await self._files.adopt(part, upload.sha256, upload.bytes, content, use)
        await self._forget([upload])
        return kept

    def _mine(self, device_id: str, upload_id: str) -> UploadRow:
        upload = self._open.get(upload_id)
        if upload is None or upload.device_id != device_id:
            raise UnknownFile
        return upload

    def _surplus(self, device_id: str) -> list[UploadRow]:
        """Those that make room for one more: the oldest of the device, or of all."""
        mine = [one for one in self._open.values() if one.device_id == device_id]
        if len(mine) >= PER_DEVICE:
            return mine[: len(mine) - PER_DEVICE + 1]
        return [*self._open.values()][: max(0, len(self._open) - MOST + 1)]

    async def _drop(self, uploads: list[UploadRow]) -> None:
        for one in uploads:
            if (writer := self._writing.get(one.upload_id)) is not None:
                writer.give_way()
        await self._forget(uploads)

    async def _forget(self, uploads: list[UploadRow]) -> None:
        if not uploads:
            return
        await self._index.end([one.upload_id for one in uploads])
        for one in uploads:
            self._open.pop(one.upload_id, None)
            await on_disk((self._folder / one.upload_id).unlink, True)

    @asynccontextmanager
    async def _alone(self, upload_id: str, give_way: Callable[[], object]) -> AsyncIterator[None]:
        """A newer connection has the older one end: that may be dead and not know it."""
        while (older := self._writing.get(upload_id)) is not None:
            older.give_way()
            await older.gone.wait()
        mine = self._writing[upload_id] = _Writer(give_way)
        try:
            yield
        finally:
            del self._writing[upload_id]
            mine.gone.set()


def _append_to(part: Path) -> BinaryIO:
    return open(part, "ab", opener=_private)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


async def _append(file: BinaryIO, pieces: AsyncIterator[bytes], most: int) -> int:
    """Write what comes, to the last byte that has a place; how much that was."""
    written = 0
    async for piece in pieces:
        if written + len(piece) > most:
            raise BadRange(reason="too_long")
        await on_disk(_write, file, piece)
        written += len(piece)
    return written


def _write(file: BinaryIO, piece: bytes) -> None:
    file.write(piece)
    file.flush()


def _size(part: Path) -> int:
    try:
        return os.stat(part).st_size  # noqa: PTH116 - quick, and no path is followed further
    except FileNotFoundError:
        return 0
