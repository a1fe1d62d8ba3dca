"""The only door for text from outside: NUL and unpaired surrogates become U+FFFD."""

from __future__ import annotations

import re

# A backslash, or a whole pair, escaped as it should be; then what should not be there.
_ESCAPES = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_BAD_RAW = re.compile("[\x00\ud800-\udfff]")


def valid_text(raw: str) -> str:
    """Replace NUL and unpaired surrogates by U+FFFD in text that is no JSON."""
    if _BAD_RAW.search(raw):
        # A raw pair (from surrogatepass) is joined, a lone half becomes U+FFFD.
        raw = raw.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        raw = raw.replace("\x00", "\ufffd")
    return raw


def valid_json_text(raw: str) -> str:
    """Replace NUL and unpaired surrogates, raw or escaped, by U+FFFD in JSON text.

    The only door for text from outside (docs/protocol.md): it works on the raw text,
    before that is decoded, so that no decoder ever sees what SQLite, UTF-8 or a
    phone could not take.
    """
    raw = valid_text(raw)
    return _ESCAPES.sub(lambda found: found[1] or r"\ufffd", raw) if "\\u" in raw else raw


def short(name: str, most: int = 64) -> str:
    """For logs: what a peer calls itself, made harmless."""
    return "".join(c if c.isprintable() else "?" for c in name[:most])
