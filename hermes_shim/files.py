"""Files both ways: loomid's become Hermes' own copies, Hermes' become facts.

What Hermes sends may be gone as soon as that is done (speech, exports), so loomid is given a
second name of it, or a copy, which it removes.
"""

import asyncio
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.context_references import REFERENCE_PATTERN
from gateway.platforms import base
from gateway.platforms.base import MessageType, SendResult
from hermes_constants import get_hermes_home

from .facts import plain, state
from .wire import Message, log

# Of copies that loomid has not fetched: the newest, so many of so many bytes at most.
COPIES, COPIES_BYTES = 64, 1 << 30
SPARE_BYTES = 16 << 20  # of the disk, which files leave to loomid's database
INLINE_BYTES = 100 << 10  # of a text, which Hermes' own adapters give the model to read at once
# What Hermes would follow in a message: to files, to addresses; of plugins (0.20, 0.22) any word.
REFERENCE = re.compile(REFERENCE_PATTERN.pattern + r"|(?<![\w/])@[a-zA-Z][\w-]*:\S")
CACHES = {
    "image": base.cache_image_from_bytes,
    "audio": base.cache_audio_from_bytes,
    "video": base.cache_video_from_bytes,
}


def cached(path: str, name: str, media_type: str) -> tuple[str, str, str]:
    """Where Hermes keeps its copy of a file of loomid's: there its tools may read; as what type;
    and what of it the model reads at once: a short text, as from Hermes' own adapters."""
    data, cache = Path(path).read_bytes(), CACHES.get(media_type.partition("/")[0])
    # Hermes would follow references in a name: @diff, @staged.
    suffix = Path(name := name.replace("@", "_")).suffix.lower()
    if cache is not None:
        return str(cache(data, suffix)), media_type, ""
    copy = str(base.cache_document_from_bytes(data, name))
    textual = media_type.startswith("text/") or suffix in base._TEXT_INJECT_EXTENSIONS
    if textual and len(data) <= INLINE_BYTES:
        with suppress(UnicodeDecodeError):
            # At so many line ends on end 0.22 looks for seconds.
            if not (REFERENCE.search(text := data.decode()) or "\0" in text or "\n" * 1000 in text):
                return copy, "text/plain", f"[Content of {name}]:\n{text}"
    # Of text/… it would say that the content is below; of octets, too, if they are called so.
    return copy, media_type.replace("text/", "application/x-", 1).replace("/octet", "/x-octet"), ""


def handed(path: str, message_id: str) -> str:
    """Another name of a file, or a copy, that stays when Hermes removes its own; "": neither."""
    folder = Path(state.inbox or Path(get_hermes_home(), "loomi", "files"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    source, copy = Path(path), folder / message_id
    if not source.is_file() or (size := source.stat().st_size) > COPIES_BYTES:
        return ""
    held = size
    with suppress(OSError):  # loomid, too, removes what it has taken
        for old in sorted(folder.iterdir(), key=lambda one: one.lstat().st_ctime, reverse=True):
            held += max(old.lstat().st_size, COPIES_BYTES // COPIES)
            if held > COPIES_BYTES:
                old.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), copy)
    except OSError:
        # loomid makes one of its own before it removes ours.
        if size > state.most or 2 * size + SPARE_BYTES > shutil.disk_usage(folder).free:
            return ""
        try:
            shutil.copyfile(source, copy)
        except OSError:
            copy.unlink(missing_ok=True)
            return ""
    return str(copy)


class Files:
    """What of the adapter is about files."""

    _op_inject: Any  # the adapter's own
    _source: Any
    _tell: Any

    async def _op_inject_files(
        self, _id: str, files: list[Message], message_type: str, text: str, **message: Any
    ) -> Any:
        try:
            kept = [await asyncio.to_thread(cached, **file) for file in files]
        except (OSError, ValueError) as error:
            log.warning("loomi: Hermes does not take a file: %s", type(error).__name__)
            return {"error": "bad_file"}
        paths, types, texts = map(list, zip(*kept, strict=True))
        # The contents behind the user's words, so that loomid knows these again.
        read = "\n\n".join(filter(None, [text, *texts]))
        media = {"media_urls": paths, "media_types": types, "text": read}
        media["message_type"] = MessageType(message_type)
        return await self._op_inject(_id, text=text, media=media, **message)

    async def send_image_file(self, chat_id: str, image_path: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, image_path, *args, **kw)

    async def send_voice(self, chat_id: str, audio_path: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, audio_path, *args, **kw)

    async def send_video(self, chat_id: str, video_path: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, video_path, *args, **kw)

    async def send_document(self, chat_id: str, file_path: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, file_path, *args, **kw)

    async def send_image(self, chat_id: str, image_url: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, "", *args, url=image_url, **kw)

    async def send_animation(self, chat_id: str, animation_url: str, *args: Any, **kw: Any) -> Any:
        return await self._hand(chat_id, "", *args, url=animation_url, **kw)

    async def _hand(
        self,
        chat_id: str,
        path: str,
        caption: Any = None,
        reply_to: Any = None,
        metadata: Any = None,
        *,
        file_name: Any = None,
        url: str = "",
        **_: Any,
    ) -> Any:
        """Tell loomid of a file; always a success, or Hermes would say that it failed."""
        message_id = f"out-{state.boot}-{next(state.serial)}"
        copy = ""
        if path:
            with suppress(OSError, shutil.Error):
                copy = await asyncio.to_thread(handed, path, message_id)
        said = {"chat_id": chat_id, "path": copy or path, "ours": bool(copy), "url": url}
        name, metadata = file_name or Path(path).name, plain(metadata)
        more = {"name": name, "caption": caption, "reply_to": reply_to, "metadata": metadata}
        self._tell("file.sent", self._source(chat_id), message_id, **said, **more)
        return SendResult(success=True, message_id=message_id)
