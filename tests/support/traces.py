"""Recorded calls of real Hermes gateways (tests/data/traces) as the shim's facts.

Each line of a trace is one hook or adapter call; see `facts` for how they map. Texts
longer than 600 characters were cut when the traces were recorded.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.lmp.facts import Arrival, GatewayUp, Tick
from tests.support.folding import Driver, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loomid.lmp.frames import Event

DATA = Path(__file__).parent.parent / "data"
TRACES = DATA / "traces"
GOLDEN = DATA / "golden"
RELEASES = ("19", "20", "22")
SCENARIOS = (
    *("say", "second", "tool", "tooltext", "tools", "approve", "deny", "approval_timeout"),
    *("clarify", "stop", "busy", "fail500", "fail400", "drop", "think", "new", "other_chat"),
)
EPOCH = 1_796_000_000.0
BOOT = "boot"
GATEWAY = "gw"


def key_of(chat_id: str) -> str:
    """Session key of a chat of ours."""
    return f"agent:main:loomi:dm:{chat_id}"


def gateway_up(release: str) -> GatewayUp:
    """What the shim of that release would have said hello with."""
    features = ["edits"] if release == "19" else ["stream", "request_id", "control_off", "steer"]
    return GatewayUp("rig", f"0.{release}.0", "0.1.0", features, key_of("home"))


class Converter:
    """Trace lines of one release → facts, each under the scenario it belongs to."""

    def __init__(self, release: str) -> None:
        with (TRACES / f"hermes-{release}.jsonl").open(encoding="utf-8") as lines:
            self._lines = [json.loads(line) for line in lines]
        self._chats = {
            line["kw"]["message_id"]: line["kw"].get("chat_id", "chat1")
            for line in self._lines
            if line["name"] == "inject"
        }
        # The trace of "inject" leaves out chat_id where it is cut; processing.started has it.
        for line in self._lines:
            if line["name"] == "on_processing_start":
                event = line["kw"]["event"]
                self._chats[event["message_id"]] = event["source"]["chat_id"]
        self._scenario = -1
        self._after_new = False
        self._chat = "chat1"
        self._running: set[str] = set()
        self._asked = 0

    def facts(self) -> Iterator[tuple[str, float, Any]]:
        """(scenario, hook time, fact) in recorded order."""
        for line in self._lines:
            make = _MAKE.get(line["name"])
            if make is None or line["src"] not in ("hook", "adapter", "ctl"):
                continue
            fact = make(self, line["kw"])
            if fact is not None:
                yield SCENARIOS[max(self._scenario, 0)], EPOCH + line["t"], fact

    def _injected(self, kw: dict[str, Any]) -> Any:
        text, message_id = kw["text"], kw["message_id"]
        chat = self._chats[message_id]
        if text not in ("/stop", "say 4 30") and not self._after_new:
            self._scenario += 1
        self._after_new = text == "/new"
        key = key_of(chat)
        busy = key in self._running
        mode = "command" if text.startswith("/") else "interrupt" if busy else "queue"
        return wire.Injected(key, message_id, text, mode, busy, "dev_1", f"req_{message_id}")

    def _processing_started(self, kw: dict[str, Any]) -> Any:
        self._chat = kw["event"]["source"]["chat_id"]
        return wire.ProcessingStarted(key_of(self._chat), kw["event"]["message_id"])

    def _processing_ended(self, kw: dict[str, Any]) -> Any:
        event = kw["event"]
        outcome = kw["outcome"].split(".")[-1].rstrip(">").lower()
        return wire.ProcessingEnded(
            key_of(event["source"]["chat_id"]), event["message_id"], outcome
        )

    def _turn_started(self, kw: dict[str, Any]) -> Any:
        self._running.add(key_of(self._chat))
        return wire.TurnStarted(
            kw["turn_id"],
            kw["session_id"],
            key_of(self._chat),
            kw["platform"],
            kw["model"],
            kw["user_message"],
            kw.get("parent_session_id") or None,
        )

    def _turn_ended(self, kw: dict[str, Any]) -> Any:
        self._running.discard(key_of(self._chat))
        return wire.TurnEnded(
            kw["turn_id"],
            kw["session_id"],
            kw["completed"],
            kw["interrupted"],
            kw.get("failed", False),
            kw.get("turn_exit_reason", ""),
        )

    def _api_ended(self, kw: dict[str, Any]) -> Any:
        # Hermes gives the text; the traces kept only its length.
        text = "" if kw.get("assistant_content_chars") == 0 else None
        return wire.ApiEnded(kw["turn_id"], kw["api_call_count"], kw["finish_reason"], text)

    def _api_failed(self, kw: dict[str, Any]) -> Any:
        self._running.discard(key_of(self._chat))
        return wire.ApiFailed(
            kw["turn_id"],
            kw["session_id"],
            kw["api_call_count"],
            kw["status_code"],
            kw["reason"],
            kw["retryable"],
            kw["error"]["message"],
        )

    def _approval_asked(self, kw: dict[str, Any]) -> Any:
        self._asked += 1
        return wire.ApprovalAsked(
            f"ask{self._asked}",
            kw["session_key"],
            kw.get("session_id"),
            kw["turn_id"],
            kw["tool_call_id"],
            kw["command"],
            kw["description"],
            ["once", "session", "always", "deny"],
            False,
            6.0,
            True,
        )

    def _sent(self, kw: dict[str, Any]) -> Any:
        meta = kw["metadata"] or {}
        return wire.Sent(
            kw["chat_id"],
            key_of(kw["chat_id"]),
            kw["->"],
            kw["content"],
            kw["reply_to"],
            bool(meta.get("notify")),
            bool(meta.get("expect_edits")),
            bool(meta.get("_interim_send")),
            meta.get("job_id"),
        )


def _stream_started(_: Converter, kw: dict[str, Any]) -> Any:
    return wire.StreamStarted(
        kw["turn_id"],
        kw["iteration"],
        kw["session_id"],
        kw["model"],
        kw["provider"],
        kw["surface"],
    )


_MAKE: dict[str, Callable[[Converter, dict[str, Any]], Any]] = {
    "inject_begin": Converter._injected,
    "on_processing_start": Converter._processing_started,
    "on_processing_complete": Converter._processing_ended,
    "pre_llm_call": Converter._turn_started,
    "on_session_end": Converter._turn_ended,
    "post_api_request": Converter._api_ended,
    "api_request_error": Converter._api_failed,
    "pre_approval_request": Converter._approval_asked,
    "send": Converter._sent,
    "on_stream_start": _stream_started,
    "on_stream_delta": lambda _, kw: wire.Delta(
        kw["turn_id"], kw["iteration"], kw["delta"], kw["kind"]
    ),
    "on_stream_end": lambda _, kw: wire.StreamEnded(
        kw["turn_id"], kw["iteration"], kw["final_text"], kw["finished"], kw["error"]
    ),
    "on_interim_message": lambda _, kw: wire.Interim(
        kw["turn_id"], kw["iteration"], kw["text"], kw["already_streamed"]
    ),
    "pre_api_request": lambda _, kw: wire.ApiStarted(
        kw["turn_id"],
        kw["session_id"],
        kw["api_call_count"],
        kw["model"],
        kw["provider"],
        kw["platform"],
    ),
    "pre_tool_call": lambda _, kw: wire.ToolStarted(
        kw["turn_id"],
        kw["session_id"],
        int(kw["api_request_id"].rsplit(":", 1)[-1]),
        kw["tool_call_id"],
        kw["tool_name"],
        next((v for v in kw["args"].values() if isinstance(v, str)), ""),
    ),
    "post_tool_call": lambda _, kw: wire.ToolEnded(
        kw["turn_id"], kw["tool_call_id"], kw["tool_name"], kw["status"], kw["duration_ms"]
    ),
    "post_llm_call": lambda _, kw: wire.TurnAnswered(kw["turn_id"], kw["assistant_response"]),
    "agent_loop_stopped": lambda _, kw: wire.LoopStopped(kw["session_key"], kw["reason"]),
    "on_session_reset": lambda _, kw: wire.SessionReset(
        kw["old_session_id"], kw["new_session_id"], kw["reason"], key_of("chat1")
    ),
    "edit_message": lambda _, kw: wire.Edited(
        kw["chat_id"], kw["message_id"], kw["content"], kw["finalize"]
    ),
    "post_approval_response": lambda c, kw: wire.ApprovalDone(f"ask{c._asked}", kw["choice"], None),
}


def arrivals(release: str) -> Iterator[tuple[str, Arrival]]:
    """(scenario, arrival) of a whole trace, as loomid would have received it."""
    yield SCENARIOS[0], Arrival(GATEWAY, BOOT, 0, EPOCH, EPOCH, gateway_up(release))
    for n, (scenario, t, fact) in enumerate(Converter(release).facts(), start=1):
        yield scenario, Arrival(GATEWAY, BOOT, n, t, t, fact)


def replay(release: str) -> dict[str, list[Event]]:
    """The events of a whole trace by scenario."""
    driver = Driver(GATEWAY, t0=EPOCH)
    events: dict[str, list[Event]] = {}
    present = SCENARIOS[0]
    for scenario, arrival in arrivals(release):
        if scenario != present:  # what is due by now belongs to the one before
            events[present] += driver.take(replace(arrival, n=0, fact=Tick()))
            present = scenario
        events.setdefault(scenario, []).extend(driver.take(arrival))
    driver.now = arrival.at
    events[present] += driver.wait(1.0)
    return events


def main() -> None:
    """Write the golden summaries anew: python -m tests.support.traces"""
    for release in RELEASES:
        rows = {name: brief(events) for name, events in replay(release).items()}
        text = json.dumps(rows, ensure_ascii=False, indent=1)
        # One event a line.
        text = re.sub(r"\n {3,}", " ", text).replace("\n  ]", " ]")
        (GOLDEN / f"runs-{release}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
