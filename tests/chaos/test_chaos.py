"""Three minutes of faults on fixed seeds; `python -m tests.chaos` does more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.chaos.__main__ import attempt
from tests.chaos.plan import generate

if TYPE_CHECKING:
    from pathlib import Path

REST_S = 400.0
"""Beyond its minute each run starts processes, and comes to rest."""


@pytest.mark.timeout(60 + REST_S)
@pytest.mark.parametrize("seed", [4, 6, 7])
def test_nothing_is_lost_doubled_or_run_twice(seed: int, tmp_path: Path) -> None:
    summary, violations = attempt(generate(seed, 60.0, 8, 2), tmp_path / "run")
    assert violations == [], json.dumps(summary)
    for done in ("kills", "host_kills", "swaps", "events", "deliveries_checked", "commands run"):
        assert summary[done], json.dumps(summary)
