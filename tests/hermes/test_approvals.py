"""Approvals in real gateways: each answer reaches its own command, or none."""

from __future__ import annotations

import pytest

from tests.support.hermes import Gateway, Release, until
from tests.support.model import DANGER
from tests.support.peer import Fact, Peer, inject, key_of

ALL = ["once", "session", "always", "deny"]


def ask(peer: Peer, chat: str, message_id: str, command: str = DANGER) -> tuple[int, Fact]:
    at = peer.mark()
    assert inject(peer, f"danger {command}", chat, message_id).error is None
    return at, peer.wait("approval.asked", at, session_key=key_of(chat))


def approve(peer: Peer, asked: Fact, choice: str, **more: str):
    return peer.call("approve", approval_id=asked["approval_id"], choice=choice, **more)


def test_once(peer: Peer) -> None:
    at, asked = ask(peer, "once", "m-once")
    assert asked["command"] == DANGER
    assert asked["description"]
    assert asked["choices"] == ALL
    assert asked["answerable"] is True
    assert asked["smart_denied"] is False
    assert asked["timeout_s"] == 10
    started = peer.wait("tool.started", at, tool="terminal")
    assert asked["call_id"] == started["call_id"]
    assert asked["turn_id"] == started["turn_id"]
    command = peer.send("approve", approval_id=asked["approval_id"], choice="once")
    assert peer.result(command).value == {"applied": True}
    done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
    assert (done["choice"], done["command_id"]) == ("once", command)
    assert peer.wait("tool.ended", at, call_id=asked["call_id"])["status"] == "ok"
    assert approve(peer, asked, "once").error == "not_pending"
    peer.wait("processing.ended", at, message_id="m-once")


def test_deny_with_a_reason(peer: Peer) -> None:
    at, asked = ask(peer, "deny", "m-deny")
    assert approve(peer, asked, "deny", reason="not on this machine").error is None
    assert peer.wait("approval.done", at, approval_id=asked["approval_id"])["choice"] == "deny"
    answer = peer.wait("turn.answered", at, turn_id=asked["turn_id"])["text"]
    assert "BLOCKED" in answer


def test_what_is_not_offered_is_refused(peer: Peer) -> None:
    at, asked = ask(peer, "word", "m-word")
    for word in ("no", "yes", "approve", "ONCE", "cancel"):
        assert approve(peer, asked, word).error == "bad_args"
    assert not peer.all("approval.done", at)
    assert approve(peer, asked, "deny").error is None
    peer.wait("processing.ended", at, message_id="m-word")


def test_session_and_then_not_asked_again(peer: Peer) -> None:
    at, asked = ask(peer, "sess", "m-sess")
    assert approve(peer, asked, "session").error is None
    peer.wait("processing.ended", at, message_id="m-sess")
    at = peer.mark()
    inject(peer, f"danger {DANGER}", "sess", "m-sess2")
    peer.wait("processing.ended", at, message_id="m-sess2")
    assert not peer.all("approval.asked", at)


def test_answered_by_text_on_its_own_surface(gateway: Gateway, peer: Peer) -> None:
    """Somebody else decides: then no command of ours did."""
    at = peer.mark()
    gateway.ask("inject", text=f"danger {DANGER}", chat_id="tg1", message_id="o-tg1")
    asked = peer.wait("approval.asked", at, session_key="agent:main:other:dm:tg1")
    until(lambda: ["tg1", f"approval: {DANGER}"] in gateway.ask("sent"), 10, "the prompt there")
    gateway.ask("inject", text="/deny", chat_id="tg1", message_id="o-tg2")
    done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
    assert (done["choice"], done["command_id"]) == ("deny", None)
    assert approve(peer, asked, "once").error == "not_pending"


def test_asked_on_another_surface_and_answered_here(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    gateway.ask("inject", text=f"danger {DANGER}", chat_id="tg2", message_id="o-tg3")
    asked = peer.wait("approval.asked", at, session_key="agent:main:other:dm:tg2")
    assert approve(peer, asked, "once").error is None
    done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
    assert done["choice"] == "once"
    assert done["command_id"]
    peer.wait("turn.ended", at, turn_id=asked["turn_id"])


def test_two_pending_answered_out_of_order(gateway: Gateway, peer: Peer) -> None:
    """Each answer lands on its own entry, also where Hermes alone would answer the oldest."""
    at = peer.mark()
    key = key_of("two")
    gateway.ask("guard", session_key=key, commands=["rm -rf /tmp/first", "rm -rf /tmp/second"])
    peer.until(lambda: len(peer.all("approval.asked", at, session_key=key)) == 2)
    first = peer.wait("approval.asked", at, command="rm -rf /tmp/first")
    second = peer.wait("approval.asked", at, command="rm -rf /tmp/second")
    assert approve(peer, second, "once").error is None
    done = peer.wait("approval.done", at, approval_id=second["approval_id"])
    assert done["choice"] == "once"
    assert not peer.all("approval.done", at, approval_id=first["approval_id"])
    assert approve(peer, first, "deny").error is None
    peer.wait("approval.done", at, approval_id=first["approval_id"], choice="deny")
    answers = until(
        lambda: len(found := gateway.ask("answers")) == 2 and found, 10, "both answered"
    )
    assert answers["rm -rf /tmp/first"]["choice"] == "deny"
    assert answers["rm -rf /tmp/second"]["choice"] == "once"


def test_the_same_command_twice_at_once(gateway: Gateway, peer: Peer) -> None:
    """In the queue before either was told, and nothing tells them apart but being two.

    0.22 asks once for both, and again as only one of them was allowed.
    """
    at = peer.mark()
    key = key_of("alike")
    gateway.ask("guard", session_key=key, commands=["rm -rf /tmp/alike"] * 2, together=True)
    answered: set[str] = set()
    for choice in ("once", "deny"):
        asked = peer.until(
            lambda: [
                fact
                for fact in peer.all("approval.asked", at, session_key=key)
                if fact["approval_id"] not in answered
            ]
        )[-1]
        answered.add(asked["approval_id"])
        command = peer.send("approve", approval_id=asked["approval_id"], choice=choice)
        assert peer.result(command).error is None
        done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
        assert (done["choice"], done["command_id"]) == (choice, command)
    assert len(peer.all("approval.asked", at)) == 2


def test_what_nothing_tells_apart_is_not_answered(
    release: Release, gateway: Gateway, peer: Peer
) -> None:
    at = peer.mark()
    key = key_of("twin")
    commands = ["rm -rf /tmp/twin"] * 2
    gateway.ask("guard", session_key=key, commands=commands, together=True, one_text=True)
    first = peer.wait("approval.asked", at, session_key=key)
    if release.name == "22" and first["answerable"]:  # it asks once for both, if it is quick
        assert approve(peer, first, "deny").error is None
        return
    both = peer.until(
        lambda: len(found := peer.all("approval.asked", at, session_key=key)) == 2 and found
    )
    for asked in both:
        assert (asked["answerable"], asked["choices"]) == (False, [])
        assert approve(peer, asked, "once").error == "bad_args"
    for asked in both:
        done = peer.wait("approval.done", at, 40, approval_id=asked["approval_id"])
        assert (done["choice"], done["command_id"]) == ("timeout", None)


def test_two_in_one_reply(peer: Peer) -> None:
    at = peer.mark()
    inject(peer, "dangers", "batch", "m-batch")
    seen: set[str] = set()
    for _ in range(2):
        asked = peer.until(
            lambda: [
                f
                for f in peer.all("approval.asked", at, session_key=key_of("batch"))
                if f["approval_id"] not in seen
            ]
        )[-1]
        seen.add(asked["approval_id"])
        assert approve(peer, asked, "once").error is None
        peer.wait("approval.done", at, approval_id=asked["approval_id"], choice="once")
    peer.wait("processing.ended", at, message_id="m-batch")
    calls = {f["call_id"] for f in peer.all("approval.asked", at)}
    assert len(calls) == 2


def test_inventory_and_timeout(gateway: Gateway, peer: Peer) -> None:
    at = peer.mark()
    key = key_of("late")
    gateway.ask("guard", session_key=key, commands=["rm -rf /tmp/late"])
    asked = peer.wait("approval.asked", at, session_key=key)
    assert asked["approval_id"] in gateway.ask("state")["approvals"]
    done = peer.wait("approval.done", at, 40, approval_id=asked["approval_id"])
    assert (done["choice"], done["command_id"]) == ("timeout", None)
    assert done["t"] - asked["t"] == pytest.approx(asked["timeout_s"], abs=2)
    assert approve(peer, asked, "once").error == "not_pending"
    state = gateway.ask("state")
    assert asked["approval_id"] not in state["approvals"]


def test_not_even_asked(gateway: Gateway, peer: Peer) -> None:
    """The surface could not be told: 0.19 has no hook for that, the tool's end says it."""
    at = peer.mark()
    key = key_of("mute")
    gateway.ask("guard", session_key=key, commands=["rm -rf /tmp/mute"], fail_notify=True)
    asked = peer.wait("approval.asked", at, session_key=key)
    done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
    assert done["choice"] == "notify_failed"
    assert asked["approval_id"] not in gateway.ask("state")["approvals"]
