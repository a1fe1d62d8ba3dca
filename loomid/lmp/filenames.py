"""Names of files, for people: where a file is kept they never say."""

from __future__ import annotations

import mimetypes
import re
import unicodedata

MOST_CHARS = 120
_SUFFIX_CHARS = 20
_IMAGES = {
    "image/jpeg": (".jpg", ".jpeg"),
    "image/png": (".png",),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
}
_TYPES = mimetypes.MimeTypes()  # Python's own table: the same on every machine


def clean_name(said: str | None, media_type: str) -> str:
    """One component of a path, without what could mislead or steer a terminal.

    An image's name ends as its content asks, and one without an end gets one.
    """
    name = re.split(r"[/\\]", unicodedata.normalize("NFC", said or ""))[-1]
    name = "".join(c for c in name if unicodedata.category(c)[0] != "C" or c in "\t\n")
    name = re.sub(r'[<>:"|?*\s]+', " ", name).strip(" .")
    stem, _, end = name.rpartition(".")
    suffix = f".{end.strip()}"[:_SUFFIX_CHARS] if stem and end else ""
    stem = stem if suffix else name
    fitting = _IMAGES.get(media_type)
    if fitting is not None and suffix.lower() not in fitting:
        suffix = fitting[0]
    suffix = suffix or _TYPES.guess_extension(media_type) or ""
    return f"{stem[: MOST_CHARS - len(suffix)].rstrip(' .') or 'file'}{suffix}"
