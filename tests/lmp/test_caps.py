"""What a gateway can make loomid keep has an end, and phones are told where it was met."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from loomid import hermes_words, wire
from loomid.lmp import facts, ids, inbox, quota
from loomid.lmp.frames import RUN_ENDS
from loomid.lmp.text import MARK, TEXT_CHARS
from tests.lmp.test_runs_approvals import ask
from tests.lmp.test_runs_recovery import Disk, check_cut, with_ticks
from tests.support.anyfacts import arrivals
from tests.support.folding import KEY as DRIVEN, views
from tests.support.plain import KEY, UP, asked, driver, ended, handed, injected, started
from tests.support.turns import numbered

if TYPE_CHECKING:
    from loomid.lmp.facts import Arrival
    from loomid.lmp.frames import Event
    from tests.support.folding import Driver

TURN = "s1:s1:t1"
PIECE = "0123456789abcdef" * 4_096


def through_the_door(kind: str, /, **said: Any) -> Any:
    """A fact as it is taken from a shim."""
    return facts.parse(kind, hermes_words.body_of(kind, said))


def begin(it: Driver, turn: str = TURN) -> None:
    it.facts([started(turn=turn), asked(turn=turn)])
    it.fact(wire.StreamStarted(turn, 1, "s1", "m", "p", "loomi"))


def stream(it: Driver, chars: int, turn: str = TURN, channel: str = "text") -> None:
    for _ in range(0, chars, len(PIECE)):
        it.fact(wire.Delta(turn, 1, PIECE, channel), dt=0.001)


def ends(it: Driver) -> list[tuple[str | None, Any]]:
    return [(e.run_id, e.payload) for e in it.events if e.type in RUN_ENDS]


def test_a_text_without_end_is_cut_and_says_so():
    it = driver()
    begin(it)
    stream(it, 3 * TEXT_CHARS)
    whole = PIECE * (3 * TEXT_CHARS // len(PIECE))
    end = {"turn_id": TURN, "iteration": 1, "final_text": whole, "finished": True, "error": None}
    it.fact(through_the_door("stream.ended", **end))
    it.fact(through_the_door("turn.answered", turn_id=TURN, assistant_response=whole))
    it.fact(ended(TURN))
    it.wait(1)
    cut = whole[:TEXT_CHARS] + MARK
    (shown,) = (texts for run, texts in views(it.events).items() if run)
    assert shown == {1: cut}
    assert "run.text" not in {e.type for e in it.events}
    ((_, end),) = ends(it)
    assert end.text == cut


def test_whitespace_without_end_is_kept_by_nobody():
    it = driver()
    begin(it)
    tracemalloc.start()
    for _ in range(200):
        it.fact(wire.Delta(TURN, 1, " " * 100_000, "text"))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 60 * 2**20


def test_the_oldest_silent_run_makes_room_for_too_much_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "MAX_WEIGHT", 4 * TEXT_CHARS)
    it = driver()
    names = [f"s1:s1:t{i}" for i in range(6)]
    for name in names:
        begin(it, name)
        stream(it, TEXT_CHARS, name)
    assert [end.error for _, end in ends(it)] == ["too_much_text"] * len(ends(it))
    gone = len(ends(it))
    assert 2 <= gone < 5
    assert it.runs.dropped["too_much_text"] == gone
    assert [run.turn_id for run in it.runs.live()] == names[gone:]
    assert it.runs._quota.weight <= quota.MAX_WEIGHT
    assert set(it.ended) == set(names[:gone])
    assert {a.fact.turn_id for tag, a in it.stored if not tag.startswith("~")} == set(names[gone:])


def test_a_run_that_alone_is_too_much_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "MAX_WEIGHT", 2**20)
    it = driver()
    begin(it)
    stream(it, 2**21)
    assert [end.error for _, end in ends(it)] == ["too_much_text"]
    assert it.runs.live() == []
    assert it.runs._quota.weight == 0


def test_turns_without_end_block_no_new_one():
    it = driver()
    for i in range(quota.MAX_TURNS):
        it.facts([started(f"s1:s1:t{i}"), asked(turn=f"s1:s1:t{i}")], dt=0.0001)
    begin(it, "s2:s2:new")
    told = ends(it)
    assert len(told) == quota.MAX_TURNS // quota.SHARE
    assert {end.error for _, end in told} == {"too_many_runs"}
    assert it.runs.dropped["too_many_runs"] == len(told)
    assert "s2:s2:new" in {run.turn_id for run in it.runs.live()}
    assert "s1:s1:t0" not in {run.turn_id for run in it.runs.live()}
    it.fact(wire.Delta("s1:s1:t0", 1, "late", "text"))
    assert it.runs.dropped["late"] == 1


def test_a_run_that_was_given_up_does_not_begin_again():
    """Hermes goes on with turns that made room for others, whose places others took in turn."""
    it = driver()
    begin(it, "s0:s0:old")
    for i in range(2 * quota.MAX_TURNS):
        it.facts([started(f"s1:s1:t{i}"), asked(turn=f"s1:s1:t{i}")], dt=0.0001)
    given_up = [*it.ended]
    assert given_up[0] == "s0:s0:old"
    assert len(given_up) > quota.MAX_TURNS
    it.events.clear()
    for turn in given_up:
        it.facts([asked(2, turn), wire.Delta(turn, 2, "late", "text"), ended(turn)], dt=0.0)
    assert it.events == []
    assert it.runs.dropped["late"] == 3 * len(given_up)


def test_ended_runs_go_before_live_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "MAX_TURNS", 16)
    it = driver()
    begin(it, "s0:s0:live")
    for i in range(16):
        begin(it, f"s1:s1:t{i}")
        it.fact(ended(f"s1:s1:t{i}"))
        it.wait(0.5)
    assert "too_many_runs" not in {getattr(end, "error", None) for _, end in ends(it)}
    assert "s0:s0:live" in {run.turn_id for run in it.runs.live()}


def test_messages_that_become_no_turn_are_bounded():
    it = driver()
    for i in range(inbox.MAX_MESSAGES + 100):
        fact = injected(f"m{i}", "x")
        it.fact(wire.Injected(f"{fact.session_key}{i}", *_rest(fact)))
    assert len(it.runs._host.inbox._by_id) == inbox.MAX_MESSAGES
    assert len([1 for tag, _ in it.stored if "boot" in tag]) <= inbox.MAX_MESSAGES + 1


def _rest(fact: wire.Injected) -> tuple[Any, ...]:
    return fact.message_id, fact.text, fact.mode, fact.busy, fact.device_id, fact.request_id


def test_small_pieces_cost_little():
    """Pieces of two characters."""
    it = driver()
    begin(it)
    tracemalloc.start()
    for i in range(30_000):
        it.runs.fold(facts.Arrival("gw", "boot", 1_000 + i, 1_001.0, 1_001.0, _delta("ab")))
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 10**6


def _delta(text: str) -> wire.Delta:
    return wire.Delta(TURN, 1, text, "text")


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=arrivals(most=60), data=st.data())
def test_a_restart_amid_evictions(
    monkeypatch: pytest.MonkeyPatch, rows: list[Arrival], data: st.DataObject
):
    monkeypatch.setattr(quota, "MAX_TURNS", 1)
    monkeypatch.setattr(quota, "SHARE", 1)
    rows = with_ticks(rows)
    check_cut(rows, data.draw(st.integers(0, len(rows))))


def told_of(type_: str, timed: list[tuple[float, Any]]) -> list[Event]:
    """What is told, be there a restart amid it or not."""
    rows = with_ticks(numbered([(0.0, UP), *timed]))
    for cut in range(len(rows) + 1):
        check_cut(rows, cut)
    return [e for events in Disk().replay(rows) for e in events if e.type.startswith(type_)]


def test_an_approval_whose_run_made_room_goes_on_without_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quota, "MAX_TURNS", 1)
    monkeypatch.setattr(quota, "SHARE", 1)
    cron = [(1.0, started(platform="cron")), (1.0, asked(platform="cron")), (1.1, ask())]
    new = [(2.0, started("s2:s2:new")), (3.0, wire.ApprovalDone("ask1", "once", None))]
    required, resolved = told_of("approval.", cron + new)
    assert required.run_id is not None
    assert (resolved.run_id, resolved.task_id) == (None, ids.task_id(DRIVEN, "gw", KEY))


def test_files_make_room_with_their_run(monkeypatch: pytest.MonkeyPatch):
    """They would be those of another turn after a restart."""
    monkeypatch.setattr(quota, "MAX_TURNS", 2)
    monkeypatch.setattr(quota, "SHARE", 1)
    other, sends, new = "s1:s1:t1", "s1:s1:t2", "s2:s2:new"
    both = [(1.0, fact(turn=turn)) for turn in (other, sends) for fact in (started, asked)]
    room = [(1.2, handed()), (1.3, ended(sends)), (2.0, started(new))]
    taken = (3.0, facts.FileTaken("out1", None, "gone"))
    (told,) = told_of("run.attachment", [*both, *room, taken])
    assert told.run_id == ids.run_id(DRIVEN, "gw", sends)
    assert told.payload.error == "too_many"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("delta", {"turn_id": "t", "iteration": 10**30, "delta": "x", "kind": "text"}),
        ("delta", {"turn_id": 10**5_000, "iteration": 1, "delta": "x", "kind": "text"}),
        ("tool.ended", {"turn_id": "t", "tool_call_id": "c", "duration_ms": 10**400}),
        ("tool.started", {"turn_id": "t", "args": {}, "api_request_id": "t:api:" + "9" * 5_000}),
    ],
)
def test_numbers_that_are_none_are_refused_at_the_door(kind: str, said: dict[str, Any]):
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own is one
        through_the_door(kind, **said)


def test_long_texts_are_cut_at_the_door():
    body = hermes_words.body_of("tool.started", {"tool_name": "x" * 10**7, "args": {}})
    assert len(body["tool"]) == hermes_words.NAME_CHARS
    said = {"command": "a" * 10**6 + "z" * 10**6, "session_key": "k"}
    command = hermes_words.body_of("approval.asked", said)["command"]
    assert len(command) == hermes_words.COMMAND_CHARS
    assert (command[0], command[-1]) == ("a", "z")
