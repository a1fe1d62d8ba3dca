"""What a daemon of the tests measures, as a scraper reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import Metric

    from tests.support.daemon import Daemon

WAIT_S = 10.0


def parsed(text: str) -> list[Metric]:
    """The families in a text of Prometheus' format."""
    return list(text_string_to_metric_families(text))


class Measured:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parsed(text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        """The value of a metric (`loomid_` left out) with these labels; 0: there is none."""
        return self.samples.get((f"loomid_{name}", frozenset(labels.items())), 0.0)

    def by(self, label: str, name: str) -> dict[str, float]:
        """The values of a metric with one label, by that."""
        found = self.samples.items()
        return {dict(labels)[label]: v for (n, labels), v in found if n == f"loomid_{name}"}


async def measure(daemon: Daemon) -> Measured:
    """Scrape a daemon."""
    return Measured(await asyncio.to_thread(daemon.call, "GET", "/metrics"))


async def measured(
    daemon: Daemon, condition: Callable[[Measured], object], within_s: float = WAIT_S
) -> Measured:
    """Scrape until a condition holds."""
    end = asyncio.get_running_loop().time() + within_s
    while not condition(seen := await measure(daemon)):
        assert asyncio.get_running_loop().time() < end, seen.text
        await asyncio.sleep(0.02)
    return seen
