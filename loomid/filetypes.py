"""What a file is, by its first and last bytes alone: never by its name, and nothing is decoded.

Images are known by their signatures and measured by their headers, so that one that would
unpack to gigabytes is refused before anybody unpacks it.
"""

from __future__ import annotations

import codecs
import io
import re
from dataclasses import dataclass
from typing import BinaryIO

import imagesize
import puremagic

from loomid.errors import BadFile

EDGE_BYTES = 64 * 1024
"""So much of a file's beginning and end is looked at."""
MEASURED_BYTES = 2**20
"""An image's size stands in these: before it there may be previews and colour tables."""
MAX_PIXELS = 100_000_000
UNKNOWN = "application/octet-stream"
_STRONG = 0.4
"""Of puremagic's confidence; below, a text may begin like it by chance."""
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_SAME = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "audio/x-caf": "audio/caf",
    "application/ogg": "audio/ogg",
    "application/x-gzip": "application/gzip",
    "application/x-zip-compressed": "application/zip",
    "text/xml": "application/xml",
}
"""Other names of the same types."""
_CONTAINERS = (
    frozenset({"video/mp4", "audio/mp4", "video/quicktime"}),
    frozenset({"audio/ogg", "video/ogg", "audio/opus"}),
    frozenset({"video/webm", "audio/webm", "video/x-matroska", "application/x-matroska"}),
)
"""Formats that hold sound or pictures alike: which, their beginning does not tell."""
_OFFICE = {
    b"word/": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    b"xl/": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    b"ppt/": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
_TEXTS = re.compile(
    r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml)|application/(x-)?"
    r"(javascript|ecmascript|yaml|toml|sh|sql|ndjson|python|httpd-php|latex|tex)"
)
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")
_CONTINUED = bytes(range(0x80, 0xC0))
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


@dataclass(frozen=True, slots=True)
class Content:
    """What is in a file. Width and height in pixels, of images whose header tells them."""

    media_type: str
    width: int | None = None
    height: int | None = None


def declared_type(said: str | None) -> str | None:
    """A media type as we write it, without parameters; None when it says nothing.

    Raises BadFile for what is none.
    """
    bare = (said or "").partition(";")[0].strip().lower()
    bare = _SAME.get(bare, bare)
    if bare in ("", UNKNOWN):
        return None
    if not _MEDIA_TYPE.fullmatch(bare):
        raise BadFile(reason="media_type")
    return bare


def examine(file: BinaryIO, declared: str | None, *, strict: bool) -> Content:
    """What a file is, and whether that fits the declared type. It is left open.

    `strict`: from a phone, so an image must be one that models are shown. Raises BadFile
    with the reason `empty`, `mismatch`, `unsupported`, `broken_image` or `too_many_pixels`.
    """
    head, tail = _edges(file)
    if not head:
        raise BadFile(reason="empty")
    found = _image(head)
    if found is not None:
        if declared not in (None, found):
            raise BadFile(reason="mismatch", found=found)
        file.seek(0)
        return _measured(file.read(MEASURED_BYTES), found)
    media_type = _fitting(_candidates(head, tail, declared), declared)
    if strict and media_type.startswith("image/"):
        raise BadFile(reason="unsupported", found=media_type)
    return Content(media_type)


def _edges(file: BinaryIO) -> tuple[bytes, bytes]:
    """The beginning, and of what is behind it the end."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(EDGE_BYTES)
    file.seek(max(len(head), size - EDGE_BYTES))
    return head, file.read(EDGE_BYTES)


def _fitting(found: list[str], declared: str | None) -> str:
    """The declared type if the content may be that, else what it is, if nothing was declared."""
    if declared is None:
        return found[0]
    if declared in found:
        return declared
    if any(declared in group and not group.isdisjoint(found) for group in _CONTAINERS):
        return declared
    major = declared.partition("/")[0]
    if found == [UNKNOWN] and major not in ("image", "audio", "video", "text"):
        return UNKNOWN  # nothing tells that it is, and nothing that it is not
    raise BadFile(reason="mismatch", found=found[0])


def _image(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((name for mark, name in _IMAGES.items() if head.startswith(mark)), None)


def _measured(start: bytes, media_type: str) -> Content:
    width, height = imagesize.get(io.BytesIO(start))
    if width <= 0 or height <= 0:
        raise BadFile(reason="broken_image")
    if width * height > MAX_PIXELS:
        raise BadFile(reason="too_many_pixels", max_pixels=MAX_PIXELS)
    return Content(media_type, width, height)


def _candidates(head: bytes, tail: bytes, declared: str | None) -> list[str]:
    """What it may be, the likeliest first; never empty."""
    if head.startswith(b"PK\x03\x04"):
        return _archive(head, tail)
    matches = _matches(head)
    strong = [name for name, confidence in matches if confidence >= _STRONG]
    if _is_text(head, tail):
        known = [name for name in strong if _textual(name)]
        if strong and not known:
            return strong  # PDF, say, whose beginning may be text
        told = [declared] if declared and _TEXTS.fullmatch(declared) else []
        return [*told, *known, "text/plain"]
    names = [name for name, _ in matches if not _textual(name)]
    return names or [UNKNOWN]


def _matches(head: bytes) -> list[tuple[str, float]]:
    try:
        found = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return []
    return [
        (_SAME.get(one.mime_type, one.mime_type), one.confidence) for one in found if one.mime_type
    ]


def _textual(name: str) -> bool:
    return name == "image/svg+xml" or _TEXTS.fullmatch(name) is not None


def _is_text(head: bytes, tail: bytes) -> bool:
    """UTF-8 without control characters, as far as is looked; one may be cut at an edge."""
    if _NO_TEXT.search(head) or _NO_TEXT.search(tail):
        return False
    try:
        for edge in (head, tail.lstrip(_CONTINUED)):
            codecs.getincrementaldecoder("utf-8")().decode(edge)
    except UnicodeDecodeError:
        return False
    return True


def _archive(head: bytes, tail: bytes) -> list[str]:
    """A zip file, or what is packed in one; its table of contents is at its end."""
    if head[30:38] == b"mimetype":
        name = re.match(rb"[a-z0-9./+-]+", head[38:138])
        if name is not None and _MEDIA_TYPE.fullmatch(name[0].decode()):
            return [name[0].decode(), "application/zip"]
    listed = head + tail
    if b"[Content_Types].xml" in listed:
        return [*(name for mark, name in _OFFICE.items() if mark in listed), "application/zip"]
    return ["application/zip"]
