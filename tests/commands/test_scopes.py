"""A device may do what its owner has allowed; what it may not is refused before anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from loomid.errors import PhoneError
from loomid.lmp import frames, scopes
from tests.support import vectors
from tests.support.answering import PHONE, TABLET, Host, Side

CLIENT = vectors.load("client")
SCOPED = [
    (name, held)
    for name in frames.REQUESTS
    for held in (("view",), ("view", "send"), ("view", "approve"), ("view", "admin"))
]


@pytest.mark.parametrize(("type_", "held"), SCOPED, ids=lambda value: str(value))
async def test_each_type_is_refused_without_its_scope(
    side: Side, type_: str, held: scopes.Scopes
) -> None:
    """By the golden frame of each type; with the scope, whatever else may be said of it."""
    body = {"request_id": "r1"} | CLIENT[type_]["payload"]
    needs = scopes.needed(type_, msgspec.convert(body, frames.CLIENT[type_]))
    try:
        await side.ask(type_, replace(PHONE, scopes=held), **body)
        error = None
    except PhoneError as refused:
        error = refused
    if needs in held:
        assert error is None or error.params.get("reason") != "scope"
        assert await _refusals(side) == []
        return
    assert error is not None
    assert (error.code, error.params) == (
        "not_permitted",
        {"reason": "scope", "needs": needs, "scopes": list(held)},
    )
    assert await side.vault.request(PHONE.device_id, body["request_id"]) is None
    assert await _refusals(side) == [(PHONE.device_id, type_, {"needs": needs})]


async def _refusals(side: Side) -> list[tuple[str, str, dict[str, Any]]]:
    rows = await side.vault.audit.latest(None, 0.0)
    return [(one["who"], one["about"], one["detail"]) for one in rows if one["action"] == "refused"]


async def test_an_approval_is_answered_once_that_is_allowed(side: Side, host: Host) -> None:
    host.ask("s1")
    body = {"approval_id": await side.asked("s1"), "choice": "once", "request_id": "r1"}
    limited = replace(PHONE, scopes=("view", "send"))
    assert (await side.refused("approval.resolve", limited, **body)).code == "not_permitted"
    assert (await side.entry(body["approval_id"])).waits
    assert host.commands == []
    await side.ask("approval.resolve", PHONE, **body)
    await side.decided("s1")


async def test_a_command_of_hermes_is_no_way_around(side: Side, host: Host) -> None:
    limited = replace(TABLET, scopes=("view", "send"))
    for text, needs in [("/approve", "approve"), ("/yolo", "admin")]:
        body = {"text": text, "request_id": text, "command": True}
        error = await side.refused("session.send", limited, **body)
        assert (error.code, error.params["needs"]) == ("not_permitted", needs)
    assert host.commands == []
    await side.ask("session.send", limited, text="/new", request_id="r1", command=True)
    sent = [one.args["text"] for one in host.commands if one.op == "inject"]
    assert sent == ["/new"]


async def test_what_is_not_known_is_not_known(side: Side) -> None:
    error = await side.refused("task.paint", replace(PHONE, scopes=("view",)), request_id="r1")
    assert error.code == "unknown_type"
