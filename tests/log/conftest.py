from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.pumping import Host, linked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loomid.db"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with linked(tmp_path) as one:
        yield one
