"""What is alive after the visible events, and how a snapshot tells it."""

from __future__ import annotations

from loomid.lmp import frames
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.frames import Event
from loomid.lmp.projection import Projection
from tests.support.log import (
    asked,
    completed,
    delta,
    gateway,
    resolved,
    started,
    tool_finished,
    tool_started,
)


def project(*events: Event) -> Projection:
    projection = Projection()
    for position, event in enumerate(events, 1):
        projection.apply(event, position)
    return projection


def told(projection: Projection) -> list[tuple[str, str]]:
    """The snapshot in short: type and what matters of the payload."""
    short = []
    for event in projection.snapshot():
        match event.payload:
            case frames.RunDelta(text=text, iteration=iteration, kind=kind):
                short.append(("delta", f"{kind}{iteration}:{text}"))
            case frames.RunToolStarted(call_id=call_id):
                short.append(("tool", call_id))
            case frames.GatewayStatus(gateway_id=name, online=online):
                short.append(("gateway", f"{name}:{online}"))
            case _:
                short.append((event.type, event.run_id or ""))
    return short


def test_snapshot_has_gateways_then_runs_in_causal_order():
    projection = project(
        gateway("b"),
        started(),
        gateway("a"),
        delta("I ", kind="reasoning"),
        delta("look", kind="reasoning"),
        delta("See: "),
        tool_started("c1"),
        tool_started("c2"),
        tool_finished("c1"),
        delta("and ", iteration=2),
        delta("so", iteration=2),
        gateway("b", online=False),
    )
    assert told(projection) == [
        ("gateway", "b:False"),
        ("gateway", "a:True"),
        ("run.started", "run_1"),
        ("delta", "reasoning1:I look"),
        ("delta", "text1:See: "),
        ("tool", "c2"),
        ("delta", "text2:and so"),
    ]


def test_true_text_replaces_what_was_streamed_where_it_stood():
    def true_text(text: str) -> Event:
        return Event(frames.RunText(run_id="run_1", iteration=1, text=text), 1.0, None, "run_1")

    before = (started(), delta("ab"), tool_started("c1"))
    projection = project(*before, true_text("abc"))
    assert told(projection)[1:] == [("delta", "text1:abc"), ("tool", "c1")]
    projection = project(*before, true_text("abc"), delta("d"))
    assert told(projection)[1:] == [("delta", "text1:abcd"), ("tool", "c1")]
    assert told(project(*before, true_text("")))[1:] == [("tool", "c1")]


def test_what_was_said_beside_the_stream_stays_where_it_was_said():
    def event(payload: frames.Payload) -> Event:
        return Event(payload, 1.0, None, "run_1")

    def interim(text: str, *, streamed: bool) -> Event:
        return event(frames.RunInterim(run_id="run_1", text=text, already_streamed=streamed))

    sent = event(
        RunAttachment(
            task_id="task_1", run_id="run_1", attachment_id=None, media_type="", bytes=0, name="a"
        )
    )
    inputs = [event(frames.RunInput(run_id="run_1", text=text)) for text in ("and?", "more")]
    alone = interim("by itself", streamed=False)
    projection = project(
        started(),
        delta("ab"),
        interim("ab", streamed=True),
        tool_started("c1"),
        inputs[0],
        tool_finished("c1"),
        inputs[1],
        sent,
        alone,
        delta("cd", iteration=2),
    )
    shown = projection.snapshot()
    assert shown[2:6] == [*inputs, sent, alone]
    assert [one.type for one in shown] == [
        *("run.started", "run.delta", "run.input", "run.input"),
        *("run.attachment", "run.interim", "run.delta"),
    ]


def test_an_ended_run_leaves_nothing():
    projection = project(started(), delta("x"), tool_started("c"), completed(), delta("late"))
    assert projection.snapshot() == []
    assert projection.live_runs() == []


def test_events_of_unknown_runs_are_ignored():
    assert project(delta("x"), completed("run_9"), resolved("apr_9")).snapshot() == []


def test_snapshot_events_are_those_of_the_run():
    first, second = started("run_1", "task_1"), started("run_2", "task_2")
    projection = project(first, second, delta("x", "run_2"))
    assert [event.run_id for event in projection.snapshot()] == ["run_1", "run_2", "run_2"]
    assert projection.snapshot()[0] == first
    assert projection.run_of("task_2") == "run_2"


def test_pending_approvals_with_their_positions():
    projection = project(started(), asked("a"), asked("b"), resolved("a"))
    assert [(one.position, one.event.payload.approval_id) for one in projection.pending()] == [
        (3, "b")
    ]


def test_status_of_a_task():
    projection = project(started(), asked("a"), asked("b", task_id="task_2"))
    assert projection.status("task_1") == "waiting"
    assert projection.status("task_2") == "waiting"
    assert projection.status("task_3") == "idle"
    projection.apply(resolved("a"), 9)
    assert projection.status("task_1") == "running"
    projection.apply(completed(), 10)
    assert projection.status("task_1") == "idle"
