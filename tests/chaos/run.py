"""One run of a plan: processes, phones, and the checks."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.chaos.device import Device, Oracle
from tests.chaos.journal import Truth
from tests.chaos.judge import Judge
from tests.chaos.phone import Phone
from tests.chaos.plan import PHONES
from tests.chaos.processes import Host, Loomid
from tests.chaos.real import RealHost, RealJudge

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.plan import Plan, Step
    from tests.chaos.trace import Trace

LATE_S = 900.0
"""How far a slow machine may be behind the plan: starts take their time."""
REST_S = 180.0
"""How long everything may take to come to rest: a killed host is given up after some beats,
and a request of it after ten seconds."""
STILL_S = 1.0
LOOK_S = 0.1
OF_LOOMID = frozenset({"kill", "stop", "restart", "swap", "power"})
OF_HOST = frozenset({"host_kill", "host_stop"})


class _Over(Exception):
    """Ends the task group that everything runs in."""


class Run:
    """Carries out a plan; afterwards `summary`, and what the trace has of violations."""

    def __init__(self, plan: Plan, folder: Path, trace: Trace, *, rests: bool = True) -> None:
        self.plan = plan
        self.rests = rests
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.violated = trace.violated
        self.rng = Random(plan.seed + 1)
        self.judge: Judge
        self.host: Host | RealHost
        if plan.hermes:
            self.host = RealHost(folder, plan.hermes)
            self.judge = RealJudge(self.host.truth, self.violated)
        else:
            truth = Truth(folder / "host.jsonl")
            self.judge = Judge(truth, self.violated)
            self.host = Host(folder, self.judge, plan.seed)
        self.oracle = Oracle(self.judge, self.violated)
        self.loomid = Loomid(folder, self.oracle, self.rng, self.violated)
        self.host.endpoint = self.loomid.daemon.hermes_endpoint
        self.phones: list[Phone] = []
        self._tasks: asyncio.TaskGroup
        self._calm = asyncio.Lock()  # loomid's faults come one after the other
        self._host_calm = asyncio.Lock()
        self._waiting = 0  # steps that are under way

    async def go(self) -> None:
        """The whole run, up to the last check."""
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                await self.loomid.start()
                await self._pair(http)
                await self.host.start()
                await self._live()
        finally:
            self.host.close()
            self.loomid.daemon.close()
            self.loomid.scan()

    async def _pair(self, http: aiohttp.ClientSession) -> None:
        for number in range(PHONES + 1):
            witness = number == PHONES
            name = "w" if witness else f"p{number}"
            device = Device(name, self.oracle, self.rng, self.violated, witness=witness)
            url = self.loomid.daemon.url
            phone = Phone(device, self.oracle, http, url, self.rng, self.counts, self.violated)
            code = (await asyncio.to_thread(self.loomid.daemon.pair))["qr"]
            await phone.pair(code["token"])
            self.phones.append(phone)
            if not witness:
                self.oracle.devices.append(device)

    async def _live(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for phone in self.phones:
                    phone.group = self._tasks
                    phone.wanted.set()
                    self._tasks.create_task(phone.live())
                await self._carry_out()
                if self.rests and not self.trace.count:
                    await self._come_to_rest()
                raise _Over
        except* _Over:
            pass

    # ── the plan ────────────────────────────────────────────────────────────

    async def _carry_out(self) -> None:
        began = asyncio.get_running_loop().time()
        for step in self.plan.steps:
            left = began + step.at - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.sleep(left)
                self.loomid.scan()
            if self.trace.count:
                return
            self._waiting += 1
            self._tasks.create_task(self._step(step))
        await asyncio.sleep(max(0.0, began + self.plan.seconds - asyncio.get_running_loop().time()))

    async def _step(self, step: Step) -> None:
        try:
            if step.do in OF_LOOMID:
                async with self._calm:
                    done = await self._of_loomid(step)
            elif step.do in OF_HOST:
                async with self._host_calm:
                    done = await self._of_host(step)
            else:
                done = await self._of_phone(step)
            self.trace.note(did=step.do, planned=step.at, how=step.how, done=done)
        finally:
            self._waiting -= 1

    async def _of_loomid(self, step: Step) -> bool:
        how = step.how
        match step.do:
            case "kill":
                await self.loomid.kill(how["down"], tuple(how["again"]), backup=how["backup"])
            case "stop":
                await self.loomid.stop(how["for"])
            case "restart":
                await self.loomid.restart(how["hurry"])
            case "swap":
                done = await self.loomid.swap(how["down"])
                for phone in self.phones:
                    phone.asking.restored += done
                return done
            case "power":
                async with self._host_calm:
                    return await self.loomid.lose_power(how["down"], self.host)
        return True

    async def _of_host(self, step: Step) -> bool:
        if step.do == "host_stop":
            await self.host.stop(step.how["for"])
        else:
            self.host.kill()
            await asyncio.sleep(step.how["down"])
            await self.host.start()
        return True

    async def _of_phone(self, step: Step) -> bool:
        how, phone = step.how, self.phones[step.how["phone"]]
        match step.do:
            case "vanish":
                await self._vanish(phone, how)
            case "stall":
                await self._stall(phone, how)
            case "double":
                phone.double()
            case "send":
                return await self._send(phone, how)
            case "repeat":
                return await phone.repeat(how["pick"])
            case "approve":
                return await self._approve(how)
            case "answer":
                return await self._answer(how)
            case "cancel":
                runs = list(phone.device.view.runs)
                return bool(runs) and await phone.ask(
                    "run.cancel", run_id=runs[int(how["pick"] * len(runs))]
                )
            case "list":
                return await phone.ask("task.list")
        return True

    async def _vanish(self, phone: Phone, how: dict[str, Any]) -> None:
        phone.back, phone.snapshot = how["back"], how["snapshot"]
        phone.wanted.clear()
        phone.vanish(abort=how["abort"])
        await asyncio.sleep(how["away"])
        phone.wanted.set()

    async def _stall(self, phone: Phone, how: dict[str, Any]) -> None:
        phone.stall()
        await asyncio.sleep(how["for"])
        if how["abort"]:
            phone.vanish()
        phone.go_on()

    async def _send(self, phone: Phone, how: dict[str, Any]) -> bool:
        tasks = phone.tasks
        where = {} if how["new"] or not tasks else {"task_id": tasks[int(how["pick"] * len(tasks))]}
        text = self.host.text(phone.device.device_id, phone.asking.next_id, self.rng)
        if not await phone.ask("session.send", text=text, **where):
            return False
        return not how["twice"] or await phone.repeat(0.9999)

    async def _approve(self, how: dict[str, Any]) -> bool:
        waiting = self._waiting_at(how, "approval_id")
        if not waiting:
            return False
        chosen = waiting[int(how["pick"] * len(waiting))]["approval_id"]
        for number, choice in zip(how["phones"], how["choices"], strict=True):
            await self.phones[number].approve(chosen, choice)
            if how["twice"]:
                await self.phones[number].approve(chosen, "deny")
        return True

    async def _answer(self, how: dict[str, Any]) -> bool:
        late = self.phones[how["phone"]].questions
        asked = late if how["late"] else self._waiting_at(how, "question_id")
        if not asked:
            return False
        chosen = asked[int(how["pick"] * len(asked))]
        for number, what in zip(how["phones"], how["hows"], strict=True):
            rng = Random(how["pick"] + number)
            await self.phones[number].answer(chosen, what, rng)
            if how["twice"]:
                await self.phones[number].answer(chosen, "right", rng)
        return True

    def _waiting_at(self, how: dict[str, Any], id_: str) -> list[dict[str, Any]]:
        """The approvals or questions that a phone shows as waiting."""
        view = self.phones[how["phone"]].device.view
        return [asked for asked in view.approvals.values() if id_ in asked]

    # ── the end ─────────────────────────────────────────────────────────────

    async def _come_to_rest(self) -> None:
        """Everything runs and is connected; wait until nothing is left to tell, and judge."""
        async with asyncio.timeout(LATE_S):
            while self._waiting and not self.trace.count:  # noqa: ASYNC110 - either ends it
                await asyncio.sleep(LOOK_S)
        for phone in self.phones:
            phone.snapshot = True
            phone.go_on()
            phone.wanted.set()
        try:
            async with asyncio.timeout(REST_S):
                still = 0.0
                while still < STILL_S and not self.trace.count:
                    await asyncio.sleep(LOOK_S)
                    self.host.rest()
                    still = still + LOOK_S if await self._quiet() else 0.0
        except TimeoutError:
            self.violated("no rest", **self._restless())
        if not self.trace.count:
            self._conclude()

    def _conclude(self) -> None:
        self.oracle.conclude(self.loomid.restored_at)
        given = defaultdict(set)
        for phone in self.phones:
            phone.asking.conclude(self.loomid.restored_at)
            for approval_id, choice in phone.asking.choices():
                given[approval_id].add(choice)
        self.judge.answers(given, self.loomid.restored_at)

    async def _quiet(self) -> bool:
        for phone in self.phones:
            await phone.ask_open()
        return not any(self._restless().values())

    def _restless(self) -> dict[str, Any]:
        """What keeps it from being quiet."""
        truth = self.judge.truth
        truth.read()
        last = len(self.oracle.history) - 1
        devices = self.oracle.devices
        witness = self.phones[-1].device
        return {
            "host": not truth.rested,
            "unacknowledged": truth.emitted.get(truth.boot, 0) - truth.acked.get(truth.boot, 0),
            "live": len(witness.view.runs) + len(witness.view.approvals),
            "behind": sum(d.follower.at not in (None, last) or d.follower.behind for d in devices),
            "away": sum(not phone.connected for phone in self.phones),
            "unanswered": sum(len(list(phone.asking.open())) for phone in self.phones),
        }

    def summary(self) -> dict[str, Any]:
        """Figures of the whole run."""
        loomid, counts = self.loomid, self.counts + self.judge.counts
        kinds = Counter(found["violated"] for found in self.trace.violations)
        return {
            "seed": self.plan.seed,
            "seconds": round(self.trace.now, 1),
            "kills": loomid.kills,
            "stops": loomid.stops,
            "swaps": loomid.swaps,
            "power_losses": loomid.power_losses,
            "bytes_cut": loomid.cut,
            "host_kills": self.host.kills,
            "host_stops": self.host.stops,
            "facts": sum(self.judge.truth.emitted.values()),
            "events": self.oracle.events,
            "deliveries_checked": sum(d.follower.checked for d in self.oracle.devices),
            "frames": sum(phone.device.frames for phone in self.phones),
            **dict(sorted(counts.items())),
            "lost": kinds["lost"],
            "twice": kinds["twice"],
            "reordered": kinds["reordered"],
            "ran_twice": kinds["ran twice"],
            "violations": self.trace.count,
            **_used(self.trace.now),
        }


def _used(seconds: float) -> dict[str, float]:
    """What this process and those it has waited for cost."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return {"cores": round(cpu / seconds, 2), "checker_mib": round(usages[0].ru_maxrss / 1024, 1)}
