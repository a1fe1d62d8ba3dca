"""Hermes homes of each release, with the schema that the release makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.hermes_home import RELEASES, Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=RELEASES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """Of each release in turn, in the journal mode that it uses."""
    journal = "wal" if request.param == "19" else "delete"
    return Home(tmp_path / "hermes", request.param, journal=journal)
