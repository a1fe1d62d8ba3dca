"""Uploads in pieces: begun, appended to however often the connection breaks, then a file.

How far one has come is the size of what is on disk; nothing else need be remembered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from loomid.errors import BadFile, BadRange, UnknownFile
from loomid.fileindex import UploadRow, Use
from loomid.files import check_free, check_upload, on_disk, sweep
from loomid.filetypes import declared_type
from loomid.lmp.filenames import clean_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from loomid.files import Files, Kept

FOLDER = "uploads"
"""In the state directory."""
PER_DEVICE = 4
MOST = 64
KEPT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an upload is: `offset` bytes are here; or it is a file."""

    upload_id: str
    offset: int
    done: Kept | None = None


@dataclass(slots=True)
class _Turn:
    """Whoever is at an upload; a connection that appends can be told to give way."""

    give_way: Callable[[], object]
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Uploads:
    """The uploads of all devices. `open` before all else."""

    def __init__(self, state_dir: Path, files: Files, clock: Callable[[], float]) -> None:
        self._folder = state_dir / FOLDER
        self._index = files.index
        self._files = files
        self._clock = clock
        self._beginning = asyncio.Lock()
        self._open: dict[str, UploadRow] = {}
        self._turns: dict[str, _Turn] = {}

    async def open(self) -> None:
        """Go on with what there is; parts that belong to no upload are removed."""
        self._open = {one.upload_id: one for one in await self._index.uploads()}
        await asyncio.to_thread(sweep, self._folder, set(self._open))

    async def tend(self) -> None:
        """Give up what is too old, or of a revoked device. Raises StorageFailing."""
        oldest = self._clock() - KEPT_S
        old = [one.upload_id for one in self._open.values() if one.at < oldest]
        await self._drop(old + await self._index.disowned())

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
            upload = self._same(device_id, sha256, size)
            if upload is None:
                await self._drop(self._surplus(device_id))
                await on_disk(check_free, self._folder, size)
                await self._files.make_room(size)
                upload_id = f"up_{secrets.token_hex(12)}"
                now = self._clock()
                upload = UploadRow(upload_id, device_id, sha256, size, declared, name, now)
                await self._index.begin(upload)
                self._open[upload_id] = upload
        part = self._folder / upload.upload_id
        have = await on_disk(_size, part)
        if have < size:
            return Progress(upload.upload_id, have)
        async with self._alone(upload.upload_id):
            if upload.upload_id in self._open:  # all had come, and could not be stored then
                return Progress(upload.upload_id, have, await self._finish(upload, part))
        return await self.begin(device_id, size, sha256, media_type, name)

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
        upload is gone) or StorageFailing: what has come stays.
        """
        async with self._alone(upload_id, give_way):
            upload = self._mine(device_id, upload_id)
            part = self._folder / upload_id
            have = await on_disk(_size, part)
            if offset != have:
                raise BadRange(offset=have)
            await on_disk(check_free, self._folder, upload.bytes - have)
            file = await on_disk(_append_to, part)
            try:
                have = await _append(file, pieces, have, upload.bytes)
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
            await self._forget(upload.upload_id)
            raise
        name = clean_name(upload.name, content.media_type)
        use = Use(name, device_id=upload.device_id)
        kept = await self._files.adopt(part, upload.sha256, upload.bytes, content, use)
        await self._forget(upload.upload_id)
        return kept

    def _same(self, device_id: str, sha256: str, size: int) -> UploadRow | None:
        for one in self._open.values():
            if (one.device_id, one.sha256, one.bytes) == (device_id, sha256, size):
                return one
        return None

    def _mine(self, device_id: str, upload_id: str) -> UploadRow:
        upload = self._open.get(upload_id)
        if upload is None or upload.device_id != device_id:
            raise UnknownFile
        return upload

    def _surplus(self, device_id: str) -> list[str]:
        """Those that make room for one more: the oldest of the device, or of all."""
        mine = [name for name, one in self._open.items() if one.device_id == device_id]
        if len(mine) >= PER_DEVICE:
            return mine[: len(mine) - PER_DEVICE + 1]
        return [*self._open][: max(0, len(self._open) - MOST + 1)]

    async def _drop(self, upload_ids: list[str]) -> None:
        for name in upload_ids:
            async with self._alone(name):
                if name in self._open:
                    await self._forget(name)

    async def _forget(self, upload_id: str) -> None:
        """An upload is a file now, or given up; whoever calls is alone with it."""
        await self._index.end(upload_id)
        del self._open[upload_id]
        await on_disk((self._folder / upload_id).unlink, True)

    @asynccontextmanager
    async def _alone(
        self, upload_id: str, give_way: Callable[[], object] = lambda: None
    ) -> AsyncIterator[None]:
        """One after the other; a connection that appends has to end, as it may be dead and not
        know it."""
        while (other := self._turns.get(upload_id)) is not None:
            other.give_way()
            await other.over.wait()
        mine = self._turns[upload_id] = _Turn(give_way)
        try:
            yield
        finally:
            del self._turns[upload_id]
            mine.over.set()


def _append_to(part: Path) -> BinaryIO:
    return open(part, "ab", opener=_private)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


async def _append(file: BinaryIO, pieces: AsyncIterator[bytes], have: int, size: int) -> int:
    """Write what comes, up to a piece that is too long; how much is there then."""
    async for piece in pieces:
        if have + len(piece) > size:
            raise BadRange(offset=have, reason="too_long")
        await on_disk(_write, file, piece)
        have += len(piece)
    return have


def _write(file: BinaryIO, piece: bytes) -> None:
    file.write(piece)
    file.flush()


def _size(part: Path) -> int:
    try:
        return part.stat().st_size
    except FileNotFoundError:
        return 0
