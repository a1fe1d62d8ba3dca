"""What docs/guarantees.md names exists: tests, programs, documents."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()


def test_the_tests_it_names_exist() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", PAGE))
    assert len(named) >= 15
    assert sorted(name for name in named if not _has_tests(name)) == []


def test_the_programs_it_names_can_be_run() -> None:
    programs = set(re.findall(r"`python -m ([\w.]+)", PAGE))
    assert {"tests.chaos", "tests.bench"} <= programs
    for name in programs:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        assert not spec.submodule_search_locations or importlib.util.find_spec(f"{name}.__main__")


def test_every_promise_names_what_shows_it() -> None:
    promises = 0
    for table in re.findall(r"^\|.*shown by \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for row in table.splitlines():
            promises += 1
            assert "`" in row.rstrip(" |").rpartition(" | ")[2], row
    assert promises >= 15


def _has_tests(name: str) -> bool:
    path = ROOT / name
    return (
        path.exists()
        and re.search(r"^(async )?def test|^Test", path.read_text(), re.MULTILINE) is not None
    )
