"""What is malformed in Hermes' configuration, and what fails midway, leaves all else as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from loomid import hermesdb
from tests.support.hermes import Gateway
from tests.support.peer import Peer, key_of, run

BROKEN = """CREATE TRIGGER broken BEFORE INSERT ON messages
WHEN EXISTS (SELECT 1 FROM messages WHERE session_id = NEW.session_id)
BEGIN SELECT RAISE(ABORT, 'no more'); END"""


def test_a_malformed_short_command_hides_no_other(peer: Peer) -> None:
    answer = peer.call("commands")
    assert answer.error is None
    assert answer.value["short"] == {"again": "/status"}


def test_a_model_without_a_provider(peer: Peer) -> None:
    answer = peer.call("set_model", chat_id="nowhere", model="other", provider="")
    assert (answer.error, answer.value["model"]) == (None, "other")


def test_the_home_chat_only_lends_its_name(gateway: Gateway, peer: Peer) -> None:
    before = peer.call("models", chat_id="home").value["current"]
    gateway.ask("fail_after", method="_handle_model_command")
    try:
        assert peer.call("set_model", model="m2", provider="second").error == "failed"
        assert peer.call("models").value["default"]["model"] == "m2"
    finally:
        gateway.configure()
    assert peer.call("models", chat_id="home").value["current"] == before


def test_nothing_is_left_of_half_a_copy(gateway: Gateway, peer: Peer) -> None:
    run(peer, "say 2", "half", "m-half")

    def sql(statement: str) -> list[str]:
        with closing(sqlite3.connect(gateway.home / hermesdb.FILE)) as line, line:
            return [row[0] for row in line.execute(statement)]

    def branch(chat: str) -> str | None:
        args = {"session_key": key_of("half"), "share": False}
        return peer.call("branch", chat_id=chat, **args).error

    before = sql("SELECT id FROM sessions ORDER BY id")
    sql(BROKEN)
    try:
        assert branch("half-1") == "failed"
    finally:
        sql("DROP TRIGGER broken")
    assert sql("SELECT id FROM sessions ORDER BY id") == before
    assert branch("half-2") is None
    assert len(sql("SELECT id FROM sessions ORDER BY id")) == len(before) + 1
