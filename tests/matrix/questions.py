"""Rows about questions: what phones are shown, and what becomes of their answers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.matrix.past import KINDS, live_run, turns_of
from tests.matrix.rows import scenario
from tests.support.stored import common

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.matrix.world import Player, World
    from tests.support.phone import Got


async def asked(player: Player, how: str = "") -> tuple[Got, Got]:
    """Have the model ask: run.started and the question."""
    request_id, task_id = await player.send(f"clarify {how}")
    started = await player.started(request_id)
    run_id = started.payload["run_id"]
    got = await player.event("question.required", run_id=run_id)
    tool = await player.event("run.tool_started", run_id=run_id, tool="clarify")
    assert (got.payload["task_id"], got.payload["call_id"]) == (task_id, tool.payload["call_id"])
    assert got.seq > tool.seq
    return started, got


async def answer(player: Player, asked: Got, *answers: dict[str, Any]) -> Got:
    """Answer; the result or error frame."""
    said = [{"id": f"q{place}", "selected": []} | one for place, one in enumerate(answers)]
    question_id = asked.payload["question_id"]
    return await player.request("question.answer", question_id=question_id, answers=said)


async def ended(player: Player, asked: Got) -> tuple[str, str]:
    """How it ended, and who ended it."""
    end = await player.event("question.resolved", question_id=asked.payload["question_id"])
    return end.payload["outcome"], end.payload["decided_by"]


@scenario
async def question_one_choice(player: Player) -> None:
    started, got = await asked(player)
    (question,) = got.payload["questions"]
    assert question["question"] == "Which colour?"
    assert [option["label"] for option in question["options"]] == ["red", "blue"]
    assert (question["multi_select"], question["custom"]) == (False, True)
    refused = await answer(player, got, {"selected": ["red", "blue"]})
    assert refused.payload["code"] == "bad_answer"
    assert refused.payload["params"] == {"reason": "one_choice", "id": "q0"}
    accepted = await answer(player, got, {"selected": ["red"]})
    assert accepted.payload["state"] == "accepted", accepted.payload
    assert await ended(player, got) == ("answered", "remote")
    end = await player.ended(started.payload["run_id"])
    assert '"user_response": "red"' in end.payload["text"]
    late = await answer(player, got, {"selected": ["blue"]})
    assert late.payload["code"] == "already_resolved"
    assert late.payload["params"]["answers"] == [{"id": "q0", "selected": ["red"]}]
    player.check()


@scenario
async def question_several_at_once(player: Player) -> None:
    """0.22; the other releases ask one a call."""
    started, got = await asked(player, "batch")
    said: list[dict[str, Any]] = [{"selected": ["blue"]}]
    if player.world.release.name == "22":
        said += [{"selected": ["S", "L"], "custom": "XL"}, {"custom": "fun"}]
    assert len(got.payload["questions"]) == len(said)
    assert (await answer(player, got, *said)).payload["state"] == "accepted"
    assert await ended(player, got) == ("answered", "remote")
    end = await player.ended(started.payload["run_id"])
    assert '"blue"' in end.payload["text"]
    assert ('"fun"' in end.payload["text"]) is (len(said) == 3)
    (turn,) = await turns_of(player, got.payload["task_id"])
    run = live_run(player, started.payload["run_id"])
    assert common(run.parts(), *KINDS) == common(turn.parts, *KINDS)
    (tool,) = (part for part in turn.parts if part.kind == "tool")
    assert tool.preview == "\n".join(one["question"] for one in got.payload["questions"])
    asks = [g for g in player.phone.events("question.required") if not g.frame.replay]
    assert len(asks) == 1
    player.check()


@scenario
async def question_several_choices(player: Player) -> None:
    """0.20 and 0.22."""
    started, got = await asked(player, "multi")
    several = got.payload["questions"][0]["multi_select"]
    assert several is (player.world.release.name != "19")
    await answer(player, got, {"selected": ["S", "L"] if several else ["L"]})
    end = await player.ended(started.payload["run_id"])
    assert ('["S", "L"]' if several else '"L"') in end.payload["text"]
    player.check()


@scenario
async def question_own_words(player: Player) -> None:
    started, got = await asked(player, "open")
    assert got.payload["questions"][0]["options"] == []
    await answer(player, got, {"custom": "a present"})
    end = await player.ended(started.payload["run_id"])
    assert '"user_response": "a present"' in end.payload["text"]
    player.check()


@scenario
async def question_cancelled(player: Player) -> None:
    """By itself, and with its run."""
    started, got = await asked(player)
    question_id = got.payload["question_id"]
    result = await player.request("question.cancel", question_id=question_id)
    assert result.payload["state"] == "accepted", result.payload
    assert await ended(player, got) == ("cancelled", "remote")
    await player.ended(started.payload["run_id"])
    started, got = await asked(player)
    await player.request("run.cancel", run_id=started.payload["run_id"])
    assert await ended(player, got) == ("cancelled", "local")
    end = await player.ended(started.payload["run_id"])
    assert end.payload["status"] == "cancelled"
    player.check()


@contextmanager
def wary(world: World) -> Iterator[None]:
    """Hermes asks before it throws a conversation away, as by default; it reads that each time."""
    path = world.gateway.home / "config.yaml"
    before = path.read_text()
    path.write_text(re.sub(r"(destructive_slash_confirm\W+)false", r"\1true", before))
    try:
        yield
    finally:
        path.write_text(before)


@scenario
async def command_confirmed(player: Player) -> None:
    first, _ = await player.play("say 2")
    task_id = first.payload["task_id"]
    with wary(player.world):
        for label, outcome in (("No", "cancelled"), ("Yes, this time", "answered")):
            after = player.mark()
            await player.send("/new", task_id=task_id, command=True)
            got = await player.event("question.required", after=after, task_id=task_id)
            assert (got.payload["intent"], got.payload["run_id"]) == ("confirm", None)
            labels = [option["label"] for option in got.payload["questions"][0]["options"]]
            assert labels == ["Yes, this time", "Yes, and never ask again", "No"]
            result = await answer(player, got, {"selected": [label]})
            assert result.payload["state"] == "accepted", result.payload
            assert await ended(player, got) == (outcome, "remote")
            told = await player.event("notification", after=after)
            assert (told.payload["source"], told.frame.task_id) == ("command", task_id)
    second, _ = await player.play("say 2", task_id=task_id)
    assert second.payload["session_id"] != first.payload["session_id"]
