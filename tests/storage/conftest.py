from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()
