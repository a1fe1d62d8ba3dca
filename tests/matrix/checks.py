"""What must hold of every run, on every release, whatever happened (docs/protocol.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.phone import Got

ENDS = ("run.completed", "run.failed")

# Seed §4: type → the fields each of its frames must have.
FIELDS: dict[str, set[str]] = {
    "hello.ok": {
        "device_id", "server_name", "server_version", "protocol_version", "server_time",
        "truncated", "home_channel",
    },
    "error": {"code", "message", "fatal"},
    "run.started": {
        "run_id", "task_id", "session_id", "surface", "model", "provider", "started_at", "title",
    },
    "run.delta": {"run_id", "text", "kind", "iteration"},
    "run.interim": {"run_id", "text", "already_streamed"},
    "run.tool_started": {"run_id", "iteration", "tool", "preview", "index", "call_id"},
    "run.tool_finished": {"run_id", "iteration", "tool", "ok", "index", "call_id", "duration"},
    "run.completed": {"run_id", "status", "text", "error", "finished"},
    "run.failed": {"run_id", "error", "status"},
    "approval.required": {
        "approval_id", "run_id", "task_id", "command", "description", "choices", "smart_denied",
        "session_key_ref", "deadline_ts",
    },
    "approval.resolved": {"approval_id", "choice", "decided_by"},
    "notification": {"category", "title", "text", "source", "requires_attention"},
    "task.list.result": {"tasks"},
    "pong": set(),
    "ping": set(),
}  # fmt: skip


def check_fields(got: Sequence[Got]) -> None:
    """Each frame has every field that the seed's tables name."""
    for one in got:
        missing = FIELDS.get(one.type, set()) - set(one.payload)
        assert not missing, (one.type, missing)


def check_run(got: Sequence[Got], run_id: str) -> None:
    """Order, one end, tools in pairs, and text exactly once, of one run."""
    mine = [g for g in got if g.frame.run_id == run_id and g.type.startswith("run.")]
    mine = [g for g in mine if g.type != "run.attachment"]  # may come after the end
    check_fields(mine)
    story = [(g.type, g.payload) for g in mine]
    types = [g.type for g in mine]
    assert types[0] == "run.started", story
    assert types.count("run.started") == 1, story
    ends = [index for index, name in enumerate(types) if name in ENDS]
    assert len(ends) <= 1, story
    assert not ends or ends[0] == len(mine) - 1, story
    iterations = [
        g.payload["iteration"] for g in mine if g.type in ("run.delta", "run.tool_started")
    ]
    assert iterations == sorted(iterations), story
    _check_tools(mine)
    if ends and types[-1] == "run.completed" and mine[-1].payload["status"] == "completed":
        _check_text(mine)


def _check_tools(mine: list[Got]) -> None:
    started: dict[tuple[int, str], int] = {}
    next_index: dict[int, int] = {}
    for one in mine:
        payload = one.payload
        if one.type == "run.tool_started":
            key = (payload["iteration"], payload["call_id"])
            assert key not in started, payload
            assert payload["index"] == next_index.get(payload["iteration"], 0), payload
            next_index[payload["iteration"]] = payload["index"] + 1
            started[key] = payload["index"]
        elif one.type == "run.tool_finished":
            assert started.pop((payload["iteration"], payload["call_id"])) == payload["index"]
            assert payload["duration"] >= 0
    if mine[-1].type == "run.completed" and mine[-1].payload["status"] == "completed":
        assert not started, "a tool never finished"


def _check_text(mine: list[Got]) -> None:
    """The last iteration's text, as a phone shows it, is the truth of the end."""
    shown: dict[int, str] = {}
    for one in mine:
        if one.type == "run.delta" and one.payload["kind"] == "text":
            at = one.payload["iteration"]
            shown[at] = shown.get(at, "") + one.payload["text"]
        elif one.type == "run.text":
            shown[one.payload["iteration"]] = one.payload["text"]
    end: dict[str, Any] = mine[-1].payload
    last = shown[max(shown)] if shown else ""
    assert last.strip() == end["text"].strip(), (shown, end)
