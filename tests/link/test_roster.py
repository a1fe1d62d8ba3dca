"""Who is alive and what arrived, without a socket."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import given, strategies as st

from loomid import wire
from loomid.lmp.facts import Arrival, GatewayUp
from loomid.roster import GONE_CHECKS, LOST_BEATS, MAX_BOOTS, Boot, Roster

INVENTORY = {"keys": [], "approvals": []}
DELTA = {"turn_id": "t", "iteration": 1, "text": "x", "channel": "text"}


class World:
    """A roster and the processes of the machine it is on."""

    def __init__(self, known: list[Arrival] | None = None, **acked: int) -> None:
        self.processes: dict[int, float] = {}
        self.now = 100.0
        self.roster = Roster(
            {("g", boot): n for boot, n in acked.items()},
            known or [],
            started=lambda pid: self.processes.get(pid, 0.0),
        )

    def hello(self, boot: str, pid: int = 0, started: float = 0.0, peer: str = "") -> Boot:
        if pid > 0:
            self.processes[pid] = started
        stat = f"1 (a name) S {'0 ' * 18}{started:.0f} 0"
        hello = wire.Hello(1, "g", boot, pid, "G", "0.22", "0.1", [], stat)
        assert self.roster.objection(hello) is None
        return self.roster.hello((peer or boot).encode(), hello, self.now)[0]

    def ticks(self, count: int, *alive: Boot) -> None:
        for _ in range(count):
            for boot in alive:
                self.roster.heard(boot, boot.peer or b"")
            self.roster.tick(self.now)

    def said(self) -> list[tuple[str, str]]:
        out = [(a.boot, a.kind) for a in self.roster.arrivals]
        self.roster.arrivals.clear()
        return out


def test_silence_is_down_after_three_missed_beats_and_lost_after_two_minutes():
    world = World()
    boot = world.hello("a")
    world.ticks(10, boot)
    world.ticks(wire.BEATS_MISSED - 1)
    assert world.said() == [("a", "gateway.up")]
    world.ticks(1)
    assert world.said() == [("a", "gateway.down")]
    assert world.roster.online("g") is None
    assert [s.online for s in world.roster.states()] == [False]
    world.ticks(LOST_BEATS - wire.BEATS_MISSED - 1)
    assert world.said() == []
    world.ticks(100)
    assert world.said() == [("a", "gateway.lost")]
    world.hello("a")
    assert world.said() == [("a", "gateway.up")]


def test_a_process_known_gone_is_lost_when_seen_gone_twice():
    world = World()
    boot = world.hello("a", pid=7, started=55.0)
    world.processes[7] = 99.0  # the pid was given away
    world.ticks(GONE_CHECKS, boot)
    assert world.said() == [("a", "gateway.up"), ("a", "gateway.down"), ("a", "gateway.lost")]


def test_a_pid_of_another_namespace_proves_nothing():
    world = World()
    boot = world.hello("a", pid=-7, started=55.0)
    world.ticks(50, boot)
    assert world.said() == [("a", "gateway.up")]


def after_restart(world: World, **acked: int) -> World:
    """A new loomid on the same machine, with what the old one stored of the gateways."""
    known = [a for a in world.roster.arrivals if isinstance(a.fact, GatewayUp)]
    anew = World(known, **acked)
    anew.processes = world.processes
    return anew


def test_what_a_gateway_was_is_known_after_a_restart():
    world = World()
    world.hello("older", pid=6, started=44.0)
    world.hello("a", pid=7, started=55.0)
    anew = after_restart(world, older=4, a=9)
    (state,) = anew.roster.states()
    assert (state.boot, state.name, state.online, state.pid) == ("a", "G", False, 7)
    assert anew.roster.online("g") is None
    boot = anew.hello("a", pid=7, started=55.0)
    assert (boot.acked, boot.replaced, anew.roster.online("g")) == (9, False, boot)
    assert anew.said() == [("a", "gateway.up")]


def test_a_process_that_went_while_loomid_was_away_is_lost_when_seen_gone_twice():
    world = World()
    world.hello("a", pid=7, started=55.0)
    world.hello("remote", pid=-7, started=55.0)
    anew = after_restart(world)
    anew.ticks(wire.BEATS_MISSED)
    assert anew.said() == []  # alive, or of another machine
    del world.processes[7]
    anew.ticks(GONE_CHECKS)
    assert ("remote", "gateway.lost") not in anew.said()
    gone = World()
    gone.hello("a", pid=7, started=55.0)
    anew = after_restart(gone)
    del gone.processes[7]
    anew.ticks(GONE_CHECKS)
    assert anew.said() == [("a", "gateway.lost")]
    anew.hello("b", pid=8, started=66.0)
    assert anew.said() == [("b", "gateway.up")]


def test_another_boot_makes_the_old_one_lost_with_its_inventory():
    world = World(before=9)
    old = world.hello("old", pid=1, started=1.0)
    world.roster.down(old, world.now)
    world.hello("new", pid=2, started=2.0)
    new = world.roster.online("g")
    assert new is not None
    world.roster.facts(new, [[1, 1.0, "delta", DELTA], [2, 1.0, "inventory", INVENTORY]], 1.0)
    assert world.said() == [
        ("old", "gateway.up"),
        ("old", "gateway.down"),
        ("new", "gateway.up"),
        ("new", "delta"),
        ("new", "inventory"),
        ("before", "gateway.lost"),
        ("old", "gateway.lost"),
    ]


def test_of_two_live_boots_the_later_start_wins_and_the_older_is_lost_when_silent():
    world = World()
    old = world.hello("old", pid=1, started=1.0)
    new = world.hello("new", pid=2, started=2.0)
    world.hello("old", pid=1, started=1.0)
    assert old.replaced
    assert world.roster.online("g") is new
    for boot in (new, old):
        world.roster.facts(boot, [[1, 1.0, "inventory", INVENTORY]], 1.0)
    world.ticks(20, old, new)
    world.roster.facts(old, [[2, 1.0, "delta", DELTA]], 1.0)
    expected = ["gateway.up", "gateway.up", "inventory", "inventory", "delta"]
    assert [kind for _, kind in world.said()] == expected
    world.ticks(wire.BEATS_MISSED + 1, new)
    assert world.said() == [("old", "gateway.lost")]


def test_the_older_may_speak_again_when_the_newer_is_offline():
    world = World()
    old = world.hello("old", pid=1, started=1.0)
    new = world.hello("new", pid=2, started=2.0)
    assert old.replaced
    world.roster.down(new, world.now)
    assert not world.hello("old", pid=1, started=1.0).replaced
    assert world.roster.online("g") is old


def test_without_start_times_the_first_hello_decides():
    world = World()
    world.hello("a")
    world.now += 1
    second = world.hello("b")
    world.now += 1
    assert world.hello("a").replaced
    assert world.roster.online("g") is second


def test_facts_that_make_no_sense_are_counted_and_done_with():
    world = World()
    boot = world.hello("a")
    odd: list[Any] = [
        [True, 1.0, "delta", DELTA],
        [1.5, 1.0, "delta", DELTA],
        [2**60, 1.0, "delta", DELTA],
        [-1, 1.0, "delta", DELTA],
        [1, True, "delta", DELTA],
        [1, 1.0, "delta", []],
        [1, 1.0, 5, {}],
        [1],
        [],
    ]
    assert not world.roster.facts(boot, odd, 1.0)
    assert world.roster.oddities == {"fact_shape": len(odd)}
    unknown = [[1, 1, "from.tomorrow", {}], [2, 1.0, "delta", {"turn_id": 5}]]
    unknown.append([3, 1.0, "gateway.lost", {}])  # of loomid's own kinds none may come
    assert world.roster.facts(boot, unknown, 1.0)
    assert boot.acked == 3
    assert world.said() == [("a", "gateway.up")]
    world.roster.facts(boot, [[4, 1.0, "delta", DELTA], [5, 1.0, "nope", {}]], 1.0)
    assert boot.acked == 3
    world.roster.ack("g", "a", 4)
    assert boot.acked == 5
    assert world.roster.ack("g", "a", 4) is None
    assert world.roster.ack("g", "nobody", 4) is None


@given(st.lists(st.lists(st.integers(1, 20), max_size=6), max_size=12), st.integers(0, 5))
def test_each_number_arrives_once_in_order(batches, acked):
    world = World(a=acked)
    boot = world.hello("a")
    for batch in batches:
        world.roster.facts(boot, [[n, 1.0, "delta", DELTA] for n in batch], 1.0)
    numbers = [a.n for a in world.roster.arrivals if a.n]
    assert numbers == sorted(set(numbers))
    assert all(n > acked for n in numbers)


def test_time_never_goes_back():
    world = World()
    boot = world.hello("a")
    world.roster.facts(boot, [[1, 1.0, "delta", DELTA]], 50.0)
    world.roster.facts(boot, [[2, 1.0, "delta", DELTA]], 200.0)
    assert [a.at for a in world.roster.arrivals] == [100.0, 100.0, 200.0]


def test_hellos_without_end_are_forgotten():
    world = World()
    for i in range(1000):
        world.roster.down(world.hello(f"b{i}", pid=1, started=float(i + 1)), world.now)
        current = world.roster._current["g"]
        world.roster.facts(current, [[1, 1.0, "inventory", INVENTORY]], 1.0)
        world.roster.ack("g", current.boot, 1)
    assert len(world.roster._boots) < 300


def test_processes_without_end_are_refused():
    roster = Roster({})
    said = []
    for i in range(1000):
        hello = wire.Hello(1, f"g{i}", "b", 0, "G", "0.22", "0.1", [])
        said.append(roster.objection(hello))
        if said[-1] is None:
            roster.hello(b"p", hello, 1.0)
    assert said == [None] * MAX_BOOTS + ["too many processes"] * (1000 - MAX_BOOTS)
    for _ in range(LOST_BEATS + 1):
        roster.tick(1.0)
    assert roster.objection(wire.Hello(1, "g", "b", 0, "G", "0.22", "0.1", [])) is None
    assert len(roster.states()) < MAX_BOOTS


def test_a_gateway_without_a_name_is_called_by_machine_and_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    host = os.uname().nodename
    for home, name in {
        "/home/ann/.hermes": host,
        "/home/ann/.hermes/profiles/work": f"{host}/work",
        "/srv/.hermes-two": f"{host}/hermes-two",
        "": host,
    }.items():
        for said in ("", "Work"):
            roster = Roster({})
            hello = wire.Hello(1, "g", "b", 1, said, "0.22", "0.1", [], home=home)
            roster.hello(b"p", hello, 1.0)
            assert roster.states()[0].name == (said or name)
