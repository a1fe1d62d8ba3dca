"""What a device may ask for: one table, that no request type is missing in."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from loomid.errors import NotPermitted
from loomid.lmp import frames, scopes
from tests.support import vectors

CLIENT = vectors.load("client")


def test_every_request_type_needs_a_scope() -> None:
    """A new type belongs into the table, with the least that its owner must have allowed."""
    assert sorted(set(frames.REQUESTS) - set(scopes.NEEDS)) == []


def test_what_the_payload_decides_can_be_asked_of_it() -> None:
    weighed = {name for name, need in scopes.NEEDS.items() if need is scopes._by_weight}
    known = weighed & set(frames.REQUESTS)
    assert [name for name in known if not hasattr(frames.REQUESTS[name], "weighty")] == []


class Setting(frames.Payload, frozen=True, kw_only=True):
    """As a request that sets something."""

    task_id: str | None = None

    @property
    def weighty(self) -> bool:
        return self.task_id is None


@pytest.mark.parametrize("type_", ["model.set", "mode.set"])
def test_what_holds_for_all_tasks_needs_admin(type_: str) -> None:
    assert scopes.needed(type_, Setting()) == "admin"
    assert scopes.needed(type_, Setting(task_id="task_1")) == "send"


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("/new", "send"),
        ("/goal /yolo", "admin"),
        ("/goal", "admin"),
        ("/retry", "admin"),
        ("/queue  /yolo", "admin"),
        ("/bg @file:x /yolo", "admin"),
        ("/title /approve", "admin"),
        ("/queue look at it", "send"),
        ("/STATUS now", "send"),
        ("/steer\n/approve", "admin"),
        ("/approve", "approve"),
        ("/Deny all", "approve"),
        ("/yolo", "admin"),
        ("/approvals off", "admin"),
        ("/restart", "admin"),
        ("/model gpt --global", "admin"),
        ("/approve@bot", "admin"),
        ("/a-command-of-tomorrow", "admin"),
        ("//new", "admin"),
        ("/", "admin"),
        ("", "admin"),
    ],
)
def test_a_command_needs_what_it_does(text: str, needs: str) -> None:
    """Commands that loomid does not know may do anything."""
    said = frames.SessionSend(text=text, request_id="r", command=True)
    assert scopes.needed("session.send", said) == needs
    plain = frames.SessionSend(text=text, request_id="r")
    assert scopes.needed("session.send", plain) == "send"


SETS = [
    scopes.known(some)
    for count in range(len(scopes.ALL))
    for some in combinations(scopes.ALL[1:], count)
]


@pytest.mark.parametrize("held", SETS, ids=",".join)
def test_permitted_is_what_is_held_and_nothing_else(held: scopes.Scopes) -> None:
    assert held[0] == "view"
    for needs in scopes.ALL:
        if needs in held:
            scopes.permit(held, needs)
            continue
        with pytest.raises(NotPermitted) as refused:
            scopes.permit(held, needs)
        assert refused.value.params == {"reason": "scope", "needs": needs, "scopes": list(held)}


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (["view"], ("view",)),
        (["approve"], ("view", "approve")),
        (["admin, send", "VIEW", ""], ("view", "send", "admin")),
        (["approve,send", "send"], ("view", "send", "approve")),
    ],
)
def test_written_by_people(words: list[str], held: scopes.Scopes) -> None:
    assert scopes.parse(words) == held


@pytest.mark.parametrize("words", [[], [""], [","], ["all"], ["view,root"], ["view send"]])
def test_written_wrongly(words: list[str]) -> None:
    with pytest.raises(ValueError, match="view, send, approve, admin"):
        scopes.parse(words)


@pytest.mark.parametrize("value", [None, "view", 3, ["view", 3], {"view": True}])
def test_no_list_in_json(value: Any) -> None:
    with pytest.raises(ValueError, match="list of scopes"):
        scopes.parse_json(value)


def test_what_a_later_version_wrote_is_no_harm() -> None:
    assert scopes.known(["owner", "send"]) == ("view", "send")
