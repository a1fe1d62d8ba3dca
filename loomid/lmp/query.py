"""What a user types to search: words, "phrases", word*, this OR that, -without.

Whatever is no such thing is taken as words, as users expect, so there is hardly any error.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from loomid.errors import BadQuery
from loomid.lmp.history_frames import QUERY_CHARS

_TOKEN = re.compile(r'(?P<minus>-?)(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
_TRIGRAM = 3
OPENS, CLOSES = "\ue000", "\ue001"
"""Around what was found, in a snippet of the index."""
_AROUND = 60


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase."""

    text: str
    begins: bool = False
    """Words that begin so are meant as well."""


@dataclass(frozen=True, slots=True)
class Query:
    """All of `groups` must be there, any term of each; none of `without`."""

    groups: tuple[tuple[Term, ...], ...]
    without: tuple[Term, ...]

    @property
    def terms(self) -> list[Term]:
        """Those that are looked for."""
        return [term for group in self.groups for term in group]

    @property
    def substrings(self) -> bool:
        """Words of a script without spaces: what is between others must be found, too."""
        return any(_is_cjk(char) for term in self.terms for char in term.text)

    @property
    def fits_trigrams(self) -> bool:
        """Whether every term is long enough for an index of three characters each."""
        return all(len(term.text) >= _TRIGRAM for term in (*self.terms, *self.without))

    def match(self, *, trigrams: bool = False) -> str:
        """The same for SQLite's FTS5; nothing in it but quoted strings and operators."""
        found = " AND ".join(
            f"({' OR '.join(_quoted(term, trigrams) for term in group)})" for group in self.groups
        )
        left_out = " OR ".join(_quoted(term, trigrams) for term in self.without)
        return f"({found}) NOT ({left_out})" if left_out else found


def parse(text: str) -> Query:
    """What is meant. Raises BadQuery: empty, too_long, only_exclusions."""
    if len(text) > QUERY_CHARS:
        raise BadQuery(reason="too_long", max_chars=QUERY_CHARS)
    groups: list[list[Term]] = []
    without: list[Term] = []
    joins = False
    for found in _TOKEN.finditer(text):
        if found["word"] in ("OR", "AND") and not found["minus"]:
            joins = found["word"] == "OR" and bool(groups)
            continue
        term = _term(found["phrase"] if found["word"] is None else found["word"])
        if term is None:
            continue
        if found["minus"]:
            without.append(term)
        elif joins:
            groups[-1].append(term)
        else:
            groups.append([term])
        joins = False
    if not groups:
        raise BadQuery(reason="only_exclusions" if without else "empty")
    return Query(tuple(map(tuple, groups)), tuple(without))


def _term(text: str) -> Term | None:
    if not any(unicodedata.category(char)[0] in "LNMS" for char in text):
        return None  # no word: the index has nothing of it
    bare = text.rstrip("*")
    return Term(bare.strip(), begins=bare != text)


def _quoted(term: Term, trigrams: bool) -> str:
    quoted = '"' + term.text.replace('"', '""') + '"'
    return f"{quoted}*" if term.begins and not trigrams else quoted


def _is_cjk(char: str) -> bool:
    name = unicodedata.name(char, "")
    return name.startswith(("CJK ", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"))


def unmarked(snippet: str) -> tuple[str, list[tuple[int, int]]]:
    """A snippet without the marks, and where they were."""
    text, found, begun = "", [], -1
    for piece in re.split(f"([{OPENS}{CLOSES}])", snippet):
        if piece == OPENS:
            begun = len(text)
        elif piece == CLOSES:
            if 0 <= begun < len(text):
                found.append((begun, len(text)))
            begun = -1
        else:
            text += piece
    return text.rstrip(), [(start, min(end, len(text.rstrip()))) for start, end in found]


def window(text: str, terms: list[Term]) -> tuple[str, list[tuple[int, int]]]:
    """A piece of the text around the first term in it, and where terms are in the piece."""
    pattern = re.compile("|".join(re.escape(term.text) for term in terms), re.IGNORECASE)
    first = pattern.search(text)
    middle = first.start() if first is not None else 0
    start, end = max(middle - _AROUND, 0), middle + 2 * _AROUND
    head = "…" if start else ""
    piece = head + text[start:end] + ("…" if end < len(text) else "")
    return piece, [found.span() for found in pattern.finditer(piece)]
