"""What a user types to search: words, "phrases", word*, this OR that, -without.

Whatever is no such thing is taken as words, as users expect, so there is hardly any error.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from loomid.errors import BadQuery
from loomid.lmp.history_frames import QUERY_CHARS
from loomid.lmp.preview import cut

_TOKEN = re.compile(r'(?P<minus>-?)(?:"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+))')
_TRIGRAM = 3
OPENS, CLOSES = "\ufdd0", "\ufdd1"
"""Around what was found, in a snippet of the index: no characters that a text would have."""
_PIECE, _BEFORE = 180, 60
"""Characters of a snippet, and how many of them are before what was found."""
_JOINED = (
    *("CJK ", "HIRAGANA", "KATAKANA", "HALFWIDTH ", "HANGUL", "BOPOMOFO"),
    *("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN "),
)
"""Scripts without spaces, by how Unicode names their characters."""
Mark = tuple[int, int]
"""From and to, in code points."""


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
        return any(_is_joined(char) for term in self.terms for char in term.text)

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


def _is_joined(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_JOINED)


def unmarked(snippet: str) -> tuple[str, list[Mark]]:
    """A piece of a snippet without the marks, and where they were."""
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
    return _around(text.rstrip(), found)


def window(text: str, terms: list[Term]) -> tuple[str, list[Mark]]:
    """A piece of the text around the first term in it, and where terms are in the piece."""
    # One by one: over a long text an alternative of many words would take half a second, in
    # which no other thread runs.
    words = [re.escape(term.text) for term in terms]
    firsts = (re.search(word, text, re.IGNORECASE) for word in words)
    start = min((first.start() for first in firsts if first is not None), default=0)
    near = re.compile("|".join(words), re.IGNORECASE)
    found = near.finditer(text, start, start + QUERY_CHARS + _PIECE)
    return _around(text, [each.span() for each in found])


def _around(text: str, marks: list[Mark]) -> tuple[str, list[Mark]]:
    """A piece around the first mark, and the marks in it."""
    start = max(marks[0][0] - _BEFORE, 0) if marks else 0
    piece = cut(text[start:], _PIECE)
    end, shift = start + len(piece.text), (start > 0) - start
    inside = [(max(a, start) + shift, min(b, end) + shift) for a, b in marks if a < end]
    return "…" * (start > 0) + piece.text + "…" * piece.truncated, inside
