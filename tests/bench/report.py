"""What a run of tests.bench tells people: tables in Markdown, and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.fanout import RATE
from tests.bench.storm import GAP
from tests.bench.subjects import AIOHTTP, LOOMID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Figures = dict[str, Any]

BEHIND_MS = 300.0
"""Later than this the last event did not come with the pace of the others."""


def tables(result: Figures) -> Iterator[str]:
    """The lines of all tables."""
    show: dict[str, Callable[[Figures], Iterator[str]]] = {
        "fanout": _fanout,
        "storm": _storm,
        "hook_to_phone": _minute,
        "hook_cost": _hook_cost,
        "idle": _idle,
        "start": _start,
        "memory": _memory,
    }
    about = result["about"]
    yield f"{about['cpu']}, {about['cores']} cores, load {about['load_before']:.1f} at the start;"
    yield f"{about['rounds']} rounds, messages of {about['message_bytes']} bytes."
    yield f"{'; '.join(dict.fromkeys(about['versions'].values()))}."
    for name, reason in result["left_out"].items():
        yield f"Left out: {name}: {reason}."
    for section, shown in show.items():
        if section in result:
            yield ""
            yield from shown(result[section])
    if promises := list(_promises(result)):
        yield ""
        yield from _table(["promised", "wanted", "found", ""], promises)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, ["-" * width for width in widths], *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"


def _compared(
    title: str, by_phones: Figures, cell: Callable[[Figures, Figures], str]
) -> Iterator[str]:
    """A table of the servers by number of phones; `cell` is given loomid's figures, too."""
    yield f"**{title}**"
    yield ""
    first = next(iter(by_phones.values()))
    rows = [
        [name, *(_or_failed(cell, by_phones[n][name], by_phones[n]) for n in by_phones)]
        for name in first
    ]
    yield from _table(["phones", *by_phones], rows)
    yield ""


def _or_failed(cell: Callable[[Figures, Figures], str], row: Figures, all_: Figures) -> str:
    loomid = all_.get(LOOMID.name, {"failed": "was not asked for"})
    if "failed" in row:
        return "failed"
    return cell(row, row if "failed" in loomid else loomid)


def _fanout(by_phones: Figures) -> Iterator[str]:
    def full(row: Figures, loomid: Figures) -> str:
        rate = row["full"]["deliveries_s"]
        return f"{rate / 1000:,.1f} ({loomid['full']['deliveries_s'] / rate:.1f}x)"

    def by_cpu(row: Figures, loomid: Figures) -> str:
        rate = row["full"]["deliveries_cpu_s"]
        return f"{rate / 1000:,.0f} ({loomid['full']['deliveries_cpu_s'] / rate:.1f}x)"

    def paced(row: Figures, _: Figures) -> str:
        got = row["paced"]
        times = f"{got['p50_ms']:.2f} / {got['p99_ms']:.2f}"
        short = "" if got["published_s"] > 0.95 * RATE else f" at {got['published_s']:,.0f}/s"
        late = "" if got["behind_ms"] < BEHIND_MS else f", {got['behind_ms'] / 1000:.1f} s behind"
        return times + short + late

    def busy(row: Figures, _: Figures) -> str:
        got = row["full"]
        return f"{got['server_cpu']:.0%} / {got['client_cpu']:.0%}"

    title = "Full speed: thousand deliveries a second (loomid is so many times faster)"
    yield from _compared(title, by_phones, full)
    title = "Full speed: thousand deliveries for a second of the server's processor time"
    yield from _compared(title, by_phones, by_cpu)
    title = f"{RATE:,.0f} events a second: p50 / p99 in ms"
    yield from _compared(title, by_phones, paced)
    title = "Full speed: cores used by the server / by the load client"
    yield from _compared(title, by_phones, busy)


def _storm(by_subject: Figures) -> Iterator[str]:
    phones = max(got.get("phones", 0) for got in by_subject.values())
    yield f"**{phones:,} phones come back at once, each {GAP} events behind**"
    yield ""
    rows = []
    for name, got in by_subject.items():
        if "failed" in got:
            rows.append([name, "failed", "", "", ""])
            continue
        cores = f"{got['server_cpu']:.0%} / {got['client_cpu']:.0%}"
        times = f"{got['seconds']:.2f}", f"{got['stayed_p50_ms']:.1f} / {got['stayed_p99_ms']:.1f}"
        rows.append([name, *times, f"{got['server_cpu_s']:.2f}", cores])
    stayed = "those that stayed: p50 / p99 ms"
    head = ["server", "all caught up, s", stayed, "server's processor time, s", "cores"]
    yield from _table(head, rows)


def _minute(got: Figures) -> Iterator[str]:
    yield f"**A run of 60 tokens a second for {got['seconds']:.0f} s, from the hook**"
    yield ""
    head = ["ms", "p50", "p90", "p99", "max"]
    rows = [
        [name, *(f"{row[key]:.2f}" for key in head[1:])] for name, row in got["latency"].items()
    ]
    yield from _table(head, rows)
    yield ""
    yield (
        f"A phone is woken {got['reads']} times for {got['tokens']} tokens, and gets"
        f" {got['bytes'] / 1024:.1f} KiB; loomid uses {got['core_share']:.1%} of a core."
    )


def _hook_cost(by_state: Figures) -> Iterator[str]:
    yield "**What a hook costs the host, with one busy Python thread there**"
    yield ""
    head = ["µs", "p50", "p99", "p99.9", "max"]
    rows = [[name, *(f"{row[key]:.1f}" for key in head[1:])] for name, row in by_state.items()]
    yield from _table(head, rows)


def _idle(got: Figures) -> Iterator[str]:
    yield f"Idle: {got['memory_mib']:.1f} MiB, {got['core_share']:.2%} of a core."


def _start(got: Figures) -> Iterator[str]:
    yield (
        f"Start with {got['events']:,} events: {got['full_s'] * 1000:.0f} ms until it listens,"
        f" {got['beyond_imports_ms']:.0f} ms beyond Python and imports,"
        f" {got['beyond_empty_ms']:.0f} ms beyond a start with none."
    )


def _memory(by_subject: Figures) -> Iterator[str]:
    yield "**Memory of an idle connected phone**"
    yield ""
    rows = [
        [name, "failed" if "failed" in got else f"{got['kib']:.1f}"]
        for name, got in by_subject.items()
    ]
    yield from _table(["server", "KiB"], rows)


# ── what is promised ────────────────────────────────────────────────────────

RATIOS = (
    (AIOHTTP.name, {"1": 1.5, "10": 5.0, "100": 12.0, "1000": 18.0}),
    ("JetStream", {"1000": 3.0}),
    ("JetStream AckNone", {"1000": 3.0}),
    ("Node ws", {"1000": 20.0}),
    ("mosquitto QoS 1", {"1000": 25.0}),
)
LIMITS = (
    ("storm: all caught up, s", 1.2, ("storm", LOOMID.name, "seconds")),
    ("storm: p99 of those that stayed, ms", 100.0, ("storm", LOOMID.name, "stayed_p99_ms")),
    (
        "1,000 phones x 1,000 events/s: p99, ms",
        150.0,
        ("fanout", "1000", LOOMID.name, "paced", "p99_ms"),
    ),
    ("one phone, 1,000 events/s: p50, ms", 0.6, ("fanout", "1", LOOMID.name, "paced", "p50_ms")),
    ("memory of a phone, KiB", 18.0, ("memory", LOOMID.name, "kib")),
    ("start with 1 M events beyond imports, ms", 100.0, ("start", "beyond_imports_ms")),
    *(
        (f"hook p99, loomid {state}, µs", 50.0, ("hook_cost", state, "p99"))
        for state in ("running", "absent", "stopped")
    ),
)


def _promises(result: Figures) -> Iterator[list[str]]:
    for name, wanted in RATIOS:
        for phones, least in wanted.items():
            where = ("fanout", phones)
            loomid = _found(result, (*where, LOOMID.name, "full", "deliveries_s"))
            other = _found(result, (*where, name, "full", "deliveries_s"))
            if loomid and other:
                found = loomid / other
                told = f"{found:.1f}x", "kept" if found >= least else "missed"
                yield [f"against {name} at {phones}", f"≥ {least:g}x", *told]
    for what, most, path in LIMITS:
        found = _found(result, path)
        if found is not None:
            yield [what, f"≤ {most:g}", f"{found:.3g}", "kept" if found <= most else "missed"]


def _found(result: Figures, path: Sequence[str]) -> float | None:
    got: Any = result
    for key in path:
        got = got.get(key) if isinstance(got, dict) else None
    return got


def plot(result: Figures, path: Path) -> None:
    """Deliveries a second by number of phones, as SVG; needs pygal (the extra `dev`)."""
    import pygal

    by_phones = result["fanout"]
    chart = pygal.Line(
        logarithmic=True,
        js=(),
        width=900,
        height=500,
        title="Deliveries a second by number of connected phones",
        legend_at_bottom=True,
        legend_at_bottom_columns=3,
        style=pygal.style.CleanStyle(font_family="sans-serif"),
    )
    chart.x_labels = list(by_phones)
    for name in next(iter(by_phones.values())):
        rows = [row[name] for row in by_phones.values()]
        chart.add(name, [None if "failed" in r else r["full"]["deliveries_s"] for r in rows])
    path.write_bytes(chart.render())
