"""All rows of the matrix. Each gets a fresh phone on a running world of one release."""

from __future__ import annotations

from tests.matrix import approvals, questions, turns
from tests.matrix.rows import SCENARIOS, words

__all__ = ["SCENARIOS", "approvals", "questions", "turns", "words"]
