from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.link import Shim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "hermes.sock"


@pytest.fixture
def shim_of(path: Path) -> Iterator[Callable[..., Shim]]:
    shims: list[Shim] = []

    def make(**fields: Any) -> Shim:
        shims.append(Shim(path, **fields))
        return shims[-1]

    yield make
    for shim in shims:
        shim.link.stop(0.0)
