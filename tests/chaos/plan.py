"""What is to happen when: made from a seed before anything runs, and kept in a file.

The plan is the same for a seed; what it meets is not, for the kernel decides who runs when.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PHONES = 6
HERMES = "hermes"
BACKS = ("right",) * 9 + ("lower",) * 4 + ("low", "high", "high", "none", "none", "absurd")
PER_SECOND = {
    "vanish": 0.3,
    "stall": 0.06,
    "double": 0.03,
    "send": 1.2,
    "repeat": 0.5,
    "approve": 2.0,
    "answer": 1.5,
    "cancel": 0.15,
    "list": 0.05,
}
"""How often each thing happens to a phone, or is done by one."""


@dataclass(frozen=True, slots=True)
class Step:
    """At so many seconds, do that."""

    at: float
    do: str
    how: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """All steps, in order of time."""

    seed: int
    seconds: float
    steps: tuple[Step, ...]
    hermes: str = ""
    """A release of Hermes instead of the stand-in."""

    def save(self, path: Path) -> None:
        """One step a line."""
        head = {"seed": self.seed, "seconds": self.seconds, "hermes": self.hermes}
        lines = [json.dumps(head), *(json.dumps(asdict(step)) for step in self.steps)]
        path.write_text("\n".join(lines) + "\n")

    @classmethod
    def load(cls, path: Path) -> Plan:
        """What `save` wrote."""
        head, *lines = map(json.loads, path.read_text().splitlines())
        return cls(steps=tuple(Step(**line) for line in lines), **head)


def generate(seed: int, seconds: float, kills: int, host_kills: int, hermes: str = "") -> Plan:
    """A plan with so many SIGKILLs of loomid and of the host in it."""
    rng = Random(seed)
    steps = [*_daemon(rng, seconds, kills), *_host(rng, seconds, host_kills)]
    for what, rate in PER_SECOND.items():
        times = [rng.uniform(0.5, seconds) for _ in range(round(rate * seconds))]
        steps += [Step(at, what, _of_phone(rng, what)) for at in times]
    return Plan(seed, seconds, tuple(sorted(steps, key=lambda step: step.at)), hermes)


def _times(rng: Random, seconds: float, count: int) -> list[float]:
    """Anywhere, but about one in each part: what is killed again and again gets no work done."""
    part = (seconds - 2.0) / max(count, 1)
    return [2.0 + part * (i + rng.random()) for i in range(count)]


def _daemon(rng: Random, seconds: float, kills: int) -> list[Step]:
    steps: list[Step] = []
    rare = ["power"] * max(kills // 25, kills > 3) + ["swap"] * max(kills // 30, kills > 3)
    left = kills - len(rare)
    plain: list[int] = []
    while left > 0:
        again = rng.choice((0, 0, 0, 0, 1, 2)) if left > 3 else 0
        plain.append(again)
        left -= 1 + again
    kinds: list[Any] = [*rare, *plain[1:]]
    rng.shuffle(kinds)
    kinds[:0] = plain[:1]
    backup = True  # at the first kill, or there would be no yesterday
    for at, kind in zip(_times(rng, seconds, len(kinds)), kinds, strict=True):
        down = rng.choice((0.0, 0.0, 0.1, 0.5, 2.0))
        if isinstance(kind, str):
            steps.append(Step(at, kind, {"down": down}))
            continue
        delays = [round(rng.uniform(0.05, 1.2), 3) for _ in range(kind)]
        steps.append(Step(at, "kill", {"down": down, "again": delays, "backup": backup}))
        backup = rng.random() < 0.2
    stops = _times(rng, seconds, max(round(seconds / 30), 1))
    steps += [Step(at, "stop", {"for": rng.choice((0.05, 0.5, 2.0, 6.0))}) for at in stops]
    restarts = _times(rng, seconds, max(round(seconds / 120), 1))
    return steps + [
        Step(at, "restart", {"hurry": rng.choice((None, 0.05, 0.3))}) for at in restarts
    ]


def _host(rng: Random, seconds: float, kills: int) -> list[Step]:
    steps = [
        Step(at, "host_kill", {"down": rng.choice((0.0, 0.3, 1.0, 3.0))})
        for at in _times(rng, seconds, kills)
    ]
    stops = _times(rng, seconds, max(round(seconds / 45), 1))
    return steps + [
        Step(at, "host_stop", {"for": rng.choice((0.05, 0.5, 3.0, 10.0))}) for at in stops
    ]


def _of_phone(rng: Random, what: str) -> dict[str, Any]:
    phone = rng.randrange(PHONES)
    how: dict[str, Any] = {"phone": phone, "pick": rng.randrange(10_000) / 10_000}
    match what:
        case "vanish":
            how |= {
                "abort": rng.random() < 0.7,
                "away": rng.choice((0.0, 0.1, 1.0, 3.0, 8.0, 20.0)),
                "back": rng.choice(BACKS),
                "snapshot": rng.random() < 0.75,
            }
        case "stall":
            how |= {"for": rng.choice((0.5, 2.0, 8.0)), "abort": rng.random() < 0.5}
        case "send":
            how |= {"new": rng.random() < 0.3, "twice": rng.random() < 0.2}
        case "approve":
            others = rng.sample(range(PHONES), rng.choice((1, 1, 2, 3)))
            choices = [rng.choice(("once", "session", "deny", "deny")) for _ in others]
            how |= {"phones": others, "choices": choices, "twice": rng.random() < 0.3}
        case "answer":
            others = rng.sample(range(PHONES), rng.choice((1, 1, 2, 3)))
            hows = [rng.choice(("right", "right", "right", "wrong", "cancel")) for _ in others]
            how |= {"phones": others, "hows": hows, "twice": rng.random() < 0.3}
            how |= {"late": rng.random() < 0.2}
    return how
