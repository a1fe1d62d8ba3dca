"""Generators of what Hermes does in a turn, and of the orders its facts may come in.

A turn is made as a causal list of (hook, fact). The synchronous hooks share one order;
each stream hook has a queue of its own, so its facts may come later than their cause, but
never out of their own order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from loomid import wire
from loomid.lmp.facts import Arrival, GatewayUp

KEY = "agent:main:loomi:dm:chat"
STREAM_UP = GatewayUp("rig", "0.22.2", "0.1.0", ["stream"], None)
EDITS_UP = GatewayUp("rig", "0.19.0", "0.1.0", ["edits"], None)

HOOKS = ("sync", "start", "delta", "end", "interim", "loop")

words = st.lists(
    st.sampled_from(["ah ", "beta ", "ga", "\n", "delta. ", "ε", "👩‍👩‍👦 "]), min_size=1, max_size=6
)


@dataclass
class Script:
    """One turn: its facts in causal order, and what a phone must be told in the end."""

    turn_id: str
    facts: list[tuple[str, Any]] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    """True text of each iteration; None where it depends on what was shown."""
    tools: int = 0
    status: str = "completed"
    retracts: bool = False
    """Text may be shown that proves wrong: a retry says something else, or follows a lost
    connection so fast that its deltas cannot be told from those of the failed stream."""

    def sync(self, fact: Any) -> None:
        self.facts.append(("sync", fact))

    def stream(self, hook: str, fact: Any) -> None:
        self.facts.append((hook, fact))


def _attempt(
    script: Script, call: int, pieces: list[str], *, reasoning: list[str], api: bool = True
) -> None:
    turn = script.turn_id
    if api:
        script.sync(wire.ApiStarted(turn, "s1", call, "m", "p", "loomi"))
    script.stream("start", wire.StreamStarted(turn, call, "s1", "m", "p", "loomi"))
    for piece in reasoning:
        script.stream("delta", wire.Delta(turn, call, piece, "reasoning"))
    for piece in pieces:
        script.stream("delta", wire.Delta(turn, call, piece, "text"))


def _prefixed(prefix: str, pieces: list[str]) -> list[str]:
    """Hermes puts newlines before the first delta after tools or a redirect."""
    return [prefix + pieces[0], *pieces[1:]] if pieces else []


def _ended(script: Script, call: int, text: str, *, error: str | None = None) -> None:
    script.stream("end", wire.StreamEnded(script.turn_id, call, text, error is None, error))


def _answered(script: Script, call: int, text: str, tools: int) -> None:
    reason = "tool_calls" if tools else "stop"
    script.sync(wire.ApiEnded(script.turn_id, call, reason, text.strip()))


@st.composite
def turns(draw: st.DrawFn, turn_id: str = "s1:s1:t1") -> Script:
    """A turn of one to three model calls, with retries, redirects, tools and an end."""
    script = Script(turn_id)
    script.sync(wire.TurnStarted(turn_id, "s1", KEY, "loomi", "m", "do it"))
    calls = draw(st.integers(1, 3))
    for call in range(1, calls + 1):
        last = call == calls
        prefix = "\n\n" if call > 1 else ""
        how = draw(st.sampled_from(["plain", "plain", "retry", "diverge", "redirect"]))
        pieces = draw(words)
        text = "".join(pieces)
        reasoning = draw(st.lists(st.sampled_from(["hm ", "so "]), max_size=2))
        if how in ("retry", "diverge"):
            failed = pieces[: draw(st.integers(0, len(pieces)))]
            _attempt(script, call, _prefixed(prefix, failed), reasoning=reasoning)
            _ended(script, call, "", error="peer closed connection")
            if draw(st.booleans()):
                script.sync(wire.ApiFailed(turn_id, "s1", call, 500, "server_error", True, "500"))
                script.facts.append(("pause", None))
            else:
                script.retracts = True
            if how == "diverge":
                pieces = ["other ", *pieces]
                text = "".join(pieces)
                script.retracts = True
        elif how == "redirect":
            _attempt(script, call, _prefixed(prefix, pieces), reasoning=reasoning)
            _ended(script, call, text)
            prefix = "\n\n"
            script.texts.append(text.strip())
            pieces = draw(words)
            text = "".join(pieces)
        _attempt(script, call, _prefixed(prefix, pieces), reasoning=[])
        _ended(script, call, text)
        script.texts.append(text.strip())
        tools = 0 if last else draw(st.integers(1, 2))
        _answered(script, call, text, tools)
        if tools and text.strip():
            script.stream("interim", wire.Interim(turn_id, call, text.strip(), False))
        for index in range(tools):
            # The same ids come again in every answer: nothing makes them unique.
            call_id = f"call_{index}"
            script.sync(wire.ToolStarted(turn_id, "s1", call, call_id, "terminal", "ls"))
            if draw(st.booleans()):
                ask = f"{turn_id}-{call}-{index}"
                script.sync(_asked(turn_id, call_id, ask))
                script.sync(wire.ApprovalDone(ask, "once", None))
            script.sync(wire.ToolEnded(turn_id, call_id, "terminal", "ok", 12.0))
            script.tools += 1
    _end(draw, script, text)
    return script


def _asked(turn_id: str, call_id: str, ask: str) -> wire.ApprovalAsked:
    choices = ["once", "session", "always", "deny"]
    return wire.ApprovalAsked(
        ask, KEY, "s1", turn_id, call_id, "rm -rf /", "delete", choices, False, 60.0, True
    )


def _end(draw: st.DrawFn, script: Script, text: str) -> None:
    turn = script.turn_id
    script.status = draw(st.sampled_from(["completed", "completed", "cancelled", "failed"]))
    if script.status == "completed":
        if text.strip():
            script.sync(wire.TurnAnswered(turn, text.strip()))
        script.sync(wire.TurnEnded(turn, "s1", True, False, False, "text_response"))
        script.sync(wire.ProcessingEnded(KEY, "in1", "success"))
    elif script.status == "cancelled":
        script.sync(wire.TurnEnded(turn, "s1", True, True, False, "interrupted"))
        script.sync(wire.ProcessingEnded(KEY, "in1", "cancelled"))
    else:
        script.sync(wire.ApiStarted(turn, "s1", 9, "m", "p", "loomi"))
        script.sync(wire.ApiFailed(turn, "s1", 9, 400, "format_error", False, "Error 400"))
        script.sync(wire.ProcessingEnded(KEY, "in1", "success"))


@st.composite
def edited_turns(draw: st.DrawFn, turn_id: str = "s1:s1:t1") -> Script:
    """The same on 0.19: no stream hooks, text comes as messages that are edited."""
    script = Script(turn_id)
    script.sync(wire.TurnStarted(turn_id, "s1", KEY, "loomi", "m", "do it"))
    calls = draw(st.integers(1, 3))
    for call in range(1, calls + 1):
        pieces = draw(st.just([]) | words)
        text = "".join(pieces)
        script.sync(wire.ApiStarted(turn_id, "s1", call, "m", "p", "loomi"))
        shown = "\n\n" if call > 1 else ""
        message, sent = f"out{call}", False
        for piece in pieces:
            shown += piece
            # Hermes sends nothing blank, and begins no message with under four characters.
            # The fold must need neither, so a message may begin with any piece here.
            if draw(st.booleans()):
                update = shown + " ▉"
                edit = wire.Edited("chat", message, update, False)
                script.stream("loop", edit if sent else _sent(message, update, edits=True))
                sent = True
        tools = 0 if call == calls else 1
        _answered(script, call, text, tools)
        if sent:
            script.stream("loop", wire.Edited("chat", message, shown, True))
        elif shown.strip():
            script.stream("loop", _sent(message, shown, edits=True))
        script.texts.append(text.strip())
        if tools:
            script.sync(wire.ToolStarted(turn_id, "s1", call, "call_0", "terminal", "ls"))
            script.sync(wire.ToolEnded(turn_id, "call_0", "terminal", "ok", 12.0))
            script.tools += 1
    _end(draw, script, text)
    return script


def _sent(message: str, text: str, *, edits: bool = False, notify: bool = False) -> wire.Sent:
    return wire.Sent("chat", KEY, message, text, "in1", notify, edits, False, None)


@st.composite
def orders(
    draw: st.DrawFn, script: Script, *, late: float = 0.1, t0: float = 1_000.0
) -> list[tuple[float, Any]]:
    """(arrival time, fact): an order that Hermes' races allow."""
    now, done = t0, dict.fromkeys(HOOKS, t0)
    timed: list[tuple[float, int, Any]] = []
    gaps = st.sampled_from([0.0, 0.001, 0.01, 0.05])
    delays = st.sampled_from([0.0, 0.0, late / 10, late])
    for index, (hook, fact) in enumerate(script.facts):
        if hook == "pause":
            now += 1.0
            continue
        now += draw(gaps)
        done[hook] = max(done[hook], now + (draw(delays) if hook != "sync" else 0.0))
        timed.append((done[hook], index, fact))
    return [(at, fact) for at, _, fact in sorted(timed, key=lambda row: row[:2])]


def numbered(
    timed: list[tuple[float, Any]], *, boot: str = "boot", first: int = 1
) -> list[Arrival]:
    """As arrivals of one boot, from that number on."""
    local = "loomid.lmp.facts"
    return [
        Arrival("gw", boot, 0 if type(fact).__module__ == local else n, at, at, fact)
        for n, (at, fact) in enumerate(timed, start=first)
    ]
