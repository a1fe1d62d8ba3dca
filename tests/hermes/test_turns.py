"""What a turn looks like in facts, in each release."""

from __future__ import annotations

import pytest

from tests.support.hermes import Gateway
from tests.support.peer import Peer

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(180)]


def inject(peer: Peer, text: str, chat: str, message_id: str, mode: str = "queue", **more: str):
    return peer.call("inject", chat_id=chat, text=text, message_id=message_id, mode=mode, **more)


def test_say(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    answer = inject(peer, "say 6 20", "say", "m-say", device_id="d1", request_id="r1")
    assert answer.error is None, answer
    key = "agent:main:loomi:dm:say"
    assert answer.value == {"session_key": key, "message_id": "m-say"}
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
        peer.until(lambda: "".join(f["text"] for f in peer.all("delta", at, turn_id=turn)).split() == stream["text"].split())
        sent = peer.wait("sent", at, session_key=key, notify=True)
        assert sent["text"].split() == stream["text"].split()
        assert sent["reply_to"] == "m-say"
        assert not peer.all("edited", at)
    order = [f["kind"] for f in peer.facts[at:]]
    assert order.index("injected") < order.index("processing.started") < order.index("turn.started")
