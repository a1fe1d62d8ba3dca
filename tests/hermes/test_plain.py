"""What phones say never becomes a command, unless it was handed over as one.

A command that was may carry a text, or bring back an old one: Hermes makes messages of these,
and what begins with "/" would be run. `/yolo` stands for what nobody allowed.
"""

from __future__ import annotations

import pytest

from loomid.lmp.scopes import CHAT_COMMANDS
from tests.hermes.test_commands import running, start_slow
from tests.support.hermes import Gateway
from tests.support.peer import Peer, inject, key_of, run

LATER = ["queue", "q", "steer", "goal"]
"""While a run is active, their text is said when it is over."""


def command(peer: Peer, text: str, chat: str, message_id: str) -> int:
    """Hand a command over: where its facts begin."""
    at = peer.mark()
    assert inject(peer, text, chat, message_id, "command").error is None
    return at


def yolo(peer: Peer, chat: str) -> bool:
    return bool(peer.call("modes", chat_id=chat).value["yolo"])


def said(peer: Peer, at: int, chat: str) -> None:
    """Wait until the model has answered "/yolo", and nothing is left."""
    turn = peer.wait("turn.started", at, session_key=key_of(chat), text="/yolo")["turn_id"]
    peer.wait("turn.ended", at, turn_id=turn)
    peer.until(lambda: key_of(chat) not in running(peer))
    assert not yolo(peer, chat)


def test_the_registry_has_what_phones_may_send(peer: Peer) -> None:
    rows = peer.call("commands").value["commands"]
    names = {name for row in rows for name in (row["name"], *row["aliases"])}
    assert sorted(CHAT_COMMANDS - names) == []


def test_a_command_is_one(peer: Peer) -> None:
    """The others prove something only if this one holds."""
    at = command(peer, "/yolo", "plain-yolo", "m-yolo")
    peer.wait("processing.ended", at, message_id="m-yolo")
    assert yolo(peer, "plain-yolo")


@pytest.mark.parametrize("name", sorted(CHAT_COMMANDS))
def test_idle(peer: Peer, name: str) -> None:
    chat, message_id = f"plain-{name}", f"m-plain-{name}"
    at = command(peer, f"/{name} /yolo", chat, message_id)
    peer.wait("processing.ended", at, message_id=message_id)
    peer.until(lambda: key_of(chat) not in running(peer))
    assert not yolo(peer, chat)


def test_what_is_said_again(peer: Peer) -> None:
    at, _ = run(peer, "/yolo", "plain-retry", "m-first")
    said(peer, at, "plain-retry")
    at = command(peer, "/retry", "plain-retry", "m-retry")
    said(peer, at, "plain-retry")


def test_what_is_said_in_its_time(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    gateway.ask("wake", chat_id="plain-wake", text="/yolo")
    said(peer, at, "plain-wake")


def test_a_goal(peer: Peer) -> None:
    at = command(peer, "/goal /yolo", "plain-goal", "m-goal")
    peer.wait("turn.started", at, session_key=key_of("plain-goal"), text="/yolo")
    command(peer, "/goal clear", "plain-goal", "m-clear")
    said(peer, at, "plain-goal")


def test_busy(peer: Peer) -> None:
    for name in sorted(CHAT_COMMANDS - set(LATER)):
        if key_of("plain-busy") not in running(peer):
            start_slow(peer, "plain-busy", f"m-before-{name}", "slow 60")
        command(peer, f"/{name} /yolo", "plain-busy", f"m-busy-{name}")
        assert not yolo(peer, "plain-busy"), name
    assert inject(peer, "/yolo", "plain-busy", "m-text").error == "reserved_text"
    command(peer, "/stop", "plain-busy", "m-stop")
    peer.until(lambda: key_of("plain-busy") not in running(peer))
    assert not yolo(peer, "plain-busy")


def test_later(peer: Peer) -> None:
    """Each in a chat of its own: two would switch it on and off again."""
    started = {name: start_slow(peer, f"later-{name}", f"m-l-{name}", "slow 4") for name in LATER}
    for name in LATER:
        command(peer, f"/{name} /yolo", f"later-{name}", f"m-later-{name}")
    for name, (at, _) in started.items():
        peer.wait("processing.ended", at, message_id=f"m-l-{name}")
        command(peer, "/goal clear", f"later-{name}", f"m-clear-{name}")
        peer.until(lambda: key_of(f"later-{name}") not in running(peer))  # noqa: B023
        assert not yolo(peer, f"later-{name}"), name
