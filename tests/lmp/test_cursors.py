"""Cursors are good for what they were made for, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from msgspec.json import Decoder

from loomid.errors import BadCursor
from loomid.lmp import cursors

KEY = b"k" * 32
PLACE = Decoder(tuple[str, int])


@given(st.text(max_size=30), st.integers(0, 2**63 - 1))
def test_there_and_back(text: str, number: int) -> None:
    made = cursors.make(KEY, "task.history a", (text, number))
    assert cursors.read(KEY, "task.history a", made, PLACE) == (text, number)
    for key, purpose in ((KEY, "task.history b"), (b"j" * 32, "task.history a")):
        with pytest.raises(BadCursor):
            cursors.read(key, purpose, made, PLACE)


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadCursor):
        cursors.read(KEY, "p", text, PLACE)
