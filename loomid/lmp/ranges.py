"""The one part of a file that an HTTP request asks for (RFC 9110 §14)."""

from __future__ import annotations

import re

from loomid.errors import BadRange

_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")


def part_of(header: str | None, size: int) -> tuple[int, int]:
    """First byte and the one behind the last: all of it without a header.

    Several parts at once are not given, nor is any that is not in the file: BadRange.
    """
    if header is None:
        return 0, size
    asked = _RANGE.fullmatch(header.strip().replace(" ", ""))
    if asked is None or asked[0] == "bytes=-":
        raise BadRange(bytes=size)
    first, last = asked.groups()
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(int(last or size) + 1, size)
    if start >= end:
        raise BadRange(bytes=size)
    return start, end
