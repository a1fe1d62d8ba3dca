"""What a turn looks like in facts, in each release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.peer import Peer, inject, key_of, run

if TYPE_CHECKING:
    from tests.support.hermes import Gateway


def test_say(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    answer = inject(peer, "say 6 20", "say", "m-say", device_id="d1", request_id="r1")
    assert answer.error is None, answer
    key = "agent:main:loomi:dm:say"
    assert answer.value == {
        "session_key": key,
        "message_id": "m-say",
        "copies": [],
        "dropped": [],
    }
    injected = peer.wait("injected", at, message_id="m-say")
    assert injected["session_key"] == key
    assert (injected["device_id"], injected["request_id"]) == ("d1", "r1")
    started = peer.wait("turn.started", at, session_key=key)
    assert started["text"] == "say 6 20"
    assert started["platform"] == "loomi"
    assert started["session_id"]
    turn = started["turn_id"]
    peer.wait("api.started", at, turn_id=turn, call=1)
    answered = peer.wait("turn.answered", at, turn_id=turn)
    assert answered["text"] == "w0 w1 w2 w3 w4 w5"
    ended = peer.wait("turn.ended", at, turn_id=turn)
    assert (ended["completed"], ended["interrupted"]) == (True, False)
    peer.wait("processing.ended", at, message_id="m-say", outcome="success")
    if gateway.release.streams:
        stream = peer.wait("stream.ended", at, turn_id=turn)
        assert stream["text"].split() == [f"w{i}" for i in range(6)]
        peer.until(
            lambda: (
                "".join(f["text"] for f in peer.all("delta", at, turn_id=turn)).split()
                == stream["text"].split()
            )
        )
        sent = peer.wait("sent", at, session_key=key, notify=True)
        assert sent["text"].split() == stream["text"].split()
        assert sent["reply_to"] == "m-say"
        assert not peer.all("edited", at)
    order = [f["kind"] for f in peer.facts[at:]]
    assert order.index("injected") < order.index("processing.started") < order.index("turn.started")


def test_tool(peer: Peer) -> None:
    at, turn = run(peer, "tool", "tool", "m-tool")
    started = peer.wait("tool.started", at, turn_id=turn)
    assert (started["tool"], started["preview"], started["call"]) == ("terminal", "echo hi", 1)
    ended = peer.wait("tool.ended", at, call_id=started["call_id"])
    assert ended["status"] == "ok"
    assert ended["ms"] >= 0
    assert peer.wait("api.ended", at, turn_id=turn, call=1)["finish_reason"] == "tool_calls"
    assert peer.wait("api.ended", at, turn_id=turn, call=2)["text"].startswith("done: ")
    assert peer.wait("turn.answered", at, turn_id=turn)["text"].startswith("done: ")


def test_text_before_a_tool(gateway: Gateway, peer: Peer) -> None:
    at, turn = run(peer, "tooltext 4", "tooltext", "m-tt")
    words = "w0 w1 w2 w3"
    assert peer.wait("api.ended", at, turn_id=turn, call=1)["text"].strip() == words
    if gateway.release.streams:
        assert peer.wait("interim", at, turn_id=turn)["text"].strip() == words
        assert peer.wait("stream.ended", at, turn_id=turn, iteration=1)["text"].strip() == words
    else:
        texts = [f["text"] for f in [*peer.all("sent", at), *peer.all("edited", at)]]
        assert any(words in text for text in texts)


def test_streaming_edits_are_the_deltas_of_0_19(gateway: Gateway, peer: Peer) -> None:
    at, _ = run(peer, "say 12 250", "edits", "m-edits")
    if gateway.release.streams:
        assert not peer.all("edited", at, chat_id="edits")
        assert len(peer.all("sent", at, chat_id="edits")) == 1
        return
    first = peer.wait("sent", at, chat_id="edits", expect_edits=True)
    edits = [f["text"] for f in peer.all("edited", at, message_id=first["message_id"])]
    assert len(edits) >= 2
    assert all(text.replace(" ▉", "").split()[0] == "w0" for text in edits)
    assert peer.all("edited", at, finalize=True)[-1]["text"].split() == [f"w{i}" for i in range(12)]


def test_reasoning(gateway: Gateway, peer: Peer) -> None:
    at, turn = run(peer, "think 4", "think", "m-think")
    assert peer.wait("turn.answered", at, turn_id=turn)["text"] == "thought it through"
    if gateway.release.streams:
        peer.wait("stream.ended", at, turn_id=turn)
        thought = peer.until(lambda: peer.all("delta", at, turn_id=turn, channel="reasoning"))
        assert "r0" in "".join(f["text"] for f in thought)


def test_failed_turn_has_no_end_but_an_error(peer: Peer) -> None:
    at, turn = run(peer, "fail 500", "fail", "m-fail")
    failed = peer.wait("api.failed", at, turn_id=turn)
    assert failed["status_code"] == 500
    assert failed["call"] == 1
    assert failed["reason"]
    assert "scripted failure 500" in failed["error"]
    assert not peer.all("turn.ended", at, turn_id=turn)
    assert peer.wait("processing.ended", at, message_id="m-fail")["outcome"] == "success"


def test_dropped_stream(peer: Peer) -> None:
    at, turn = run(peer, "drop 3", "drop", "m-drop", seconds=90)
    assert peer.all("api.started", at, turn_id=turn)
    peer.wait("processing.ended", at, message_id="m-drop")


def test_second_turn_and_new_session(peer: Peer) -> None:
    at, first = run(peer, "say 1", "twice", "m-t1")
    at2, second = run(peer, "say 2", "twice", "m-t2")
    assert first != second
    session = peer.wait("turn.started", at, turn_id=first)["session_id"]
    assert peer.wait("turn.started", at2, turn_id=second)["session_id"] == session
    at3 = peer.mark()
    assert inject(peer, "/new", "twice", "m-new", "command").error is None
    reset = peer.wait("session.reset", at3, old_session_id=session)
    assert peer.wait("injected", at3, message_id="m-new")["mode"] == "command"
    _, third = run(peer, "say 3", "twice", "m-t3")
    assert third.startswith(reset["new_session_id"])


def test_cron_send(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    text = "x" * 6000
    gateway.ask("deliver", chat_id="home", text=text)
    sent = peer.wait("sent", at, chat_id="home")
    assert sent["job_id"] == "job7"
    assert sent["text"] == text  # not cut at 4,000
    assert sent["session_key"] == key_of("home")


def test_turns_of_other_platforms(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    gateway.ask("inject", text="say 2", chat_id="elsewhere")
    started = peer.wait("turn.started", at, platform="other")
    assert started["session_key"] == "agent:main:other:dm:elsewhere"
    peer.wait("turn.ended", at, turn_id=started["turn_id"])
    assert not peer.all("processing.started", at)


def test_no_home_notice_and_no_error_in_the_log(gateway: Gateway, peer: Peer) -> None:
    at, _ = run(peer, "say 1", "fresh", "m-fresh")
    assert not [f for f in peer.all("sent", at) if "home" in f["text"].lower()]
    assert "loomi: hook" not in gateway.log
    assert "registered unknown hook" not in gateway.log
