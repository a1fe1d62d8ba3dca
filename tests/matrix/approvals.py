"""Rows about approvals: who asks, who answers, and what is no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.rows import scenario, went_through
from tests.matrix.world import APPROVAL_S

if TYPE_CHECKING:
    from tests.matrix.world import Player
    from tests.support.phone import Got


async def asked(player: Player, text: str = "danger") -> tuple[Got, Got]:
    """Run something that needs an approval: run.started and the approval."""
    request_id, _ = await player.send(text)
    started = await player.started(request_id)
    approval = await player.event("approval.required", run_id=started.payload["run_id"])
    assert approval.payload["task_id"] == started.payload["task_id"]
    assert "rm -rf" in approval.payload["command"]
    return started, approval


async def resolve(player: Player, approval: Got, choice: str) -> Got:
    """Answer; the result frame."""
    approval_id = approval.payload["approval_id"]
    return await player.request("approval.resolve", approval_id=approval_id, choice=choice)


@scenario
async def approval_once(player: Player) -> None:
    started, approval = await asked(player)
    offered = [c["choice"] for c in approval.payload["choices"]]
    assert offered[0] == "once"
    assert offered[-1] == "deny"
    assert approval.payload["deadline_ts"] > started.payload["started_at"]
    answer = await resolve(player, approval, "once")
    assert answer.payload["state"] == "accepted", answer.payload
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert resolved.payload["choice"] == "once"
    assert (resolved.payload["decided_by"], resolved.payload["outcome"]) == ("remote", "applied")
    done = await player.event("run.tool_finished", run_id=started.payload["run_id"])
    end = await player.ended(started.payload["run_id"])
    assert done.payload["ok"] is went_through(end)
    late = await resolve(player, approval, "deny")
    assert late.payload["code"] == "already_resolved"
    player.check()


@scenario
async def approval_deny(player: Player) -> None:
    started, approval = await asked(player)
    await resolve(player, approval, "deny")
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert (resolved.payload["choice"], resolved.payload["decided_by"]) == ("deny", "remote")
    done = await player.event("run.tool_finished", run_id=started.payload["run_id"])
    assert done.payload["ok"] is False
    await player.ended(started.payload["run_id"])
    player.check()


@scenario
async def approval_timeout(player: Player) -> None:
    started, approval = await asked(player)
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert (resolved.payload["choice"], resolved.payload["decided_by"]) == ("deny", "timeout")
    assert resolved.payload["outcome"] == "expired"
    assert abs(approval.payload["deadline_ts"] - approval.frame.ts - APPROVAL_S) < 1.0
    await player.ended(started.payload["run_id"])
    player.check()


@scenario
async def may_not_approve(player: Player) -> None:
    """Neither by an answer nor by Hermes' own command; then its owner allows it."""
    await player.allow("send")
    started, approval = await asked(player)
    assert approval.payload["choices"]
    refused = await resolve(player, approval, "once")
    assert refused.payload["code"] == "not_permitted"
    assert refused.payload["params"]["needs"] == "approve"
    task_id = started.payload["task_id"]
    command = await player.request("session.send", task_id=task_id, text="/approve", command=True)
    assert command.payload["code"] == "not_permitted"
    await player.allow("send", "approve")
    answer = await resolve(player, approval, "once")
    assert answer.payload["state"] == "accepted", answer.payload
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert (resolved.payload["choice"], resolved.payload["outcome"]) == ("once", "applied")
    await player.ended(started.payload["run_id"])


@scenario
async def bad_choice(player: Player) -> None:
    started, approval = await asked(player)
    for word in ("yes", "no", "approve", "ONCE", ""):
        refused = await resolve(player, approval, word)
        assert refused.payload["code"] == "bad_choice"
    await resolve(player, approval, "deny")
    await player.ended(started.payload["run_id"])


@scenario
async def two_pending_out_of_order(player: Player) -> None:
    """One turn asks one after the other; the door of the other platform asks two at once."""
    key = "agent:main:other:dm:two"
    commands = ["rm -rf /tmp/loomid-two-a", "rm -rf /tmp/loomid-two-b"]
    after = player.mark()
    await player.world.ask_other("guard", session_key=key, commands=commands)
    first = await player.event("approval.required", after=after, command=commands[0])
    second = await player.event("approval.required", after=after, command=commands[1])
    await resolve(player, second, "once")
    got = await player.event("approval.resolved", approval_id=second.payload["approval_id"])
    assert (got.payload["choice"], got.payload["decided_by"]) == ("once", "remote")
    await resolve(player, first, "deny")
    got = await player.event("approval.resolved", approval_id=first.payload["approval_id"])
    assert (got.payload["choice"], got.payload["decided_by"]) == ("deny", "remote")
    answers = await player.world.ask_other("answers")
    assert [answers[command]["choice"] for command in commands] == ["deny", "once"]


@scenario
async def asked_by_another_surface(player: Player) -> None:
    after = player.mark()
    await player.world.ask_other("inject", text="danger", chat_id="m-asked", message_id="m-asked")
    approval = await player.event("approval.required", after=after)
    run = await player.event("run.started", run_id=approval.payload["run_id"])
    assert run.payload["surface"] == "other"
    answer = await resolve(player, approval, "once")
    assert answer.payload["state"] == "accepted", answer.payload
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert (resolved.payload["choice"], resolved.payload["decided_by"]) == ("once", "remote")
    end = await player.ended(run.payload["run_id"])
    assert end.payload["text"].startswith("done: ")
    player.check()


@scenario
async def resolved_elsewhere(player: Player) -> None:
    after = player.mark()
    await player.world.ask_other("inject", text="danger", chat_id="m-else", message_id="m-else")
    approval = await player.event("approval.required", after=after)
    await player.world.ask_other("inject", text="/deny", chat_id="m-else", message_id="m-else-2")
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert (resolved.payload["choice"], resolved.payload["decided_by"]) == ("deny", "local")
    late = await resolve(player, approval, "once")
    assert late.payload["code"] == "already_resolved"
    await player.ended(approval.payload["run_id"])
    player.check()


@scenario
async def texts_like_answers(player: Player) -> None:
    started, approval = await asked(player)
    task_id = started.payload["task_id"]
    for text in ("yes", "always", "/approve"):
        answer = await player.request("session.send", task_id=task_id, text=text)
        assert answer.payload.get("accepted") or answer.payload["code"] == "reserved_text"
    pending = [
        g
        for g in player.phone.events("approval.resolved")
        if g.payload["approval_id"] == approval.payload["approval_id"]
    ]
    # It ran out, or Hermes gave it up (see went_through): no text decided it.
    assert all(g.payload["outcome"] in ("expired", "cancelled") for g in pending), pending
    await resolve(player, approval, "deny")
    resolved = await player.event("approval.resolved", approval_id=approval.payload["approval_id"])
    assert resolved.payload["choice"] == "deny"
    await player.ended(started.payload["run_id"])
