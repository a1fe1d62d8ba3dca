"""Which gateway processes there are, who speaks for each gateway, and what they told.

No I/O and no clock: time comes as an argument, silence is counted in ticks (so that a
suspended machine or a stopped loomid declares nobody dead). Facts become arrivals here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from loomid import hermes_words, homes, processes, wire
from loomid.lmp import facts
from loomid.lmp.facts import Arrival, GatewayDown, GatewayForgotten, GatewayLost, GatewayUp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RECALLS = wire.UNSENT_RESULTS // 4
"""How many results a shim is asked for at once: it drops those beyond what it keeps."""
LOST_BEATS = int(120 / wire.BEAT_S)
GONE_CHECKS = 2  # a process seen gone once may still have facts in the socket
MAX_BOOTS = 256
MAX_N = 2**53
MAX_TIME = 1e12  # seconds: what lies beyond is no time, and differences of it are no numbers
MAX_ODDITIES = 200
MAX_REASONS = 32
ID_MAX = 128
TEXT_MAX = 512
PATH_MAX = 4096


@dataclass(frozen=True, slots=True)
class GatewayState:
    """One gateway as its newest process told it; `since`: online or offline since then."""

    gateway_id: str
    boot: str
    name: str
    hermes_version: str
    shim_version: str
    features: list[str]
    home_key: str | None
    home: str | None
    """Its directory, if it is one of this machine."""
    obstacle: str | None
    """Why Hermes' database there could not be read when it came."""
    online: bool
    met: bool
    """It was online since our start; else `since` is when it came, before that."""
    since: float
    pid: int
    dropped: dict[str, int]
    """Facts that its process lost, by reason."""


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """What came over the link since our start, of all gateways together."""

    taken: Mapping[str, int]
    """Facts that became arrivals, by kind; our own about the link among them."""
    oddities: Mapping[str, int]
    """What was dropped or made no sense, by kind; `fact_again`: sent again, and known."""
    lost: Mapping[str, int]
    """Facts that shims say they lost, by their reason."""
    unacknowledged: int
    """Numbers of facts that are here but not yet on disk."""


@dataclass(slots=True, eq=False)
class Boot:
    """One process of a gateway."""

    gateway_id: str
    boot: str
    acked: int = 0  # on disk
    seen: int = 0  # highest number that came, taken or not
    delivered: int = 0  # highest number that became an arrival
    up: GatewayUp | None = None  # what it said of itself, to us or to a loomid before
    met: bool = False  # it said hello to us
    obstacle: str | None = None  # why its database, on this machine, cannot be read
    peer: bytes | None = None  # where it was heard last
    first_at: float = 0.0
    since: float = 0.0
    online: bool = False  # its link is alive
    replaced: bool = False  # a newer process speaks for the gateway
    superseded: bool = False  # … and has said what is alive
    gone: int = 0  # times its process was found gone
    missed: int = 0  # ticks since it was heard
    dropped: dict[str, int] = field(default_factory=dict)  # facts it lost, by reason
    lost: bool = False
    recalls: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, RECALLS))


@dataclass(slots=True)
class Roster:
    """All processes known, and the queue of what arrived from them."""

    acked: Mapping[tuple[str, str], int]
    known: Iterable[Arrival] = ()
    """What processes said of themselves to a loomid before us, the last of a gateway last."""
    started: Callable[[int], float] = processes.process_started
    arrivals: deque[Arrival] = field(default_factory=deque)
    oddities: Counter[str] = field(default_factory=Counter)
    """What was dropped or made no sense, by kind."""
    _taken: Counter[str] = field(default_factory=Counter)
    _lost: Counter[str] = field(default_factory=Counter)
    _boots: dict[tuple[str, str], Boot] = field(default_factory=dict)
    _current: dict[str, Boot] = field(default_factory=dict)
    _at: float = 0.0

    def __post_init__(self) -> None:
        for (gateway_id, boot), n in self.acked.items():
            self._boots[gateway_id, boot] = Boot(gateway_id, boot, n, n, n)
        for one in self.known:
            who = one.gateway_id, one.boot
            known = self._current[one.gateway_id] = self._boots.setdefault(who, Boot(*who))
            known.up, known.first_at, known.since = one.fact, one.at, one.at

    # ── who ──

    def hello(
        self, peer: bytes, hello: wire.Hello, now: float, obstacle: str | None = ""
    ) -> tuple[Boot, list[Boot]]:
        """Whose hello it is (`replaced` if a newer process lives), and whom it replaced.
        `obstacle`: why no database of Hermes can be read where it has its home."""
        key = hello.gateway_id, hello.boot
        boot = self._boots.get(key)
        if boot is None:
            boot = self._boots[key] = Boot(*key)
        boot.up, boot.met, boot.peer = self._up(hello, obstacle is None), True, peer
        boot.obstacle = obstacle if boot.up.local else None
        boot.missed = boot.gone = 0
        boot.first_at = boot.first_at or now
        current = self._current.get(boot.gateway_id)
        rival = current if current is not boot and current is not None else None
        boot.replaced = rival is not None and rival.online and not _newer(boot, rival)
        if not boot.online or rival:
            boot.since = now
        boot.online = True
        if boot.replaced:
            return boot, []
        boot.lost = boot.superseded = False
        self._current[boot.gateway_id] = boot
        self._arrive(boot, 0, now, now, boot.up)
        if rival is None or rival.replaced:
            return boot, []
        rival.replaced = True
        return boot, [rival]

    def _up(self, hello: wire.Hello, readable: bool) -> GatewayUp:
        local = hello.pid_started > 0 and self.started(hello.pid) == hello.pid_started
        return GatewayUp(
            name=hello.name or homes.name_of(hello.home),
            hermes_version=hello.hermes_version,
            shim_version=hello.shim_version,
            features=hello.features,
            home_key=hello.home_key,
            pid=hello.pid,
            pid_started=hello.pid_started,
            local=local,
            ops=hello.ops,
            home=hello.home,
            readable=local and readable,
        )

    def objection(self, hello: wire.Hello) -> str | None:
        """Why a hello cannot be taken; None: it can."""
        if not (0 < len(hello.gateway_id) <= ID_MAX and 0 < len(hello.boot) <= ID_MAX):
            return "hello without ids"
        if ":" in hello.gateway_id + hello.boot:  # it parts them in ids of commands
            return "hello with odd ids"
        # Every phone is told of a gateway, and again whenever it comes and goes.
        texts = [hello.name, hello.hermes_version, hello.shim_version]
        texts += [hello.home_key or "", *hello.hooks, *hello.ops]
        many = max(len(hello.hooks), len(hello.ops)) > ID_MAX or len(hello.home) > PATH_MAX
        if many or any(len(text) > TEXT_MAX for text in texts):
            return "hello too long"
        if (hello.gateway_id, hello.boot) in self._boots:
            return None
        self._forget_some()
        return "too many processes" if len(self._boots) >= MAX_BOOTS else None

    def heard(self, boot: Boot, peer: bytes) -> None:
        """Anything came from it; a live connection wins over one that said hello later."""
        boot.peer, boot.missed = peer, 0

    def online(self, gateway_id: str) -> Boot | None:
        """The process that takes commands."""
        boot = self._current.get(gateway_id)
        return boot if boot is not None and boot.online else None

    def replaced(self, gateway_id: str) -> list[Boot]:
        """Processes of a gateway that live but do not speak for it."""
        boots = self._boots.values()
        return [b for b in boots if b.gateway_id == gateway_id and b.replaced and b.online]

    def forget(self, gateway_id: str, name: str, now: float) -> bool:
        """Know nothing of a gateway any more, until it says hello again; False: it is online."""
        boots = [boot for boot in self._boots.values() if boot.gateway_id == gateway_id]
        if any(boot.online for boot in boots):
            return False
        for boot in boots:
            if not boot.lost:
                self._lose(boot, now)
            del self._boots[gateway_id, boot.boot]
        self._current.pop(gateway_id, None)
        self._arrive(Boot(gateway_id, ""), 0, now, now, GatewayForgotten(name))
        return True

    def states(self) -> list[GatewayState]:
        """Every gateway that ever said hello."""
        return [_state(boot) for boot in self._current.values()]

    def figures(self) -> LinkFigures:
        """Counts of all that came."""
        open_numbers = sum(max(0, b.delivered - b.acked) for b in self._boots.values())
        return LinkFigures(self._taken, self.oddities, self._lost, open_numbers)

    def lose_facts(self, boot: Boot, dropped: dict[str, int]) -> None:
        """Its shim says how many facts it has lost so far, by reason."""
        for reason, count in dropped.items():
            known = reason in self._lost or len(self._lost) < MAX_REASONS
            more = max(0, count - boot.dropped.get(reason, 0))
            self._lost[reason if known and len(reason) <= ID_MAX else "other"] += more
        boot.dropped = dropped

    def down(self, boot: Boot, now: float) -> None:
        """It said bye, or is silent."""
        if not boot.online:
            return
        boot.online, boot.since = False, now
        if not boot.replaced:
            # Of a replaced process nobody asks; its gateway is online by the newer one.
            self._arrive(boot, 0, now, now, GatewayDown())

    def tick(self, now: float) -> list[Boot]:
        """One beat has passed; returns those that went offline by it."""
        fallen = []
        for boot in list(self._boots.values()):
            if boot.lost:
                continue
            boot.missed += 1
            if not boot.met and boot.missed == wire.BEATS_MISSED + 1:
                # It has not come back since we started: phones may think that it is there.
                self._arrive(boot, 0, now, now, GatewayDown())
            boot.gone = boot.gone + 1 if self._is_gone(boot) else 0
            silent = boot.missed > wire.BEATS_MISSED
            if boot.online and (silent or boot.gone >= GONE_CHECKS):
                self.down(boot, now)
                fallen.append(boot)
            gone = boot.gone >= GONE_CHECKS or boot.missed > LOST_BEATS
            if gone or (boot.superseded and not boot.online):
                self._lose(boot, now)
        return fallen

    def _is_gone(self, boot: Boot) -> bool:
        up = boot.up
        return up is not None and up.local and self.started(up.pid) != up.pid_started

    def _lose(self, boot: Boot, now: float) -> None:
        self.down(boot, now)
        boot.lost = True
        self._arrive(boot, 0, now, now, GatewayLost())

    def _supersede(self, newer: Boot, now: float) -> None:
        """All facts before its inventory are taken: what older ones ran is over, unless
        such a process still talks; then it is over when that falls silent."""
        for boot in list(self._boots.values()):
            if boot.gateway_id == newer.gateway_id and boot is not newer and not boot.lost:
                boot.superseded = True
                if not boot.online or self._is_gone(boot):
                    self._lose(boot, now)

    def _forget_some(self) -> None:
        if len(self._boots) < MAX_BOOTS:
            return
        for key, boot in list(self._boots.items()):
            if boot.lost and boot.delivered <= boot.acked:
                del self._boots[key]
                if self._is_current(boot):
                    del self._current[boot.gateway_id]

    def _is_current(self, boot: Boot) -> bool:
        return self._current.get(boot.gateway_id) is boot

    # ── what ──

    def facts(self, boot: Boot, entries: list[list[Any]], now: float) -> bool:
        """Take facts in, each number once; True: some are done with, without a commit."""
        for entry in entries:
            if not _is_fact(entry):
                self.oddities["fact_shape"] += 1
                continue
            n, kind, body = entry[0], entry[2], entry[3]
            t = float(entry[1])
            if n <= boot.seen:
                self.oddities["fact_again"] += 1  # sent again after a reconnect
                continue
            boot.seen = n
            fact = self._parse(kind, body)
            if fact is not None:
                boot.delivered = n
                self._arrive(boot, n, t, now, fact)
                if kind == "inventory" and self._is_current(boot):
                    self._supersede(boot, now)
        if boot.acked >= boot.delivered and boot.seen > boot.acked:
            boot.acked = boot.seen
            return True
        return False

    def _parse(self, kind: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - one of many types
        if kind not in wire.FACTS:
            # A newer shim may know more; its facts are not asked for again.
            known = len(self.oddities) < MAX_ODDITIES
            self.oddities[f"unknown fact {kind:.40}" if known else "unknown fact"] += 1
            return None
        try:
            return facts.parse(kind, hermes_words.body_of(kind, body))
        except Exception:  # noqa: BLE001 - whatever it is, it must not hold up the facts behind it
            self.oddities[f"invalid fact {kind}"] += 1
            return None

    def ack(self, gateway_id: str, boot: str, n: int) -> Boot | None:
        """n is on disk; returns whom to tell."""
        known = self._boots.get((gateway_id, boot))
        if known is None or n <= known.acked:
            return None
        # Invalid facts after the last arrival go with it.
        known.acked = known.seen if n >= known.delivered else n
        return known

    def _arrive(self, boot: Boot, n: int, t: float, now: float, fact: object) -> None:
        self._taken[facts.KINDS[type(fact)]] += 1
        self._at = max(self._at, now)  # never goes back, whatever the clock does
        self.arrivals.append(Arrival(boot.gateway_id, boot.boot, n, t, self._at, fact))


def _newer(boot: Boot, than: Boot) -> bool:
    """By the start of the process, where both tell it; else by the first hello."""
    mine, other = (b.up.pid_started if b.up else 0.0 for b in (boot, than))
    if mine > 0 and other > 0 and mine != other:
        return mine > other
    return boot.first_at >= than.first_at


def _is_fact(entry: list[Any]) -> bool:
    match entry:
        case [int(n), float() | int() as t, str(), dict(), *_]:
            return type(n) is int and 0 < n < MAX_N and type(t) is not bool and 0 <= t < MAX_TIME
        case _:
            return False


def _state(boot: Boot) -> GatewayState:
    up = boot.up
    assert up is not None, "only a hello makes a process current"  # noqa: S101 - invariant
    return GatewayState(
        boot.gateway_id,
        boot.boot,
        up.name,
        up.hermes_version,
        up.shim_version,
        up.features,
        up.home_key,
        up.home if up.home and up.local else None,
        boot.obstacle or None,
        boot.online,
        boot.met,
        boot.since,
        up.pid,
        boot.dropped,
    )
