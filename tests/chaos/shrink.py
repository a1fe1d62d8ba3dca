"""Making a plan that fails smaller, while it still fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.chaos.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.plan import Step

AFTER_S = 3.0


def until(plan: Plan, seconds: float) -> Plan:
    """The plan up to what failed at that time."""
    end = min(plan.seconds, seconds + AFTER_S)
    return replace(plan, seconds=end, steps=tuple(s for s in plan.steps if s.at <= end))


def shrink(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Leave out halves, quarters, … and single steps, wherever it fails without them.

    `fails` may be wrong for bad luck (another schedule): then a step too many stays.
    """
    steps = list(plan.steps)
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer: list[Step] = steps[:at] + steps[at + size :]
            if fails(replace(plan, steps=tuple(fewer))):
                steps = fewer
            else:
                at += size
        size //= 2
    return replace(plan, steps=tuple(steps))
