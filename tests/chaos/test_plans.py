"""Plans: the same for a seed, kept in files, shrunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chaos.plan import Plan, Step, generate
from tests.chaos.shrink import shrink, until

if TYPE_CHECKING:
    from pathlib import Path

KILLS = {"kill", "swap", "power"}


def test_a_plan_is_the_same_for_a_seed_and_can_be_kept(tmp_path: Path) -> None:
    plan = generate(7, 60.0, 12, 3)
    assert plan == generate(7, 60.0, 12, 3)
    assert plan != generate(8, 60.0, 12, 3)
    plan.save(tmp_path / "plan")
    assert Plan.load(tmp_path / "plan") == plan
    killed = [1 + len(s.how.get("again", ())) for s in plan.steps if s.do in KILLS]
    assert sum(killed) == 12
    assert sum(s.do == "host_kill" for s in plan.steps) == 3


def test_a_plan_shrinks_to_what_it_needs() -> None:
    steps = tuple(Step(float(i), "send", {"phone": i}) for i in range(100))
    plan = Plan(1, 100.0, steps)

    def fails(candidate: Plan) -> bool:
        return {3, 57} <= {step.how["phone"] for step in candidate.steps}

    assert [step.how["phone"] for step in shrink(until(plan, 60.0), fails).steps] == [3, 57]
