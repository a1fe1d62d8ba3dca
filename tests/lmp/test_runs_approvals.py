"""Approvals: asked after their tool, decided once, by whom and with what outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loomid import wire
from loomid.lmp import facts, ids
from loomid.lmp.asks import KEEP_S, MAX_ASKS, MAX_BYTES
from loomid.lmp.facts import GatewayLost
from loomid.lmp.frames import ApprovalRequired, Notification
from loomid.lmp.preview import COMMAND_BYTES
from loomid.lmp.script import MAX_STEPS
from tests.support.folding import KEY as DRIVEN, Driver, brief
from tests.support.plain import KEY, answered, asked, driver, ended, started

if TYPE_CHECKING:
    from loomid.lmp.frames import Event
    from loomid.lmp.runs import Runs

ALL = ["once", "session", "always", "deny"]


def ask(shim_id: str = "ask1", **more: Any) -> wire.ApprovalAsked:
    row: dict[str, Any] = {
        "session_key": KEY,
        "session_id": "s1",
        "turn_id": "s1:s1:t1",
        "call_id": "c0",
        "command": "rm -rf /",
        "description": "delete in root path",
        "choices": ALL,
        "smart_denied": False,
        "timeout_s": 60.0,
        "answerable": True,
    }
    return wire.ApprovalAsked(shim_id, **(row | more))


def at_tool() -> Driver:
    d = driver()
    d.facts([started(), asked(), *answered("")[:1], *answered("")[2:]])
    d.fact(wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "rm -rf /"))
    d.events.clear()
    return d


def test_asked_and_decided() -> None:
    d = at_tool()
    required, waiting = d.fact(ask())
    p: Any = required.payload
    assert p.deadline_ts == d.now + 60
    assert [(c.choice, c.style) for c in p.choices] == [
        ("once", "primary"),
        ("session", "default"),
        ("always", "default"),
        ("deny", "danger"),
    ]
    assert (p.run_id, p.task_id) == (required.run_id, required.task_id)
    assert p.run_id == d.runs.live()[0].run_id
    assert p.session_key_ref.startswith("skr_")
    assert KEY not in p.session_key_ref
    view = d.runs.asked(p.approval_id)
    assert view is not None
    assert (view.pending, view.shim_id, view.choices) == (True, "ask1", tuple(ALL))
    assert brief([waiting]) == [["task", "waiting"]]
    assert d.fact(ask()) == []
    assert brief(d.fact(wire.ApprovalDone("ask1", "once", "cmd1"))) == [
        ["resolved", "once", "remote", "applied"],
        ["task", "running"],
    ]
    assert d.fact(wire.ApprovalDone("ask1", "deny", None)) == []
    view = d.runs.asked(p.approval_id)
    assert view is not None
    assert not view.pending


@pytest.mark.parametrize(
    ("choice", "command_id", "row"),
    [
        ("session", None, ["session", "local", "applied"]),
        ("deny", "cmd", ["deny", "remote", "applied"]),
        ("timeout", None, ["deny", "timeout", "expired"]),
        ("cancelled", None, ["deny", "local", "cancelled"]),
        ("notify_failed", None, ["deny", "local", "cancelled"]),
        ("smart_approve", None, ["once", "agent", "applied"]),
        ("smart_deny", None, ["deny", "agent", "applied"]),
        ("anything", None, ["deny", "local", "applied"]),
    ],
)
def test_who_decided_what(choice: str, command_id: str | None, row: list[str]) -> None:
    d = at_tool()
    d.fact(ask())
    events = d.fact(wire.ApprovalDone("ask1", choice, command_id))
    assert brief(events)[0] == ["resolved", *row]


def test_two_at_once_keep_the_run_waiting() -> None:
    d = at_tool()
    d.facts([ask("ask1"), ask("ask2"), wire.ApprovalDone("ask1", "once", None)])
    assert [row for row in brief(d.events) if row[0] == "task"] == [["task", "waiting"]]
    d.fact(wire.ApprovalDone("ask2", "once", None))
    assert brief(d.events)[-1] == ["task", "running"]


def test_follows_its_tool_and_is_held_no_longer_than_the_drain() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("w0")[:2]])
    d.events.clear()
    d.facts([wire.ToolStarted("s1:s1:t1", "s1", 1, "c0", "terminal", "rm"), ask()])
    assert d.events == []
    d.wait(0.3)
    assert [e.type for e in d.events[-3:]] == [
        "run.tool_started",
        "approval.required",
        "task.updated",
    ]
    assert d.events[-1].ts - d.now < -0.09


def test_nobody_waits_for_a_stream_that_follows() -> None:
    """An approval amid a later attempt's text (a tool of the background) comes at once."""
    d = at_tool()
    d.facts([asked(2), wire.Delta("s1:s1:t1", 2, "text", "text")])
    assert [row[0] for row in brief(d.fact(ask()))] == ["approval", "task"]


@pytest.mark.parametrize("more", [{"turn_id": None}, {"turn_id": "s9:s9:gone"}])
def test_without_a_known_run(more: dict[str, Any]) -> None:
    d = driver()
    (event,) = d.fact(ask(**more))
    assert event.run_id is None
    assert event.task_id is not None
    (event,) = d.fact(wire.ApprovalDone("ask1", "once", None))
    assert event.type == "approval.resolved"


def test_what_cannot_be_answered_offers_nothing() -> None:
    d = at_tool()
    p: Any = d.fact(ask(answerable=False))[0].payload
    assert p.choices == []


def test_huge_command_is_cut_and_offers_less() -> None:
    d = at_tool()
    command = "echo a; " + "ü" * COMMAND_BYTES + "; rm -rf /"
    p: Any = d.fact(ask(command=command))[0].payload
    assert p.truncated is True
    assert [c.choice for c in p.choices] == ["once", "deny"]
    assert len(p.command.encode()) <= COMMAND_BYTES
    assert p.command.startswith("echo a; ")
    assert p.command.endswith("; rm -rf /")
    whole = "x" * COMMAND_BYTES
    p = d.fact(ask("ask2", command=whole))[0].payload
    assert p.command == whole


def test_lost_with_its_boot() -> None:
    d = at_tool()
    d.fact(ask())
    assert brief(d.fact(GatewayLost()))[1:] == [
        ["resolved", "deny", "agent", "lost"],
        ["task", "running"],
        ["failed", "gateway_lost"],
        ["task", "idle"],
    ]


def test_lost_when_the_inventory_no_longer_lists_it() -> None:
    d = at_tool()
    d.facts([ask("ask1"), ask("ask2")])
    d.fact(ask("ask3"), dt=5)
    assert d.fact(wire.Inventory([KEY], ["ask1", "ask2"]), dt=0.1) == []
    events = d.fact(wire.Inventory([KEY], ["ask1"]), dt=5)
    assert brief(events) == [["resolved", "deny", "agent", "lost"]] * 2
    d.boot = "boot2"
    assert d.fact(wire.Inventory([], []), dt=5) == []


def test_decided_after_the_run_ended() -> None:
    d = at_tool()
    d.facts([ask(), ended(interrupted=True)])
    d.wait(60)
    assert d.stored
    assert brief(d.fact(wire.ApprovalDone("ask1", "deny", None))) == [
        ["resolved", "deny", "local", "applied"]
    ]
    d.wait(40)
    assert d.ended == ["s1:s1:t1"]
    d.wait(601)
    assert len(d.stored) == 1
    assert d.runs.deadline is None


def test_asked_before_the_run_began() -> None:
    """It is told at once, of no run, and never makes the run that begins later wait."""
    d = driver()
    d.fact(started())
    assert [e.run_id for e in d.fact(ask())] == [None]
    d.fact(asked())
    assert brief(d.fact(wire.ApprovalDone("ask1", "once", None))) == [
        ["resolved", "once", "local", "applied"]
    ]


def required(events: list[Event]) -> list[str]:
    return [e.payload.approval_id for e in events if isinstance(e.payload, ApprovalRequired)]


def waiting(d: Driver, approval_ids: list[str]) -> list[str]:
    """Those that can be answered now, and after a restart as well."""
    found = [[a for a in approval_ids if _waits(runs, a)] for runs in (d.runs, d.recovered())]
    assert found[0] == found[1]
    return found[0]


def _waits(runs: Runs, approval_id: str) -> bool:
    view = runs.asked(approval_id)
    return view is not None and view.pending


def test_of_too_many_approvals_phones_are_told_that_they_cannot_answer() -> None:
    d = driver()
    for i in range(MAX_ASKS + 10):
        d.fact(ask(f"ask{i}", turn_id=None, command=f"rm {i}"), dt=0.001)
    assert d.runs.dropped["too_many_approvals"] == 10
    assert len(required(d.events)) == MAX_ASKS
    assert len(waiting(d, required(d.events))) == MAX_ASKS
    told: list[Any] = [e.payload for e in d.events if isinstance(e.payload, Notification)]
    assert [p.text.splitlines()[-1] for p in told] == [f"rm {MAX_ASKS + i}" for i in range(10)]
    assert {(p.source, p.requires_attention) for p in told} == {("loomid", True)}
    assert "Hermes only" in told[0].text
    beyond = ids.approval_id(DRIVEN, "gw", "boot", f"ask{MAX_ASKS}")
    assert waiting(d, [beyond]) == []
    d.events.clear()
    d.fact(wire.ApprovalDone(f"ask{MAX_ASKS}", "once", None))
    assert d.events == []
    d.fact(ask("ask3", turn_id=None))
    assert d.events == []
    d.facts([wire.ApprovalDone("ask3", "deny", None), ask("more", turn_id=None)])
    assert [e.type for e in d.events] == ["approval.resolved", "approval.required"]


def test_approvals_are_bounded_in_size_too() -> None:
    d = driver()
    huge = "x" * 250_000
    for i in range(100):
        d.fact(ask(f"ask{i}", turn_id=None, command=huge), dt=0.001)
    kept = len(required(d.events))
    assert kept == -(-MAX_BYTES // len(facts.dump(ask("ask10", turn_id=None, command=huge))))
    assert len(waiting(d, required(d.events))) == kept
    assert d.runs.dropped["too_many_approvals"] == 100 - kept


@pytest.mark.parametrize("command", ["rm", "x" * 100_000])
def test_those_that_were_decided_make_room(command: str) -> None:
    d = driver()
    for i in range(MAX_ASKS + 100):
        d.facts([ask(f"ask{i}", turn_id=None, command=command)], dt=0.001)
        d.facts([wire.ApprovalDone(f"ask{i}", "deny", None)], dt=0.001)
    assert len(required(d.events)) == MAX_ASKS + 100
    assert d.runs.dropped["too_many_approvals"] == 0
    assert len(d.stored) <= 2 * MAX_ASKS + 2
    assert sum(len(facts.dump(arrival.fact)) for _, arrival in d.stored) < MAX_BYTES + 500_000
    assert waiting(d, required(d.events)) == []
    d.wait(KEEP_S + 1)
    assert len(d.stored) == 1


def test_a_gateway_that_is_lost_decides_all_at_once() -> None:
    d = driver()
    for i in range(MAX_ASKS):
        d.fact(ask(f"ask{i}", turn_id=None))
    d.events.clear()
    d.fact(GatewayLost())
    assert brief(d.events)[1:] == [["resolved", "deny", "agent", "lost"]] * MAX_ASKS
    d.wait(KEEP_S + 1)
    assert {arrival.kind for _, arrival in d.stored} == {"gateway.up", "gateway.lost"}


def test_asked_when_very_much_waits_to_be_told() -> None:
    d = driver()
    d.facts([started(), asked(), *answered("so")[:2]])
    for i in range(MAX_STEPS + 10):
        d.fact(wire.ToolStarted("s1:s1:t1", "s1", 1, f"c{i}", "terminal", "ls"))
    d.events.clear()
    d.facts([ask(), wire.ApprovalDone("ask1", "deny", None)])
    d.wait(5)
    assert d.runs.dropped["too_many_steps"] > 0
    assert brief(e for e in d.events if e.type.startswith("approval."))[1:] == [
        ["resolved", "deny", "local", "applied"]
    ]


def test_asked_and_decided_while_the_end_waits_for_text() -> None:
    """The turn is stopped, and its last words may still come: the end is not told yet."""
    d = driver()
    d.facts([started(), asked(), *answered("so")[:2]])
    d.events.clear()
    d.fact(wire.LoopStopped(KEY, "stop"))
    d.facts([ask(), wire.ApprovalDone("ask1", "cancelled", None)])
    d.wait(1.0)
    assert [e.type for e in d.events if e.type != "task.updated"] == [
        *("approval.required", "approval.resolved", "run.completed")
    ]


def test_decided_while_the_end_waits_for_text() -> None:
    d = at_tool()
    d.facts([ask(), asked(2), wire.Delta("s1:s1:t1", 2, "so", "text")])
    d.events.clear()
    d.facts([wire.LoopStopped(KEY, "stop"), wire.ApprovalDone("ask1", "cancelled", None)])
    d.wait(1.0)
    assert [e.type for e in d.events if e.type != "task.updated"] == [
        *("approval.resolved", "run.completed")
    ]
