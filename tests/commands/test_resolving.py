"""approval.resolve: the first valid answer wins, once, across phones, breaks and restarts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from loomid.errors import AlreadyResolved
from loomid.lmp import asks, ids
from loomid.lmp.requests import refusal
from tests.support.answering import LIMITS, PHONE, TABLET, Host, Side
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


async def test_accepted_before_hermes_has_answered(side: Side, host: Host) -> None:
    host.silent.add("approve")
    host.ask("s1")
    approval_id = await side.asked("s1")
    body = {"approval_id": approval_id, "choice": "deny", "request_id": "r1", "reason": "no"}
    answer = await side.ask("approval.resolve", **body)
    body.pop("reason")
    assert answer == {**body, "state": "accepted"}
    await until(lambda: host.commands)
    assert host.commands[0].args == {"approval_id": "s1", "choice": "deny", "reason": "no"}
    assert approval_id in side.waiting()
    entry = await side.entry(approval_id)
    assert (entry.state, entry.answer, entry.shown_to) == ("claimed", "deny", PHONE.device_id)
    host.answer(host.commands[0])
    await side.decided("s1")


async def test_one_that_is_too_many_can_be_answered_by_nobody(
    side: Side, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asks, "MAX_ASKS", 2)
    for name in ("s1", "s2", "s3"):
        host.ask(name)
    await side.asked("s2")
    (gateway,) = side.pump.runs.values()
    await until(lambda: gateway.dropped["too_many_approvals"])
    body = {"approval_id": side.approval_id("s3"), "choice": "once", "request_id": "r1"}
    assert (await side.refused("approval.resolve", **body)).code == "unknown_approval"
    assert await side.ledger.get(side.approval_id("s3")) is None
    assert len(side.waiting()) == 2
    host.decide("s1", "deny")
    await side.decided("s1")
    host.ask("s4")
    await side.ask("approval.resolve", **{**body, "approval_id": await side.asked("s4")})
    await side.decided("s4")
    assert [command.args["approval_id"] for command in host.ops("approve")] == ["s4"]


async def test_the_first_of_many_phones_wins(side: Side, host: Host) -> None:
    host.ask("s1")
    approval_id = await side.asked("s1")

    async def answer(i: int) -> str | None:
        choice, device = ("once", "session", "deny")[i % 3], (PHONE, TABLET)[i % 2]
        body = {"approval_id": approval_id, "choice": choice, "request_id": f"r{i}"}
        try:
            accepted = await side.ask("approval.resolve", device, **body)
        except AlreadyResolved as error:
            return f"not {error.params['choice']}"
        return str(accepted["choice"])

    said = await asyncio.gather(*(answer(i) for i in range(12)))
    won = [choice for choice in said if choice and not choice.startswith("not ")]
    assert len(won) == 1
    assert said.count(f"not {won[0]}") == 11
    await side.decided("s1")
    assert [command.args["choice"] for command in host.commands] == won


async def test_answers_are_remembered(side: Side, host: Host) -> None:
    host.ask("s1")
    mine = {"approval_id": await side.asked("s1"), "choice": "once", "request_id": "r1"}
    late = {**mine, "request_id": "r2", "choice": "deny"}
    first = await side.ask("approval.resolve", **mine)
    for _ in range(2):
        refused = await side.refused("approval.resolve", TABLET, **late)
        assert refused.code == "already_resolved"
        assert refused.params["choice"] == "once"
        assert await side.ask("approval.resolve", **mine) == first
    await side.decided("s1")
    await until(lambda: not side.under_way)
    assert await side.ask("approval.resolve", **mine) == first
    assert len(host.commands) == 1


async def test_who_may_not_answer(side: Side, host: Host) -> None:
    host.ask("s1", choices=["once", "deny", "whatever"])
    host.ask("s2", answerable=False)
    host.ask("s3")
    one, two = await side.asked("s1"), await side.asked("s2")
    three = await side.asked("s3")
    host.decide("s3", "timeout")
    await side.decided("s3")

    async def code(approval_id: str, choice: str) -> str:
        body = {"approval_id": approval_id, "choice": choice, "request_id": "r1"}
        return (await side.refused("approval.resolve", **body)).code

    for word in ("always", "session", "yes", "Once", "", "no", "whatever"):
        assert await code(one, word) == "bad_choice"
    assert await code("apr_x", "once") == "unknown_approval"
    assert await code(two, "once") == "not_permitted"
    assert host.commands == []
    assert await code(three, "once") == "already_resolved"


async def test_words_of_an_answer_are_bounded_as_any_text(side: Side, host: Host) -> None:
    host.ask("s1")
    host.question("s2")
    name = ids.question_id(side.key, "gw1", "boot1", "s2")
    await until(lambda: name in side.log.projection.waiting())
    long = "x" * LIMITS.max_text_chars
    asked = {"approval_id": await side.asked("s1"), "choice": "deny", "request_id": "r1"}
    answer = {"question_id": name, "answers": [{"id": "q0", "selected": [], "custom": long + "x"}]}
    for type_, body in (
        ("approval.resolve", asked | {"reason": long + "x"}),
        ("question.answer", answer | {"request_id": "r2"}),
    ):
        refused = await side.refused(type_, **body)
        assert (refused.code, refused.params) == ("too_large", {"max_text_chars": len(long)})
    assert host.commands == []
    assert (await side.ask("approval.resolve", **asked, reason=long))["state"] == "accepted"


async def test_what_was_decided_long_ago_is_still_told(side: Side, host: Host) -> None:
    host.ask("s1")
    approval_id = await side.asked("s1")
    host.decide("s1", "session")
    await side.decided("s1")
    side.pump.runs.clear()
    body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
    refused = await side.refused("approval.resolve", **body)
    assert refused.code == "already_resolved"
    assert refused.params == {
        "state": "applied",
        "choice": "session",
        "outcome": "applied",
        "decided_by": "local",
    }


@pytest.mark.parametrize("code", ["stale", "starting", "ambiguous", "bad_args"])
async def test_a_command_that_did_not_run_gives_the_approval_back(
    side: Side, host: Host, code: str
) -> None:
    host.errors["approve"] = code
    host.ask("s1")
    approval_id = await side.asked("s1")
    body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
    await side.ask("approval.resolve", **body)
    await until(lambda: not side.under_way)
    assert (await side.entry(approval_id)).waits
    [(told_of, returned)] = side.reminded
    assert told_of == approval_id
    assert (returned.device_id, returned.request_id) == (PHONE.device_id, "r1")
    assert returned.reason == refusal(code).code
    host.errors.clear()
    # The same request may be tried again, and so may any other.
    await side.ask("approval.resolve", **body)
    await side.decided("s1")
    assert len({command.id for command in host.commands}) == 2


@pytest.mark.parametrize("code", ["not_pending", "failed", "of_a_newer_shim"])
async def test_a_command_that_may_have_run_does_not(side: Side, host: Host, code: str) -> None:
    host.errors["approve"] = code
    host.ask("s1")
    body = {"approval_id": await side.asked("s1"), "choice": "once", "request_id": "r1"}
    await side.ask("approval.resolve", **body)
    await until(lambda: not side.under_way)
    refused = await side.refused("approval.resolve", **{**body, "request_id": "r2"})
    assert refused.code == "already_resolved"
    assert len(host.commands) == 1


async def test_an_approval_of_another_process_gets_no_command(
    side: Side, host: Host, make_host: Callable[..., Host]
) -> None:
    """Its own id may name another approval there."""
    host.ask("s1")
    approval_id = await side.asked("s1")
    host.link.stop()
    other = await side.online(make_host(boot="boot2"))
    other.ask("s1")
    await side.asked("s1", "boot2")
    body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
    refused = await side.refused("approval.resolve", **body)
    assert refused.code in ("gateway_offline", "already_resolved")
    assert other.commands == []


async def test_a_lost_answer_is_asked_for_again(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    async with Side(tmp_path, deadline_s=0.2) as side:
        host = await side.online(make_host())
        host.silent.add("approve")
        host.ask("s1")
        approval_id = await side.asked("s1")
        body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
        await side.ask("approval.resolve", **body)
        await until(lambda: host.commands)
        host.link.stop()
        await until(lambda: side.gateways.boot_of("gw1") is None)
        host.errors["approve"] = "ambiguous"
        host.answer(host.commands[0])
        host.link.start()
        await until(lambda: not side.under_way)
        assert (await side.entry(approval_id)).waits
        assert len(host.commands) == 1


async def _killed_after_claiming(path: Path, host: Host) -> str:
    """loomid ends while the answer is with the gateway; the approval's id."""
    host.silent.add("approve")
    async with Side(path) as side:
        await side.online(host)
        host.ask("s1")
        approval_id = await side.asked("s1")
        body = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
        await side.ask("approval.resolve", **body)
        await until(lambda: host.commands)
    return approval_id


@pytest.mark.parametrize("error", [None, "not_pending", "ambiguous"])
async def test_a_claim_survives_a_restart(
    tmp_path: Path, make_host: Callable[..., Host], error: str | None
) -> None:
    host = make_host()
    approval_id = await _killed_after_claiming(tmp_path, host)
    mine = {"approval_id": approval_id, "choice": "once", "request_id": "r1"}
    late = {"approval_id": approval_id, "choice": "deny", "request_id": "r2"}
    async with Side(tmp_path) as side:
        # Nobody knows yet what became of the answer: it stands.
        assert (await side.ask("approval.resolve", **mine))["state"] == "accepted"
        assert (await side.refused("approval.resolve", TABLET, **late)).code == "already_resolved"
        if error:
            host.errors["approve"] = error
        host.answer(host.commands[0])
        await until(lambda: not side.under_way)
        assert len(host.commands) == 1
        host.errors.clear()
        host.silent.clear()
        await side.online(host)
        late["request_id"] = "r3"
        if error == "ambiguous":
            await side.ask("approval.resolve", TABLET, **late)
            await side.decided("s1")
            assert len(host.commands) == 2
        else:
            assert (await side.refused("approval.resolve", **late)).code == "already_resolved"
            assert len(host.commands) == 1


async def test_a_claim_whose_command_never_left_is_given_back(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    async with Side(tmp_path) as side:
        await side.online(host)
        host.ask("s1")
        body = await side.only_claimed("s1")
    async with Side(tmp_path) as side:
        await until(lambda: not side.under_way)
        assert (await side.entry(body["approval_id"])).waits
        assert (await side.ask("approval.resolve", **body))["state"] == "accepted"
        await side.decided("s1")
    assert len(host.commands) == 1


async def test_a_claim_of_a_process_that_is_gone_stands(
    tmp_path: Path, make_host: Callable[..., Host]
) -> None:
    host = make_host()
    approval_id = await _killed_after_claiming(tmp_path, host)
    host.link.stop(0.1)
    async with Side(tmp_path) as side:
        await side.online(make_host(boot="boot2"))
        await until(lambda: not side.under_way)
        late = {"approval_id": approval_id, "choice": "deny", "request_id": "r2"}
        assert (await side.refused("approval.resolve", **late)).code == "already_resolved"


async def test_a_claim_that_was_not_stored_is_none(
    side: Side, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError

    host.ask("s1")
    body = {"approval_id": await side.asked("s1"), "choice": "once", "request_id": "r1"}
    with monkeypatch.context() as broken:
        broken.setattr(side.ledger, "claim", fail)
        assert (await side.refused("approval.resolve", **body)).code == "internal"
    assert host.commands == []
    assert (await side.refused("approval.resolve", **body)).code == "gateway_offline"
    assert (await side.ask("approval.resolve", **body))["state"] == "accepted"
    await side.decided("s1")
