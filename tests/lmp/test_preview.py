"""Cuts: never inside a grapheme cluster, never longer than allowed."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from loomid.lmp.preview import COMMAND_BYTES, cut, head_and_tail, title

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
