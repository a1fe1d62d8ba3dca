"""What Hermes stores of a turn: messages made from a script, and those of a real state.db."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.lmp.parts import Part
from loomid.lmp.stored import Row, calls_of, content_of, json_of, turn_of
from tests.support.live import LiveRun

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loomid.lmp.frames import Event
    from loomid.lmp.history_frames import HistoryTurn
    from tests.support.turns import Script

LIMIT = 10**6
RESULT = '{"output": "a.txt", "exit_code": 0, "error": null}'


def stored(script: Script) -> list[Row]:
    """The messages that 0.20 and 0.22 keep of a turn that ran as the script says.

    Of a call that is made again in the same turn, the first answer was cut off by a message
    that was folded in; of a turn that was cancelled or failed the last answer is not kept.
    """
    serial = itertools.count(1)
    rows = [_row(serial, "user", "do it")]
    answers: list[list[Row]] = []
    streams = [f for _, f in script.facts if type(f) is wire.StreamEnded]
    for _, fact in script.facts:
        match fact:
            case wire.ApiEnded():
                ended = [s for s in streams if s.iteration == fact.call and s.error is None]
                cut_off = [_row(serial, "assistant", "", display="hidden")] * (len(ended) > 1)
                folded = [_row(serial, "user", "and then") for _ in cut_off]
                tools = _tools(script, fact.call)
                text = fact.text or ""
                said = _row(serial, "assistant", text, calls=tools, finish=fact.finish_reason)
                results = [
                    _row(serial, "tool", RESULT, call_id=t.call_id)
                    for t in (f for _, f in script.facts if type(f) is wire.ToolStarted)
                    if t.call == fact.call
                ]
                answers.append([*cut_off, *folded, said, *results])
            case _:
                pass
    if script.status != "completed":
        answers = answers[:-1]
    return rows + [row for answer in answers for row in answer]


def _tools(script: Script, call: int) -> str:
    started = [f for _, f in script.facts if type(f) is wire.ToolStarted and f.call == call]
    told = [
        {
            "id": fact.call_id,
            "type": "function",
            "function": {"name": fact.tool, "arguments": json.dumps({"command": fact.preview})},
        }
        for fact in started
    ]
    return json.dumps(told) if told else ""


def _row(
    serial: Any,
    role: Any,
    text: str,
    *,
    calls: str = "",
    finish: str = "",
    display: str = "",
    call_id: str = "",
) -> Row:
    number = next(serial)
    return Row(
        id=number,
        session_id="s1",
        role=role,
        ts=1_000.0 + number / 1_000,
        content=content_of(text, LIMIT),
        calls=calls_of(json_of(calls)),
        call_id=call_id,
        ok=True if role == "tool" else None,
        finish_reason=finish,
        display=display,
    )


def history(rows: list[Row], sent: Iterable[Part] = ()) -> HistoryTurn:
    """The turn that these messages are, and what was sent in it."""
    return turn_of(rows, "turn_1", sent=sent)


def told(events: Iterable[Event]) -> LiveRun:
    """What a phone makes of these events of one run."""
    run = LiveRun()
    for event in events:
        run.take(event.type, event.payload)
    return run


def common(parts: Iterable[Part], *kinds: str) -> list[dict[str, Any]]:
    """What both the live events and history can tell of parts of these kinds."""
    rows = []
    for part in parts:
        if part.kind in kinds:
            fields = {n: getattr(part, n) for n in ("part", "kind", "text", "tool", "preview")}
            rows.append(fields | {"status": part.status, "truncated": part.truncated})
    return rows
