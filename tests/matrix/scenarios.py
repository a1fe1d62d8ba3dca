"""All rows of the matrix. Each gets a fresh phone on a running world of one release."""

from __future__ import annotations

from tests.matrix import approvals, branching, files, past, questions, steering, turns, waiting
from tests.matrix.rows import SCENARIOS, words

__all__ = [
    "SCENARIOS",
    "approvals",
    "branching",
    "files",
    "past",
    "questions",
    "steering",
    "turns",
    "waiting",
    "words",
]
