"""All of loomid but its sockets, in virtual time: whatever is killed, lost, restored or asked
twice, what phones are told is right (docs/protocol.md).

Real are the shim's link with its backlog and orders, the roster, the fold, the log, the store
and its SQLite file, requests, approvals, sessions and outboxes. Hosts and phones are models
that check what they get; the disk and the wire fail where the machine says.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.turns import edited_turns, orders, turns
from tests.support.whole import checks
from tests.support.whole.host import CHOICES, Host
from tests.support.whole.phone import WINDOW, Phone
from tests.support.whole.world import World

STREAM = ["on_stream_delta"]
PAUSE_S = 0.004
away = st.sampled_from([0.0, 0.0, 3.0, None])
"""How long loomid is not started again."""
which = st.integers(0, 11)
EXPLORES = "LOOMI_WHOLE_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("LOOMI_WHOLE_EXAMPLES", "40"))
# A timeout amid an example would be taken for an event that is missing.
pytestmark = [pytest.mark.timeout(0)] if EXPLORES else []


class Whole(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**16),
        features=st.sampled_from([STREAM, STREAM, []]),
        late=st.sampled_from([0.0, 0.0, 0.1]),
        keeps=st.sampled_from([True, True, False]),
    )
    def begin(self, seed: int, features: list[str], late: float, keeps: bool) -> None:
        self.world = World(seed)
        self.requests = 0
        self.world.start()
        for host in self.world.hosts:
            host.late = late > 0
            host.start(features)
        self.features, self.late = features, late
        # Whether the disk keeps what it has: else little is known of what phones must see.
        self.keeps = keeps
        self.pair(snapshot=True)

    # ── who is there ──

    @property
    def up(self) -> bool:
        return self.world.up

    def host(self, number: int) -> Host:
        return self.world.hosts[number % len(self.world.hosts)]

    def phone(self, number: int) -> Phone:
        return self.world.phones[number % len(self.world.phones)]

    # ── time ──

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.6, 2.0]))
    def wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from([0.02, 0.3, 1.0, 7.0, 130.0]))
    def wait_more(self, seconds: float) -> None:
        self.world.advance(seconds)

    # ── what Hermes does ──

    @rule(number=which, data=st.data())
    def turn(self, number: int, data: st.DataObject) -> None:
        host = self.host(number)
        turn_id, key, chat = host.fresh()
        script = data.draw((turns if self.features else edited_turns)(turn_id))
        timed = data.draw(orders(script, late=self.late))
        host.play(script, timed, key, chat)
        self.world.advance(0.1)

    @rule(number=which)
    def ask(self, number: int) -> None:
        self.requests += 1
        self.host(number).ask(self.requests)
        self.world.advance(0.05)

    @rule(number=which, what=which, choice=st.sampled_from([*CHOICES, "timeout", "cancelled"]))
    def decide(self, number: int, what: int, choice: str) -> None:
        host = self.host(number)
        if host.pending:
            names = [*host.pending]
            host.decide(names[what % len(names)], choice)

    @rule(number=which, away=st.sampled_from([0.0, 0.5, 20.0]))
    def host_dies(self, number: int, away: float) -> None:
        self.host(number).kill()
        self.world.advance(away)
        self.host(number).start(self.features)

    @rule(number=which, cut=st.booleans())
    def link_breaks(self, number: int, cut: bool) -> None:
        self.host(number).sever()
        if not cut:
            self.host(number).mend()

    @rule(number=which)
    def link_mends(self, number: int) -> None:
        self.host(number).mend()

    @rule(number=which)
    def fall_silent(self, number: int) -> None:
        host = self.host(number)
        host.answers = not host.answers

    # ── what happens to loomid ──

    @precondition(lambda self: self.up)
    @rule(after=st.sampled_from([0.0, 0.003, 0.3]), away=away)
    def kill(self, after: float, away: float | None) -> None:
        self.world.advance(after)
        if self.world.life is not None:
            self.world.kill()
        self.come_back(away)

    @precondition(lambda self: self.up)
    @rule(commits=st.integers(1, 40), after=st.booleans(), away=away)
    def kill_in_commit(self, commits: int, after: bool, away: float | None) -> None:
        self.world.disk.fuse, self.world.disk.after = commits, after
        self.world.advance(4.0)
        if self.world.life is None:
            self.come_back(away)

    @precondition(lambda self: self.up)
    @rule(commits=st.lists(st.integers(1, 30), min_size=2, max_size=4))
    def kill_again_and_again(self, commits: list[int]) -> None:
        for count in commits:
            if self.world.life is not None:
                self.kill_in_commit(count, False, 0.0)

    @precondition(lambda self: self.up)
    @rule(away=away)
    def stop(self, away: float | None) -> None:
        self.world.stop()
        self.come_back(away)

    @precondition(lambda self: self.world.life is None)
    @rule()
    def start(self) -> None:
        self.world.start()

    def come_back(self, away: float | None) -> None:
        if away is not None:
            self.world.advance(away)
            self.world.start()

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.0004, 0.01, 0.2]))
    def slow_disk(self, seconds: float) -> None:
        self.world.disk.latency = seconds

    @precondition(lambda self: not self.keeps)
    @rule(kept=st.sampled_from([0.0, 0.3, 0.9]))
    def lose_power(self, kept: float) -> None:
        self.world.lose_power(kept)
        self.world.start()
        for host in self.world.hosts:
            host.start(self.features)

    @precondition(lambda self: self.up and not self.keeps)
    @rule()
    def back_up(self) -> None:
        self.world.backup = self.world.disk.image()

    @precondition(lambda self: self.world.backup is not None)
    @rule()
    def restore(self) -> None:
        if self.world.backup is not None:
            self.world.restore(self.world.backup)
            self.world.start()

    # ── what phones do ──

    @precondition(lambda self: self.up and len(self.world.phones) < 5)
    @rule(snapshot=st.sampled_from([True, True, False]))
    def pair(self, snapshot: bool) -> None:
        self.world.pair(snapshot=snapshot)

    @precondition(lambda self: self.up and self.world.phones)
    @rule(number=which)
    def connect(self, number: int) -> None:
        phone = self.phone(number)
        if phone.credential:
            self.world.connect(phone, None, phone.last_seq)

    @precondition(lambda self: self.up and self.world.phones)
    @rule(number=which, how=st.sampled_from(["none", "older", "zero", "less", "beyond", "far"]))
    def connect_otherwise(self, number: int, how: str) -> None:
        phone = self.phone(number)
        if not phone.credential:
            return
        last_seq = phone.last_seq
        if how == "older":
            phone.forget(len(phone.told) * 2 // 3)
            last_seq = phone.last_seq
        elif how == "none":
            last_seq = None
        else:
            far = {"zero": 0, "less": -3, "beyond": 5_000, "far": 2**40}[how]
            last_seq = 0 if how == "zero" else max((last_seq or 0) + far, 0)
            phone.lied = True
        self.world.connect(phone, None, last_seq)

    @precondition(lambda self: self.up and self.world.phones)
    @rule(number=which, more=st.integers(-1, 2), restart=st.booleans())
    def connect_at_the_edge(self, number: int, more: int, restart: bool) -> None:
        """It has missed about as much as can be told again."""
        phone = self.phone(number)
        self.world.advance(15.0)
        events = [place for place, saw in enumerate(phone.told) if saw.event]
        if len(events) > WINDOW + more:
            phone.forget(events[-WINDOW - more])
        if restart and self.up:
            self.world.kill()
            self.world.start()
        if self.up and phone.credential:
            self.world.connect(phone, None, phone.last_seq)

    @precondition(lambda self: self.world.phones)
    @rule(number=which)
    def vanish(self, number: int) -> None:
        phone = self.phone(number)
        phone.away = True
        if phone.pipe is not None:
            phone.pipe.leave()
            phone.pipe = None

    @precondition(lambda self: self.world.phones)
    @rule(number=which)
    def look_away(self, number: int) -> None:
        phone = self.phone(number)
        phone.attentive = not phone.attentive

    @precondition(lambda self: self.world.phones)
    @rule(number=which, most=st.sampled_from([1, 3, 20]))
    def read(self, number: int, most: int) -> None:
        self.phone(number).read(most, self.world)

    @precondition(lambda self: self.world.phones)
    @rule(number=which, into=which, mode=st.sampled_from(["queue", "steer", "interrupt"]))
    def send(self, number: int, into: int, mode: str) -> None:
        self.requests += 1
        phone, tasks = self.phone(number), [*self.world.tasks]
        request = {"request_id": f"r{self.requests}", "text": f"do {self.requests}", "mode": mode}
        if tasks and into % 2:
            request["task_id"] = tasks[-1 - into // 2 % min(len(tasks), 3)]
        phone.ask("session.send", **request)

    @precondition(lambda self: self.world.phones)
    @rule(number=which, what=which)
    def repeat(self, number: int, what: int) -> None:
        phone = self.phone(number)
        known = [name for name, asked in phone.asked.items() if not asked.void]
        if known:
            name = known[-1 - what % len(known)]
            phone.ask(phone.asked[name].type, **phone.asked[name].payload)

    @precondition(lambda self: self.world.phones)
    @rule(numbers=st.lists(which, min_size=1, max_size=3), what=which, choice=which)
    def answer(self, numbers: list[int], what: int, choice: int) -> None:
        self.requests += 1
        self.host(what).ask(self.requests)
        self.world.advance(0.05)
        for number in numbers:
            phone = self.phone(number)
            pending = sorted(phone.view.approvals)
            if pending:
                self.requests += 1
                name = pending[what % len(pending)]
                self.decide_on(phone, name, f"r{self.requests}", choice + number)

    def decide_on(self, phone: Phone, name: str, request_id: str, choice: int) -> None:
        """Answer an approval or question; every third question is cancelled."""
        if "questions" not in phone.view.approvals[name]:
            said: dict[str, Any] = {"choice": CHOICES[choice % len(CHOICES)]}
            phone.ask("approval.resolve", request_id=request_id, approval_id=name, **said)
        elif choice % 3 == 0:
            phone.ask("question.cancel", request_id=request_id, question_id=name)
        else:
            said = {"answers": [{"id": "q0", "selected": [["red", "blue"][choice % 2]]}]}
            phone.ask("question.answer", request_id=request_id, question_id=name, **said)

    @precondition(lambda self: self.world.phones)
    @rule(number=which, what=which, how=st.sampled_from(["run.cancel", "run.pause"]))
    def cancel(self, number: int, what: int, how: str) -> None:
        phone = self.phone(number)
        live = [*phone.view.runs]
        if live:
            self.requests += 1
            request = {"request_id": f"r{self.requests}", "run_id": live[what % len(live)]}
            phone.ask(how, **request)

    # ── what must hold ──

    @invariant()
    def all_is_well(self) -> None:
        if hasattr(self, "world"):
            self.world.advance(PAUSE_S)
            checks.at_any_moment(self.world)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if sys.exc_info()[0] is None:
                checks.in_the_end(self.world, self.features)
        finally:
            self.world.close()


TestWhole = Whole.TestCase
TestWhole.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=100,
    # The same steps each time, unless more are asked for: then others are explored.
    derandomize=not EXPLORES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
