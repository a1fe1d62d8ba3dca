"""Cuts: never inside a grapheme cluster, never longer than allowed."""

from __future__ import annotations

import regex  # type: ignore[import-untyped]
from hypothesis import given, settings, strategies as st

from loomid.lmp.preview import COMMAND_BYTES, cut, head_and_tail, line, title

FAMILY = "👩‍👩‍👦"


def test_short_texts_stay_whole() -> None:
    assert cut("abc", 3) == ("abc", False)
    assert cut("", 3) == ("", False)


def test_clusters_stay_whole() -> None:
    assert cut(f"ab{FAMILY}cd", 4) == ("ab", True)
    assert cut(f"ab{FAMILY}cd", 7) == (f"ab{FAMILY}", True)
    assert cut("e\u0301e\u0301", 3) == ("e\u0301", True)
    assert cut("e" + "\u0301" * 9, 3) == ("e\u0301\u0301", True)  # one huge cluster


@settings(max_examples=200)
@given(st.text(max_size=40), st.integers(1, 20))
def test_cut_is_a_beginning(text: str, limit: int) -> None:
    short, truncated = cut(text, limit)
    assert text.startswith(short)
    assert len(short) <= limit
    assert truncated == (short != text)
    assert short or not text


def test_title_is_the_first_line_that_says_something() -> None:
    assert title(" \n\n  # Hello  \nworld") == "# Hello"
    assert title("") == ""
    assert len(title("x" * 500)) == 80


def test_head_and_tail() -> None:
    assert head_and_tail("x" * COMMAND_BYTES) == ("x" * COMMAND_BYTES, False)
    text, truncated = head_and_tail("a" + "é" * COMMAND_BYTES + "b")
    assert truncated
    assert text[0] + text[-1] == "ab"
    assert len(text.encode()) <= COMMAND_BYTES


@settings(max_examples=300)
@given(
    st.text(st.sampled_from("ab \r\n\u0301\u200d👩🇩🇪\u0600각ᄀ"), max_size=24), st.integers(1, 20)
)
def test_a_cut_is_where_a_cluster_ends(text: str, limit: int) -> None:
    ends = {found.end() for found in regex.finditer(r"\X", text)}
    fitting = [end for end in ends if end <= limit]
    short, _ = cut(text, limit)
    if len(text) > limit and fitting:
        assert len(short) == max(fitting)


def test_a_line_is_what_hermes_lists() -> None:
    assert line(" a\n\nb ") == "a b"
    assert line("x" * 60) == "x" * 60
    assert line("x" * 61) == f"{'x' * 60}..."
