"""The files of messages: those a phone sends along, and those it asks for in a frame."""

from __future__ import annotations

import base64
import binascii
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loomid.errors import BadFile, BadFrame, PhoneError, StorageFailing, TooLarge
from loomid.fileindex import Use
from loomid.files import Kept, examine_bytes, on_disk
from loomid.filetypes import declared_type
from loomid.lmp.file_frames import MAX_ATTACHMENTS, AttachmentGetResult
from loomid.lmp.filenames import clean_name
from loomid.lmp.payload import given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomid.files import Files
    from loomid.filetypes import Content
    from loomid.lmp.file_frames import AttachmentGet, SentAttachment
    from loomid.lmp.frames import Limits
    from loomid.vault import Device

_KINDS = {"image": "photo", "video": "video", "audio": "audio"}


class Attachments:
    """`limits` are those that hello.ok announces."""

    def __init__(self, files: Files, limits: Limits, clock: Callable[[], float]) -> None:
        self._files = files
        self._limits = limits
        self._clock = clock

    async def get(self, device: Device, asked: AttachmentGet) -> AttachmentGetResult:
        """A small file as text. Raises UnknownFile or TooLarge: GET /files gives any."""
        kept = await self._files.find(asked.attachment_id, device.device_id, asked.task_id)
        most = self._limits.max_inline_bytes or 0
        if kept.row.bytes > most:
            raise TooLarge(max_inline_bytes=most)
        file = await self._files.read(kept)
        try:
            data = await on_disk(file.read)
        finally:
            await on_disk(file.close)
        return AttachmentGetResult(
            attachment=kept.ref(),
            data=base64.b64encode(data).decode(),
            request_id=given(asked.request_id),
        )

    async def along(
        self, device: Device, message_id: str, text: str, sent: Sequence[SentAttachment]
    ) -> dict[str, Any]:
        """The arguments by which a message takes its files along; they are kept until it arrived.

        All are looked at before any is kept. Raises BadFrame, BadFile, TooLarge or UnknownFile.
        """
        use = {"device_id": device.device_id, "message_id": message_id}
        ready = [await self._look(device, one) for one in sent]
        self._check_inline([len(one[0]) for one in ready if isinstance(one, tuple)])
        try:
            kept = [await self._keep(one, said, use) for one, said in zip(ready, sent, strict=True)]
            refs = [one.ref() for one in kept]
            await self._files.sent.note(message_id, text, refs, self._clock())
        except PhoneError:
            await self.release(message_id)
            raise
        return {
            "files": [
                {"path": str(one.path), "name": one.name, "media_type": one.row.media_type}
                for one in kept
            ],
            "message_type": _message_type(kept, sent),
            "attachments": [msgspec.to_builtins(ref) for ref in refs],
        }

    async def _keep(
        self, one: Kept | tuple[bytes, Content], said: SentAttachment, use: dict[str, str]
    ) -> Kept:
        if isinstance(one, Kept):
            await self._files.send_with(one, Use(one.name, **use))
            return one
        data, content = one
        name = clean_name(said.name, content.media_type)
        return await self._files.put(data, content, Use(name, **use))

    async def release(self, message_id: str) -> None:
        """A message never ran: what came with it is not kept; should the disk fail just now, it
        goes when room is needed."""
        with contextlib.suppress(StorageFailing):
            await self._files.release(message_id)
            await self._files.sent.release(message_id)

    async def settle(self, value: dict[str, Any], task_id: str) -> None:
        """Hermes took a message: who may see its task may see its files. Raises StorageFailing."""
        message_id = value.get("message_id")
        if isinstance(message_id, str):
            await self._files.settle(message_id, task_id)
            await self._files.sent.settle(message_id, task_id, _names(value.get("copies")))

    async def _look(self, device: Device, one: SentAttachment) -> Kept | tuple[bytes, Content]:
        if (one.attachment_id is None) == (one.data is None):
            raise BadFrame("An attachment has either an attachment_id or data.")
        declared = declared_type(one.media_type)
        if one.attachment_id is not None:
            kept = await self._files.find(one.attachment_id, device.device_id)
            if declared not in (None, kept.row.media_type):
                raise BadFile(reason="mismatch", found=kept.row.media_type)
            return kept
        data = _decoded(one.data or "")
        return data, await on_disk(examine_bytes, data, declared)

    def _check_inline(self, sizes: list[int]) -> None:
        most = self._limits.max_inline_bytes or 0
        if sum(sizes) > most:
            raise TooLarge(max_inline_bytes=most)


def _names(copies: object) -> list[str]:
    """What Hermes calls its copies; an older plugin does not tell."""
    paths = copies if isinstance(copies, list) else []
    return [Path(each).name for each in paths[:MAX_ATTACHMENTS] if isinstance(each, str)]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadFile(reason="base64") from None


def _message_type(kept: Sequence[Kept], sent: Sequence[SentAttachment]) -> str:
    """Hermes' word for such a message; of files of several kinds it looks at each with `photo`."""
    kinds = set()
    for one, said in zip(kept, sent, strict=True):
        kind = _KINDS.get(one.row.media_type.partition("/")[0], "document")
        kinds.add("voice" if kind == "audio" and said.voice else kind)
    return kinds.pop() if len(kinds) == 1 else "photo"
