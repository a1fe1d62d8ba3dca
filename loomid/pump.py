"""The one loop from arrivals to events: take, fold, store, acknowledge.

While one commit is under way arrivals pile up and form the next batch; there is no
timer. It knows nothing of phones.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from loomid.catchup import CatchUp
from loomid.errors import LoomiError
from loomid.lmp.facts import Arrival, GatewayForgotten, Tick, Unheard
from loomid.lmp.runs import Outcome, Runs
from loomid.log import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.gateway import Gateways
    from loomid.lmp.folding import FileSeen
    from loomid.log import Log
    from loomid.store import Store

log = logging.getLogger("loomid.pump")

TAKE = 512
ASK_S = 2.0
MIN_PAUSE_S = 0.001
LOOK_S = 20.0
"""The clock is looked at so often, whatever happens."""
UNHEARD_S = 60.0
"""If nothing was looked at for longer, loomid was stopped, its machine asleep, the clock set, or
the disk took nothing."""
CATCH_UP_S = 150.0
"""How long a gateway is waited for after a start; by then one that is gone counts as lost."""


class Pump:
    """Folds the facts of all gateways; `runs` has what each of them is doing."""

    def __init__(
        self,
        gateways: Gateways,
        log: Log,
        store: Store,
        key: bytes,
        clock: Callable[[], float],
        *,
        want: Callable[[str, FileSeen], None] = lambda *_: None,
    ) -> None:
        self.runs: dict[str, Runs] = {}
        self.ready = asyncio.Event()
        """The stored facts are folded again: `runs` is what it was before the restart."""
        self.farewells: dict[str, asyncio.Event] = {}
        """Who waits until a gateway that is being forgotten is."""
        self._gateways = gateways
        self._log = log
        self._store = store
        self._key = key
        self._clock = clock
        self._want = want  # takes in a file; what became of it arrives as a fact
        self._at = 0.0  # the time of the fold; never goes back, but facts may be older: CatchUp
        self._looked = 0.0  # when the clock was looked at last
        self._ahead = 0.0  # how far it is ahead of a clock that was set back
        self._catch_up = CatchUp()
        self._catch_up_by = 0.0
        self._ended: dict[str, list[str]] = {}
        self._asked: dict[str, float] = {}
        self._asking: set[str] = set()
        self._storing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Pump until cancelled."""
        await self._refold()
        self.ready.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._log.tend())
            while True:
                await self._gateways.arrived(self._pause())
                await self._step(group)
                self._ask(group)

    async def _refold(self) -> None:
        """Fold the facts of what was alive again; what they caused is stored already."""
        with self._store.opening():
            self._ended = await self._store.ended()
            kept = await self._store.facts()
        for arrival, _ in kept:
            self._at = max(self._at, arrival.at)
            self._catch_up.stored(arrival)
            self._fold(arrival)
        for runs in self.runs.values():
            runs.dropped.clear()  # counted by the loomid that they came to
        self._catch_up.since = self._looked = self._now()
        self._catch_up_by = self._catch_up.since + CATCH_UP_S

    async def _step(self, group: asyncio.TaskGroup) -> None:
        """Fold what has arrived, while what was folded before is being stored."""
        batch = Batch()
        self._look(batch)
        arrivals = self._gateways.take(TAKE)
        for arrival in arrivals:
            timely = self._timely(arrival)
            batch.add(timely, self._fold(timely))
            if type(arrival.fact) is GatewayForgotten:
                for parts in (self.runs, self._ended, self._asked):
                    parts.pop(arrival.gateway_id, None)
        if len(arrivals) < TAKE:
            self._tick(batch)
        if not batch:
            return
        before, self._storing = self._storing, group.create_task(self._commit(batch))
        if before is not None:
            await before

    async def _commit(self, batch: Batch) -> None:
        await self._log.commit(batch)
        for (gateway_id, boot), n in batch.acks.items():
            self._gateways.ack(gateway_id, boot, n)
        for one in batch.forgotten:
            if one.gateway_id in self.farewells:
                self.farewells.pop(one.gateway_id).set()

    def _timely(self, arrival: Arrival) -> Arrival:
        """The arrival at its time in the fold."""
        at = self._catch_up.at(arrival)
        if at is None:
            at = self._at = max(self._at, arrival.at)
        return arrival if arrival.at == at else replace(arrival, at=at)

    def _fold(self, arrival: Arrival, *, failed: bool = False) -> Outcome:
        runs = self._runs(arrival.gateway_id)
        try:
            outcome = runs.make_do(arrival) if failed else runs.fold(arrival)
            for seen in outcome.files:
                self._want(arrival.gateway_id, seen)
            return outcome
        except Exception as error:  # noqa: BLE001 - a bug; the other facts go on
            # Without the message of the exception: it could quote a text.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("a %s broke the fold: %s\n%s", arrival.kind, type(error).__name__, where)
            if failed:
                return Outcome()
            runs.dropped["broke_the_fold"] += 1
            return self._fold(arrival, failed=True)

    def _runs(self, gateway_id: str) -> Runs:
        if gateway_id not in self.runs:
            ended = self._ended.get(gateway_id, ())
            self.runs[gateway_id] = Runs(gateway_id, self._key, ended=ended)
        return self.runs[gateway_id]

    def _look(self, batch: Batch) -> None:
        """Nobody falls silent while we do not listen."""
        now = self._now()
        away, self._looked = now - self._looked, now
        if away <= UNHEARD_S:
            return
        log.warning("%d s have passed unheard: stopped, asleep, the clock set, or no disk", away)
        for gateway_id in self.runs:
            self._fold_own(gateway_id, Unheard(), batch)

    def _fold_own(self, gateway_id: str, fact: object, batch: Batch) -> None:
        self._at = self._now()
        arrival = Arrival(gateway_id, "", 0, self._at, self._at, fact)
        batch.add(arrival, self._fold(arrival))

    def _tick(self, batch: Batch) -> None:
        for gateway_id, runs in self.runs.items():
            due = self._due(gateway_id, runs)
            if due is not None and due <= self._now():
                self._catch_up.end(gateway_id)
                self._fold_own(gateway_id, Tick(), batch)

    def _due(self, gateway_id: str, runs: Runs) -> float | None:
        """When a tick is due."""
        due = runs.deadline
        if due is not None and gateway_id in self._catch_up:
            return max(due, self._catch_up_by)
        return due

    def _now(self) -> float:
        """The clock; when that was set back, time goes on from where it was."""
        clock = self._clock()
        if clock >= self._at:
            self._ahead = 0.0
        elif clock + self._ahead < self._at:
            self._ahead = self._at - clock
        return clock + self._ahead

    def _pause(self) -> float:
        """Seconds until something is due, if no arrival brings work before."""
        due = [self._due(name, runs) for name, runs in self.runs.items()]
        due += [self._ask_at(name, runs.wants_running) for name, runs in self.runs.items()]
        waits = (at - self._now() for at in due if at is not None)
        return max(min([LOOK_S, *waits]), MIN_PAUSE_S)

    def _ask_at(self, gateway_id: str, wanted: float | None) -> float | None:
        if wanted is None or gateway_id not in self._asked:
            return wanted
        return max(wanted, self._asked[gateway_id] + ASK_S)

    def _ask(self, group: asyncio.TaskGroup) -> None:
        """Ask which turns are running, where the runs want to know."""
        now = self._now()
        for gateway_id, runs in self.runs.items():
            at = self._ask_at(gateway_id, runs.wants_running)
            if at is None or at > now:
                continue
            self._asked[gateway_id] = now
            if gateway_id not in self._asking:
                self._asking.add(gateway_id)
                group.create_task(self._ask_one(gateway_id))

    async def _ask_one(self, gateway_id: str) -> None:
        """The answer comes as a fact `running`, so what is returned is not needed."""
        try:
            command_id = secrets.token_hex(8)
            args = {"fact": "running"}
            await self._gateways.command(gateway_id, "running", args, command_id=command_id)
        except LoomiError as error:
            log.debug("asked %s what runs: %s", gateway_id, type(error).__name__)
        finally:
            self._asking.discard(gateway_id)
