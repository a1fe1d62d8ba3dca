"""Commands in real gateways: text stays text, cancel hits its own turn, modes are true."""

from __future__ import annotations

import pytest

from tests.support.hermes import Gateway, until
from tests.support.model import DANGER, Model
from tests.support.peer import Peer, inject, key_of, run

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(180)]

WORDS = [
    "yes",
    "no",
    "ok",
    "okay",
    "y",
    "n",
    "approve",
    "deny",
    "always",
    "session",
    "once",
    "confirm",
    "cancel",
    "reject",
    "nevermind",
    "👍",
    "👎",
]
PHRASES = ("approve always", "approve session", "restart gateway", "Please restart Hermes.")
COMMANDS = (
    "/stop",
    "/new",
    "/approve",
    "/yolo",
    "/restart",
    "/deny all",
    "/nonsense",
    "/etc/passwd",
)


def start_slow(peer: Peer, chat: str, message_id: str, text: str = "slow 30") -> tuple[int, str]:
    at = peer.mark()
    assert inject(peer, text, chat, message_id).error is None
    turn = peer.wait("turn.started", at, session_key=key_of(chat))["turn_id"]
    peer.wait("api.started", at, turn_id=turn)
    return at, turn


def cancel(peer: Peer, chat: str, turn: str):
    return peer.call("cancel", session_key=key_of(chat), turn_id=turn)


@pytest.mark.parametrize("text", [*WORDS, *PHRASES, *COMMANDS])
def test_text_is_conversation_when_idle(peer: Peer, model: Model, text: str) -> None:
    number = [*WORDS, *PHRASES, *COMMANDS].index(text)
    message_id = f"m-idle{number}"
    _, turn = run(peer, text, "words", message_id)
    assert peer.wait("turn.started", turn_id=turn)["text"] == text
    assert model.asked(text)


@pytest.mark.parametrize("text", [*WORDS, *PHRASES[:2]])
def test_text_is_no_answer_to_an_approval(peer: Peer, text: str) -> None:
    chat = f"ans{[*WORDS, *PHRASES].index(text)}"
    at = peer.mark()
    inject(peer, f"danger {DANGER}", chat, "m-ask")
    asked = peer.wait("approval.asked", at, session_key=key_of(chat))
    assert inject(peer, text, chat, "m-word").error is None
    assert inject(peer, "/approve", chat, "m-cmd").error == "reserved_text"
    assert not peer.all("approval.done", at)
    peer.call("approve", approval_id=asked["approval_id"], choice="deny")
    peer.wait("turn.started", at, session_key=key_of(chat), text=text)
    peer.wait("processing.ended", at, message_id="m-ask")


@pytest.mark.parametrize("mode", ["queue", "steer", "interrupt"])
@pytest.mark.parametrize("text", ["/stop", "/new now", " /queue x"])
def test_commands_are_refused_as_text_while_busy(peer: Peer, text: str, mode: str) -> None:
    """Every release drops a queued text that begins with one of its commands."""
    chat = "busycmd"
    at = peer.mark()
    running = peer.call("running").value["keys"]
    if key_of(chat) not in running:
        start_slow(peer, chat, "m-slow", "slow 60")
    assert inject(peer, text, chat, "m-no", mode).error == "reserved_text"
    assert not peer.all("injected", at, message_id="m-no")


def test_confirmation_words_are_refused_while_one_is_asked(gateway: Gateway, peer: Peer) -> None:
    key = key_of("confirm")
    gateway.ask("ask_confirm", session_key=key)
    try:
        for text in ("always", "No", "!cancel", "approve once"):
            at = peer.mark()
            answer = inject(peer, text, "confirm", "m-confirm")
            if gateway.release.streams:
                assert answer.error is None
                peer.wait("processing.ended", at, message_id="m-confirm")
            else:
                assert answer.error == "reserved_text"
    finally:
        gateway.ask("clear_confirm", session_key=key)
    assert not [entry for entry in gateway.ask("sent") if entry[0] == "confirm"]


def test_cancel(peer: Peer) -> None:
    at, turn = start_slow(peer, "cancel", "m-cancel")
    assert cancel(peer, "cancel", turn + "x").error == "not_active"
    answer = cancel(peer, "cancel", turn)
    assert answer.value == {"state": "cancelling", "dropped": []}
    ended = peer.wait("turn.ended", at, turn_id=turn)
    assert ended["interrupted"] is True
    peer.wait("processing.ended", at, message_id="m-cancel", outcome="cancelled")
    assert cancel(peer, "cancel", turn).error == "not_active"
    stopped = peer.wait("sent", at, notify=True, session_key=key_of("cancel"))
    assert peer.wait("injected", at, message_id=stopped["reply_to"])["mode"] == "command"
    run(peer, "say 2", "cancel", "m-after")


def test_cancel_touches_no_later_turn(peer: Peer) -> None:
    _, old = run(peer, "say 1", "later", "m-old")
    at, turn = start_slow(peer, "later", "m-new")
    assert cancel(peer, "later", old).error == "not_active"
    assert not peer.all("turn.ended", at)
    assert cancel(peer, "later", turn).error is None
    peer.wait("processing.ended", at, message_id="m-new")


def test_cancel_says_what_it_dropped(gateway: Gateway, peer: Peer) -> None:
    at, turn = start_slow(peer, "drops", "m-d1")
    inject(peer, "say 2", "drops", "m-d2")
    inject(peer, "say 3", "drops", "m-d3")
    waiting = [message_id for message_id, _ in gateway.ask("queue", session_key=key_of("drops"))]
    assert waiting == ["m-d2", "m-d3"]
    answer = cancel(peer, "drops", turn)
    peer.wait("processing.ended", at, message_id="m-d1")
    left = [message_id for message_id, _ in gateway.ask("queue", session_key=key_of("drops"))]
    started = {f["text"] for f in peer.all("turn.started", at, session_key=key_of("drops"))}
    assert answer.value["dropped"]
    for message_id, text in (("m-d2", "say 2"), ("m-d3", "say 3")):
        gone = message_id not in left and text not in started
        assert (message_id in answer.value["dropped"]) == gone


def test_cancel_on_another_surface(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    gateway.ask("inject", text="slow 30", chat_id="tgslow", message_id="o-slow")
    key = "agent:main:other:dm:tgslow"
    turn = peer.wait("turn.started", at, session_key=key)["turn_id"]
    peer.wait("api.started", at, turn_id=turn)
    assert peer.call("cancel", session_key=key, turn_id=turn).error is None
    assert peer.wait("turn.ended", at, turn_id=turn)["interrupted"] is True
    assert not peer.all("injected", at)


def test_queue_while_busy(peer: Peer) -> None:
    at, turn = start_slow(peer, "queue", "m-q1", "slow 2")
    assert inject(peer, "say 3", "queue", "m-q2", "queue").error is None
    assert peer.wait("injected", at, message_id="m-q2")["busy"] is True
    first = peer.wait("turn.ended", at, turn_id=turn)
    assert first["interrupted"] is False
    second = peer.wait("turn.started", at, session_key=key_of("queue"), text="say 3")
    assert second["turn_id"] != turn
    assert peer.wait("turn.answered", at, turn_id=second["turn_id"])["text"] == "w0 w1 w2"


def test_interrupt_while_busy(gateway: Gateway, peer: Peer) -> None:
    at, turn = start_slow(peer, "intr", "m-i1")
    assert inject(peer, "say 3", "intr", "m-i2", "interrupt").error is None
    if gateway.release.streams:  # folded into the same turn
        peer.wait("turn.ended", at, turn_id=turn)
        assert peer.wait("turn.answered", at, turn_id=turn)["text"] == "w0 w1 w2"
        assert len(peer.all("turn.started", at, session_key=key_of("intr"))) == 1
    else:
        assert peer.wait("turn.ended", at, turn_id=turn)["interrupted"] is True
        second = peer.wait("turn.started", at, session_key=key_of("intr"), text="say 3")
        assert peer.wait("turn.answered", at, turn_id=second["turn_id"])["text"] == "w0 w1 w2"
    peer.wait("processing.ended", at, message_id="m-i1")


def test_steer_while_busy(peer: Peer, model: Model) -> None:
    at = peer.mark()
    inject(peer, f"danger {DANGER}", "steer", "m-s1")
    asked = peer.wait("approval.asked", at, session_key=key_of("steer"))
    assert inject(peer, "mind the gap — please", "steer", "m-s2", "steer").error is None
    peer.call("approve", approval_id=asked["approval_id"], choice="once")
    peer.wait("processing.ended", at, message_id="m-s1")
    assert len(peer.all("turn.started", at, session_key=key_of("steer"))) == 1
    assert any("mind the gap — please" in str(messages) for messages in model.seen)


def test_held_while_the_gateway_restores(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    gateway.ask("restoring", flag=True)
    try:
        late = peer.send("inject", deadline_s=0.5, chat_id="held", text="say 1",
                         message_id="m-late", mode="queue")  # fmt: skip
        held = [
            peer.send("inject", chat_id="held", text=f"say {n}", message_id=f"m-held{n}", mode=mode)
            for n, mode in enumerate(("queue", "steer", "queue", "interrupt"))
        ]
        assert peer.result(late).error == "starting"
        assert not peer.all("injected", at)
    finally:
        gateway.ask("restoring", flag=False)
    assert [peer.result(command).error for command in held] == [None] * 4
    peer.wait("injected", at, message_id="m-held3")  # a result may come before its fact
    injected = [fact["message_id"] for fact in peer.all("injected", at)]
    assert injected == [f"m-held{n}" for n in range(4)]
    peer.wait("processing.ended", at, message_id="m-held0")
    until(lambda: key_of("held") not in peer.call("running").value["keys"], 30, "all done")


def test_running(peer: Peer) -> None:
    at, turn = start_slow(peer, "runs", "m-run")
    assert key_of("runs") in peer.call("running").value["keys"]
    peer.until(lambda: [f for f in peer.all("running", at) if key_of("runs") in f["keys"]])
    cancel(peer, "runs", turn)
    peer.wait("processing.ended", at, message_id="m-run")
    assert key_of("runs") not in peer.call("running").value["keys"]


def test_bad_commands(peer: Peer) -> None:
    assert peer.call("frobnicate").error == "unknown_op"
    assert peer.call("inject", chat_id="x").error == "bad_args"
    assert inject(peer, "hello", "x", "m", "command").error == "bad_args"
    assert inject(peer, "hello", "x", "m", "shout").error == "bad_args"
    assert peer.call("cancel", session_key="x").error == "bad_args"
    assert peer.call("approve", approval_id="a999", choice="once").error == "not_pending"
    assert peer.call("sessions", limit=0).error == "bad_args"


def test_sessions(peer: Peer) -> None:
    _, turn = run(peer, "say 2", "list", "m-list")
    answer = peer.call("sessions", limit=3)
    assert answer.error is None, answer
    newest, *_ = answer.value["sessions"]
    assert newest["session_key"] == key_of("list")
    assert newest["platform"] == "loomi"
    assert newest["session_id"] == turn.split(":")[0]
    assert newest["message_count"] == 2
    assert newest["preview"] == "w0 w1"
    assert newest["created_at"] <= newest["updated_at"]
    assert answer.value["more"] is True
    seen, before = set(), None
    while True:
        page = peer.call("sessions", limit=5, before=before).value
        for session in page["sessions"]:
            assert session["session_key"] not in seen
            seen.add(session["session_key"])
            before = session["updated_at"]
        if not page["more"]:
            break
    assert key_of("list") in seen
    others = peer.call("sessions", limit=50, source="other").value["sessions"]
    assert {session["platform"] for session in others} <= {"other"}
