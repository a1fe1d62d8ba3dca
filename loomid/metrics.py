"""What is measured: one table, read from the parts' own state when somebody asks.

A new metric is one line in METRICS and one in docs/metrics.md. `read` gives a number, or a
number for each value of the label (for each pair of values), or a Histogram. Counters
begin at 0 with each start. No label may hold a secret, a text, or anything unbounded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loomid import __version__
from loomid.errors import StorageFailing
from loomid.histogram import Histogram
from loomid.lmp import frames

if TYPE_CHECKING:
    from prometheus_client import Metric

    from loomid.desk import DeviceStatus
    from loomid.files import Files
    from loomid.gateway import Gateways
    from loomid.hub import Hub
    from loomid.log import Log
    from loomid.pump import Pump
    from loomid.roster import LinkFigures

PREFIX = "loomid_"
_SENT_AGAIN = "fact_again"
_JOINED = "joined"

Reading = float | Mapping[str, float] | Mapping[tuple[str, str], float] | Histogram


@dataclass(frozen=True)
class Parts:
    """The parts at the moment of asking."""

    hub: Hub
    log: Log
    gateways: Gateways
    pump: Pump
    files: Files
    kept: tuple[int, int] = (0, 0)
    """Files and their bytes, where they were counted: for all metrics alone."""

    @cached_property
    def devices(self) -> list[DeviceStatus]:
        """All paired devices."""
        return self.hub.desk.devices()

    @cached_property
    def link(self) -> LinkFigures:
        """What came over the link."""
        return self.gateways.figures()

    @cached_property
    def folded(self) -> Counter[str]:
        """Facts that came to no event of their own, by reason."""
        return sum((runs.dropped for runs in self.pump.runs.values()), Counter())


@dataclass(frozen=True)
class Measure:
    """One metric. By its name it is a counter (`_total`), a histogram (`_seconds`) or a gauge."""

    name: str
    labels: tuple[str, ...]
    help: str
    read: Callable[[Parts], Reading]

    @property
    def kind(self) -> str:
        """As Prometheus calls it."""
        kinds = {"total": "counter", "seconds": "histogram"}
        return kinds.get(self.name.rpartition("_")[2], "gauge")


METRICS: tuple[Measure, ...] = (
    Measure(
        "info",
        ("version",),
        "Always 1; says which loomid this is.",
        lambda _: {__version__: 1},
    ),
    Measure(
        "phones_connected",
        (),
        "Paired phones whose hello was right and whose connection stands.",
        lambda now: sum(one.connected for one in now.devices),
    ),
    Measure(
        "phone_lag_events",
        ("device",),
        "Events that are visible and not yet handed to the socket of a connected phone, by"
        " device_id; none for a phone that is away.",
        lambda now: {one.device.device_id: one.lag for one in now.devices if one.connected},
    ),
    Measure("devices", (), "Paired devices, connected or not.", lambda now: len(now.devices)),
    Measure(
        "hellos_total",
        ("outcome",),
        "Hellos that were right: paired (with a token), resumed (nothing missed) or truncated"
        " (begun anew). Those that were wrong are in connections_closed_total.",
        lambda now: now.hub.tally.hellos,
    ),
    Measure(
        "reconnects_total",
        ("cause",),
        "Hellos of known devices, by how the device's connection before that ended;"
        " 'not known' for the first since the start.",
        lambda now: now.hub.tally.reconnects,
    ),
    Measure(
        "connections_closed_total",
        ("code", "cause"),
        "Connections that ended, by close code and cause; codes of a phone's own making are"
        " 'other'.",
        lambda now: now.hub.tally.closed,
    ),
    Measure(
        "connections_refused_total",
        ("reason",),
        "Connections that had to go before a right hello: yielded (to a newer one), too_much"
        " (sent more than a stranger may), tls (not agreed on), no_descriptors.",
        lambda now: now.hub.tally.refused,
    ),
    Measure(
        "frames_rate_limited_total",
        (),
        "Frames of phones that were answered with rate_limited.",
        lambda now: now.hub.rate_limited,
    ),
    Measure(
        "requests_total",
        ("type", "outcome"),
        "Requests of phones that were answered, by type and 'ok' or the error's code.",
        lambda now: now.hub.tally.requests,
    ),
    Measure(
        "events_total",
        ("type",),
        "Events that became visible (stored, and in the window), by type.",
        lambda now: now.log.stamps.events,
    ),
    Measure(
        "events_odd_total",
        ("reason",),
        "Events that phones were not told as they are: unencodable (a placeholder was told), or"
        " unreadable (not found again at the start).",
        lambda now: now.log.odd,
    ),
    Measure(
        "facts_total",
        ("kind",),
        "Facts taken in, by kind; gateway.* are loomid's own about the link.",
        lambda now: now.link.taken,
    ),
    Measure(
        "facts_dropped_total",
        ("by", "reason"),
        "Facts that came to nothing, by whom: shim (lost before they were sent, as its"
        " heartbeats tell, counted from its start), link (not understood or out of place),"
        " fold (late, repeated, or of no use to phones).",
        lambda now: dict(_facts_dropped(now)),
    ),
    Measure(
        "deltas_coalesced_total",
        (),
        "Deltas that went out in the frame of another delta.",
        lambda now: now.folded[_JOINED],
    ),
    Measure(
        "facts_resent_total",
        (),
        "Facts that came again after a lost connection and were known already.",
        lambda now: now.link.oddities.get(_SENT_AGAIN, 0),
    ),
    Measure(
        "facts_unacknowledged",
        (),
        "Facts that are here and not yet acknowledged to their shim, at most.",
        lambda now: now.link.unacknowledged,
    ),
    Measure(
        "gateways",
        ("state",),
        "Hermes gateways that ever connected: online or offline.",
        lambda now: _gateways(one.online for one in now.gateways.states()),
    ),
    Measure(
        "gateways_refused",
        (),
        "Gateways whose plugin speaks another version of the link.",
        lambda now: len(now.gateways.incompatible()),
    ),
    Measure(
        "commit_seconds",
        (),
        "From handing a batch (events, facts, acknowledgements) to the log until it is stored"
        " and visible, retries included; once a batch.",
        lambda now: now.log.stamps.commits,
    ),
    Measure(
        "hook_to_phone_seconds",
        (),
        "From the hook in Hermes' process to the first write to any phone's socket; each event"
        " once, if a hook caused it and a phone was connected. The time for which loomid held it"
        " back on purpose (to join deltas, to wait for what may still come) is not in it.",
        lambda now: now.log.stamps.hook_to_phone,
    ),
    Measure(
        "storage_failing",
        (),
        "1 while events cannot be stored, else 0.",
        lambda now: int(now.log.health.failing_since is not None),
    ),
    Measure(
        "window_events",
        (),
        "Events in memory, for phones that come back.",
        lambda now: now.log.held[0],
    ),
    Measure("window_bytes", (), "Bytes of those events.", lambda now: now.log.held[1]),
    Measure(
        "approvals_pending",
        (),
        "Approvals that wait for a decision.",
        lambda now: len(now.log.projection.pending(frames.ApprovalRequired)),
    ),
    Measure(
        "questions_pending",
        (),
        "Questions that wait for an answer.",
        lambda now: len(now.log.projection.pending(frames.QuestionRequired)),
    ),
    Measure(
        "runs_live",
        (),
        "Runs without an end.",
        lambda now: len(now.log.projection.live_runs()),
    ),
    Measure(
        "transfers_total",
        ("door", "outcome"),
        "Requests at the doors for files. Of 'upload': begun (also again, while nothing of it has"
        " come), resumed, partial (some bytes came, not all), finished, or why not; of 'files':"
        " given, unchanged (the phone has it), or why not. Of both: broken_off.",
        lambda now: now.hub.tally.transfers,
    ),
    Measure(
        "transfer_bytes_total",
        ("direction",),
        "Bytes of files over HTTP: in (from phones) and out (to them).",
        lambda now: now.hub.tally.file_bytes,
    ),
    Measure("files_kept", (), "Files that are kept.", lambda now: now.kept[0]),
    Measure("files_kept_bytes", (), "Bytes of those files.", lambda now: now.kept[1]),
    Measure(
        "files_removed_total",
        ("reason",),
        "Files that went: evicted (others needed the room), or unused (for long, or nobody may"
        " see them any more).",
        lambda now: now.files.removed,
    ),
)


def _facts_dropped(now: Parts) -> Iterator[tuple[tuple[str, str], int]]:
    for reason, count in now.link.lost.items():
        yield ("shim", reason), count
    link: Counter[str] = Counter()
    for kind, count in now.link.oddities.items():
        # What a shim calls a fact that is not known here may be anything.
        link["unknown fact" if kind.startswith("unknown fact") else kind] += count
    for by, reasons in (("link", link), ("fold", now.folded)):
        for reason, count in reasons.items():
            if reason not in (_SENT_AGAIN, _JOINED):
                yield (by, reason), count


def _gateways(online: Iterable[bool]) -> dict[str, int]:
    counts = Counter(online)
    return {"online": counts[True], "offline": counts[False]}


class Metrics:
    """Answers from the state of the moment."""

    def __init__(self, hub: Hub, log: Log, gateways: Gateways, pump: Pump, files: Files) -> None:
        self._parts = partial(Parts, hub, log, gateways, pump, files)
        self._files = files
        self._kept = 0, 0

    async def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        # Late: a daemon that nobody asks need not carry it. In a thread: reading the files
        # of a package may take a tenth of a second, in which no phone would be served.
        await asyncio.to_thread(import_module, "prometheus_client")
        from prometheus_client import CollectorRegistry, generate_latest

        with contextlib.suppress(StorageFailing):  # another metric says so
            self._kept = await self._files.index.usage()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks of a collector."""
        now = self._parts(self._kept)
        for metric in METRICS:
            yield _family(metric, metric.read(now))

    def figures(self) -> dict[str, Any]:
        """Those that help an owner, for `loomictl status`."""
        now = self._parts()
        stamps = now.log.stamps
        return {
            "events": stamps.events.total(),
            "commit": _summary(stamps.commits),
            "hook_to_phone": _summary(stamps.hook_to_phone),
            "facts_lost": dict(now.link.lost),
            "facts_unacknowledged": now.link.unacknowledged,
            "events_unencodable": now.log.odd["unencodable"],
            "deltas_coalesced": now.folded[_JOINED],
            "reconnects": dict(now.hub.tally.reconnects),
        }


def _summary(seen: Histogram) -> dict[str, float | None]:
    """`p50_s` and `p99_s` are the bucket's bound above; null: none, or beyond all bounds."""
    bounds = {"p50_s": seen.within(0.5), "p99_s": seen.within(0.99)}
    return {"count": seen.count} | {k: None if v == float("inf") else v for k, v in bounds.items()}


def _family(metric: Measure, reading: Reading) -> Metric:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    name, labels = PREFIX + metric.name, metric.labels
    if isinstance(reading, Histogram):
        buckets = [
            ("+Inf" if bound == float("inf") else str(bound), count)
            for bound, count in reading.buckets()
        ]
        return HistogramMetricFamily(name, metric.help, buckets=buckets, sum_value=reading.sum)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(name, metric.help, labels=labels)
    if isinstance(reading, Mapping):
        for values, value in reading.items():
            family.add_metric([values] if isinstance(values, str) else list(values), value)
    else:
        family.add_metric([], reading)
    return family
