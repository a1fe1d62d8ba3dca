"""docs/metrics.md lists what there is, and says what it means; and so does the registry."""

from __future__ import annotations

import re
from pathlib import Path

from loomid.metrics import METRICS, PREFIX
from tests.support.loomictl import loomictl
from tests.support.measured import parsed

DOC = (Path(__file__).parents[2] / "docs/metrics.md").read_text()


def table() -> list[tuple[str, ...]]:
    lines = [line for line in DOC.splitlines() if line.startswith(f"| `{PREFIX}")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


def test_the_table_is_that_of_the_code():
    """Both directions: the rows are equal, in their order."""
    assert table() == [
        (
            f"`{PREFIX}{metric.name}`",
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.labels),
            metric.help,
        )
        for metric in METRICS
    ]


async def test_what_a_scrape_finds_is_in_the_table(world):
    async with world.paired() as (_, connection):
        await world.online()
        world.turn()
        await connection.wait_type("run.completed")
        families = parsed((await world.measure()).text)
    rows = {name.strip("`").removesuffix("_total"): rest for name, *rest in table()}
    assert {family.name for family in families} == set(rows)
    for family in families:
        kind, labels, meaning = rows[family.name]
        assert (family.type, family.documentation) == (kind, meaning)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(re.findall(r"`(\w+)`", labels))


def test_names_are_good_ones():
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", metric.name)
        assert metric.help.endswith(".")
        assert "|" not in metric.help


def test_loomictl_metrics_without_a_daemon(tmp_path):
    assert loomictl(tmp_path, "metrics").returncode == 69
