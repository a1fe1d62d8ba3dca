"""Texts cut for display: between grapheme clusters, never inside one (docs/protocol.md)."""

from __future__ import annotations

from typing import NamedTuple

import regex  # type: ignore[import-untyped]

from loomid.wire import LIMIT, PREVIEW_CHARS

TITLE_CHARS = 80
LINE_CHARS = 60
ERROR_CHARS = 500
COMMAND_BYTES = 64 * 1024
_CLUSTER = regex.compile(r"\X")
_GAP = "\n[…]\n"
_BARE = frozenset({"command", "question", "questions"})


class Cut(NamedTuple):
    """A text and whether something of it was left out."""

    text: str
    truncated: bool


def cut(text: str, limit: int = PREVIEW_CHARS) -> Cut:
    """At most `limit` characters of the text, ending where a grapheme cluster ends."""
    if len(text) <= limit:
        return Cut(text, truncated=False)
    edge = text[max(limit - 1, 0) : limit + 1]
    if edge.isascii() and edge != "\r\n":
        return Cut(text[:limit], truncated=True)  # a cluster ends there, whatever came before
    end = 0
    # One character past the limit tells whether the cluster before it goes on.
    for cluster in _CLUSTER.finditer(text[: limit + 1]):
        if cluster.end() > limit:
            break
        end = cluster.end()
    return Cut(text[: end or limit], truncated=True)


def of_args(args: object) -> str:
    """What a tool is to do, by its arguments: a line each, commands and questions without a name.

    As much as the plugin passes on of them (`plain` in hermes_shim/facts.py).
    """
    if not isinstance(args, dict):
        return ""
    named = [(k, _asked(v) if k == "questions" else v) for k, v in args.items()]
    some = [(k, v) for k, v in named if isinstance(v, (str, int, float))][:8]
    told = [(k, v[:LIMIT] if isinstance(v, str) else v) for k, v in some]
    return "\n".join(f"{v}" if k in _BARE else f"{k}: {v}" for k, v in told)[:LIMIT]


def _asked(questions: object) -> object:
    """All that 0.22's clarify tool asks at once, a line each; the plugin has done so already."""
    if not isinstance(questions, list):
        return questions
    texts = (q.get("text") or q.get("question") for q in questions if isinstance(q, dict))
    return "\n".join(str(text) for text in texts if text)


def title(text: str, limit: int = TITLE_CHARS) -> str:
    """The first line that says something, short enough for a heading."""
    first = next((each.strip() for each in text.splitlines() if each.strip()), "")
    return cut(first, limit).text


def line(text: str) -> str:
    """The beginning of a text on one line, as Hermes' list of sessions shows it."""
    shown = cut(" ".join(text.split()), LINE_CHARS)
    return shown.text + "..." * shown.truncated


def head_and_tail(command: str) -> Cut:
    """A command as an approval shows it: whole, or its head and tail over COMMAND_BYTES."""
    raw = command.encode()
    if len(raw) <= COMMAND_BYTES:
        return Cut(command, truncated=False)
    half = (COMMAND_BYTES - len(_GAP.encode())) // 2
    # A character cut in two at either edge is left out.
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    return Cut(head + _GAP + tail, truncated=True)
