"""Commands in real gateways: text stays text, cancel hits its own turn, modes are true."""

from __future__ import annotations

import msgspec
import pytest

from loomid.lmp.conversations import Session, merge
from tests.support.hermes import Gateway
from tests.support.model import DANGER, Model
from tests.support.peer import Peer, inject, key_of, run

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


def running(peer: Peer) -> list[str]:
    return list(peer.call("running", fact="running").value["keys"])


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
    if key_of(chat) not in running(peer):
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


def test_nothing_is_injected_while_the_gateway_restores(gateway: Gateway, peer: Peer) -> None:
    """At the start the link waits for that (test_lifecycle); whatever comes then is refused."""
    at = peer.mark()
    gateway.ask("restoring", flag=True)
    try:
        assert inject(peer, "say 1", "held", "m-held").error == "starting"
        assert not peer.all("injected", at)
    finally:
        gateway.ask("restoring", flag=False)
    run(peer, "say 1", "held", "m-held2")


def test_running(peer: Peer) -> None:
    at, turn = start_slow(peer, "runs", "m-run")
    assert key_of("runs") in running(peer)
    peer.until(lambda: [f for f in peer.all("running", at) if key_of("runs") in f["keys"]])
    cancel(peer, "runs", turn)
    peer.wait("processing.ended", at, message_id="m-run")
    assert key_of("runs") not in running(peer)


def test_bad_commands(peer: Peer) -> None:
    """Loomid alone makes commands: what does not fit an operation only must not run."""
    at = peer.mark()
    assert peer.call("frobnicate").error == "unknown_op"
    for op, args in (("inject", {"chat_id": "x"}), ("cancel", {"session_key": "x"})):
        answer = peer.call(op, **args)
        assert (answer.error, answer.detail) == ("failed", "TypeError")
    assert peer.call("cancel", session_key="x", turn_id="t").error == "not_active"
    assert peer.call("approve", approval_id="a999", choice="once").error == "not_pending"
    assert not peer.all("injected", at)


def rows(peer: Peer, limit: int, offset: int = 0) -> list[Session]:
    answer = peer.call("sessions", limit=limit, offset=offset)
    assert answer.error is None, answer
    return msgspec.convert(answer.value["sessions"], list[Session])


def test_sessions(peer: Peer) -> None:
    _, turn = run(peer, "say 2", "list", "m-list")
    newest = rows(peer, 3)[0]
    assert newest.session_key == key_of("list")
    assert newest.source == "loomi"
    assert newest.id == turn.split(":")[0]
    assert newest.message_count in (2, 3)  # newer releases count a row of their own
    assert newest.preview == "say 2"
    assert newest.started_at <= (newest.last_active or 0)
    everything = rows(peer, 1000)
    paged: list[Session] = []
    while len(page := rows(peer, 5, len(paged))) == 5:
        paged += page
    assert [row.id for row in paged + page] == [row.id for row in everything]
    names = [each.name for each in merge(everything)]
    assert len(names) == len(set(names))
    assert names[0] == key_of("list")


def test_a_chat_is_one_conversation_whatever_sessions_it_had(peer: Peer) -> None:
    _, first = run(peer, "say 2", "again", "m-again1")
    at = peer.mark()
    inject(peer, "/new", "again", "m-again2", "command")
    peer.wait("session.reset", at)
    _, second = run(peer, "say 3", "again", "m-again3")
    newest, *older = merge(rows(peer, 1000))
    assert first.split(":")[0] != second.split(":")[0]
    assert (newest.name, newest.session_id) == (key_of("again"), second.split(":")[0])
    assert key_of("again") not in [each.name for each in older]
