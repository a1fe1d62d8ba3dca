"""What waits behind a run, in each release: all of it, in order, and until it is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.hermes.test_commands import cancel, start_slow
from tests.support.model import DANGER
from tests.support.peer import Peer, inject, key_of, run
from tests.support.samples import png

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.hermes import Gateway


MOST = 32


def wait_behind(peer: Peer, chat: str, numbers: Iterable[int], mode: str = "queue") -> list[str]:
    """Send messages for a busy chat; their texts, which are their ids as well."""
    texts = [f"{chat} no {number}" for number in numbers]
    for text in texts:
        assert inject(peer, text, chat, text, mode).error is None
    return texts


def begun(peer: Peer, at: int, chat: str) -> list[str]:
    """The texts of the turns that began there."""
    return [fact["text"] for fact in peer.all("turn.started", at, session_key=key_of(chat))]


def waiting(gateway: Gateway, chat: str) -> list[str]:
    """The ids of the messages that wait there."""
    return [message_id for message_id, _ in gateway.ask("queue", session_key=key_of(chat))]


def test_as_many_as_may_wait(peer: Peer) -> None:
    at, _ = start_slow(peer, "many", "m-many", "slow 6")
    texts = wait_behind(peer, "many", range(MOST))
    for mode in ("queue", "steer", "interrupt"):
        assert inject(peer, "one more", "many", "m-more", mode).error == "queue_full"
    peer.wait("processing.ended", at, 90, message_id=texts[-1])
    assert not peer.all("injected", at, message_id="m-more")
    assert begun(peer, at, "many") == ["slow 6", *texts]
    assert inject(peer, "one more", "many", "m-more").error is None
    peer.wait("processing.ended", at, message_id="m-more")


def test_who_comes_between_two_runs_is_no_quicker(peer: Peer) -> None:
    """Messages come all the while the first ones are run."""
    at, _ = start_slow(peer, "between", "m-between", "slow 1")
    texts = wait_behind(peer, "between", range(20))
    peer.wait("processing.ended", at, 60, message_id=texts[-1])
    assert begun(peer, at, "between") == ["slow 1", *texts]


def test_cancel_drops_all_and_says_so(gateway: Gateway, peer: Peer) -> None:
    at, first = start_slow(peer, "drops", "m-drops", "slow 2")
    inject(peer, "slow 30", "drops", "m-second")
    texts = wait_behind(peer, "drops", range(6))
    assert waiting(gateway, "drops") == ["m-second", *texts]
    peer.wait("turn.ended", at, turn_id=first)
    second = peer.wait("turn.started", at, session_key=key_of("drops"), text="slow 30")
    peer.wait("api.started", at, turn_id=second["turn_id"])
    answer = cancel(peer, "drops", second["turn_id"])
    assert answer.value["dropped"] == texts
    peer.wait("processing.ended", at, message_id="m-second", outcome="cancelled")
    run(peer, "say 1", "drops", "m-after")
    assert begun(peer, at, "drops") == ["slow 2", "slow 30", "say 1"]


@pytest.mark.parametrize("command", ["/stop", "/new", "/reset"])
def test_a_typed_command_that_ends_the_run_drops_all(peer: Peer, command: str) -> None:
    chat = f"typed{command[1:]}"
    at, _ = start_slow(peer, chat, "m-typed")
    texts = wait_behind(peer, chat, range(6))
    assert inject(peer, command, chat, "m-command", "command").value["dropped"] == texts
    peer.wait("processing.ended", at, message_id="m-typed")
    run(peer, "say 1", chat, "m-after")
    assert begun(peer, at, chat) == ["slow 30", "say 1"]


def test_interrupts_go_first_and_in_order(gateway: Gateway, peer: Peer) -> None:
    at, turn = start_slow(peer, "hurry", "m-hurry")
    later = wait_behind(peer, "hurry", range(5))
    soon = wait_behind(peer, "hurry", range(5, 9), "interrupt")
    peer.wait("processing.ended", at, 60, message_id=later[-1])
    peer.wait("turn.ended", at, turn_id=turn)
    texts = begun(peer, at, "hurry")
    of_their_own = [text for text in soon if text in texts]  # the others went into a turn
    assert texts == ["slow 30", *of_their_own, *later]
    if not gateway.release.streams:
        assert of_their_own == soon
        told = {fact["mode"] for fact in peer.all("injected", at, session_key=key_of("hurry"))}
        assert told == {"queue"}, "nobody may take one that waits for a part of a run"


def test_a_late_interrupt_hits_no_turn_that_hermes_begins(gateway: Gateway, peer: Peer) -> None:
    at, _ = start_slow(peer, "tardy", "m-tardy", "slow 2")
    gateway.ask("interrupt_late", session_key=key_of("tardy"), times=1)
    assert inject(peer, "say 3", "tardy", "m-left", "steer").error is None
    peer.wait("processing.ended", at, message_id="m-tardy")
    assert begun(peer, at, "tardy") == ["slow 2", "say 3"]
    assert [fact["interrupted"] for fact in peer.all("turn.ended", at)] == [False, False]
    assert peer.all("turn.answered", at)[-1]["text"] == "w0 w1 w2"


def test_a_late_interrupt_hits_no_message_that_waits(
    gateway: Gateway, peer: Peer, tmp_path: Path
) -> None:
    at, _ = start_slow(peer, "lies", "m-lies")
    gateway.ask("interrupt_late", session_key=key_of("lies"), times=2)
    (picture := tmp_path / "picture").write_bytes(png(3, 3))
    files = [{"path": str(picture), "name": "3.png", "media_type": "image/png"}]
    more = {"mode": "interrupt", "files": files, "message_type": "photo"}  # waits in any release
    assert not peer.call(
        "inject_files", chat_id="lies", text="say 3", message_id="m-last", **more
    ).error
    peer.wait("processing.ended", at, message_id="m-last")
    assert [fact["interrupted"] for fact in peer.all("turn.ended", at)] == [True, False]
    assert peer.all("turn.answered", at)[-1]["text"] == "w0 w1 w2"


def test_one_redirect_too_many_ends_a_turn_and_begins_another(gateway: Gateway, peer: Peer) -> None:
    """0.22 allows for `api_max_retries` of them (here 1) until the model has answered."""
    if not gateway.release.streams:
        pytest.skip("it has no redirects")
    at, first = start_slow(peer, "again", "m-again")
    for count, text in enumerate(("slow 31", "say 3"), 1):
        peer.until(lambda n=count: len(peer.all("stream.started", at, turn_id=first)) == n)
        assert inject(peer, text, "again", text, "interrupt").error is None
    peer.wait("processing.ended", at, message_id="m-again")
    limited = gateway.release.name == "22"
    reason = peer.wait("turn.ended", at, turn_id=first)["reason"]
    assert (reason == "redirect_restart_limit_exceeded") is limited
    assert begun(peer, at, "again") == ["slow 30"] + ["say 3"] * limited


def test_a_steered_text_that_came_too_late_goes_before_what_waits(peer: Peer) -> None:
    at, _ = start_slow(peer, "late", "m-late", "slow 2")
    texts = wait_behind(peer, "late", range(2))
    assert inject(peer, "mind the gap", "late", "m-steer", "steer").error is None
    peer.wait("processing.ended", at, message_id=texts[-1])
    assert begun(peer, at, "late") == ["slow 2", "mind the gap", *texts]


def test_while_an_approval_waits(peer: Peer) -> None:
    at = peer.mark()
    inject(peer, f"danger {DANGER}", "asks", "m-asks")
    asked = peer.wait("approval.asked", at, session_key=key_of("asks"))
    texts = wait_behind(peer, "asks", range(6))
    answer = peer.call("approve", approval_id=asked["approval_id"], choice="deny")
    if answer.error is not None:  # hit by the mark of another chat: tests/matrix/rows.py
        done = peer.wait("approval.done", at, approval_id=asked["approval_id"])
        assert (answer.error, done["choice"]) == ("not_pending", "cancelled")
    peer.wait("processing.ended", at, message_id=texts[-1])
    assert begun(peer, at, "asks")[1:] == texts


def test_a_reload_of_the_plugin_loses_none(gateway: Gateway, peer: Peer) -> None:
    at, _ = start_slow(peer, "reloads", "m-reloads", "slow 3")
    texts = wait_behind(peer, "reloads", range(3))
    gateway.ask("reload")
    assert gateway.ask("connect_again") is True
    texts += wait_behind(peer, "reloads", range(3, 6))
    peer.wait("processing.ended", at, 60, message_id=texts[-1])
    assert begun(peer, at, "reloads") == ["slow 3", *texts]
