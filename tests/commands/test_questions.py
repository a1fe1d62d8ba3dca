"""Questions from a gateway through the daemon to phones and loomictl: as approvals are."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.answering import Host
from tests.support.daemon import Daemon
from tests.support.deciding import WAIT_S, find, phones
from tests.support.loomictl import loomictl
from tests.support.waiting import until

if TYPE_CHECKING:
    import subprocess

    from tests.support.phone import Connection, Got

pytestmark = pytest.mark.timeout(240)  # ten processes in a test, each slow on a busy machine

COUNT = 12
RED = [{"id": "q0", "selected": ["red"]}]
LOST = {"state": "lost", "outcome": "lost", "decided_by": "agent"}


async def answer(phone: Connection, question_id: str, answers: Any = RED, **more: Any) -> Got:
    """Answer on a phone, or cancel with None: the result or error frame."""
    body = {"question_id": question_id, "request_id": f"r{random.getrandbits(60)}"} | more
    if answers is None:
        return await phone.request("question.cancel", **body)
    return await phone.request("question.answer", answers=answers, **body)


async def asked(phone: Connection, text: str = "Which?") -> str:
    """Wait until this phone is asked; the question's id."""

    def found() -> str | None:
        for got in phone.got:
            if got.type == "question.required" and got.payload["questions"][0]["question"] == text:
                return str(got.payload["question_id"])
        return None

    name: str = await phone.wait_for(found, WAIT_S)
    return name


def card(text: str) -> dict[str, Any]:
    return {"question": text, "choices": ["red (Recommended)", "blue"], "multi_select": False}


async def by_owner(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(loomictl, daemon.runtime_dir, "answer", *words)


def won(done: subprocess.CompletedProcess[str], said: str = "Answered.") -> bool:
    """Whether loomictl says that its answer counts; on a busy machine Hermes may be slow to say."""
    return done.returncode == 0 and done.stdout.startswith((said, "Accepted;"))


async def listed(daemon: Daemon) -> dict[str, dict[str, Any]]:
    found = await asyncio.to_thread(loomictl, daemon.runtime_dir, "questions", "--json")
    return {one["question_id"]: one for one in json.loads(found.stdout)["questions"]}


async def test_many_at_once_each_answer_on_its_own_question(daemon: Daemon, stand_in: Host) -> None:
    """By three phones and loomictl, in any order; each is answered twice."""
    chance = random.Random(11)
    async with phones(daemon, 3) as connections:
        for i in range(COUNT):
            stand_in.question(f"s{i}", questions=[card(f"Which {i}?")])
        names = [await asked(connections[i % 3], f"Which {i}?") for i in range(COUNT)]

        async def one(i: int, colour: str) -> tuple[int, bool]:
            said = await answer(
                chance.choice(connections), names[i], [{"id": "q0", "selected": [colour]}]
            )
            if said.type == "error":
                assert said.payload["code"] == "already_resolved"
            return i, said.type != "error"

        async def owner(i: int) -> tuple[int, bool]:
            done = await by_owner(daemon, names[i], "2")
            assert won(done) or "decided already" in done.stderr
            return i, done.returncode == 0

        taps = [one(i, "red") for i in range(COUNT)]
        taps += [owner(i) if i % 4 == 0 else one(i, "blue") for i in range(COUNT)]
        chance.shuffle(taps)
        said = await asyncio.gather(*taps)
        ends = {
            name: [
                (await find(phone, "question.resolved", question_id=name)).payload
                for phone in connections
            ]
            for name in names
        }
        rows = await listed(daemon)
    assert sorted(i for i, won in said if won) == list(range(COUNT))
    assert len(stand_in.decided) == len(stand_in.ops("answer")) == COUNT
    places = {
        c.args["question_id"]: c.args["answers"][0]["selected"] for c in stand_in.ops("answer")
    }
    for i, name in enumerate(names):
        row = rows[name]
        colour = ["red", "blue"][places[f"s{i}"][0]]
        assert (row["state"], row["answer"][0]["selected"]) == ("answered", [colour])
        by = "local" if row["device_id"] == "loomictl" else "remote"
        assert ends[name] == [{"question_id": name, "outcome": "answered", "decided_by": by}] * 3


async def test_at_the_deadline_everybody_is_told_what_the_host_did(
    daemon: Daemon, stand_in: Host
) -> None:
    async with phones(daemon, 2) as (one, two):
        stand_in.question("s1", timeout_s=0.3)
        name = await asked(one)
        assert stand_in.end_question("s1", "timeout")
        end = await find(two, "question.resolved", question_id=name)
        assert (end.payload["outcome"], end.payload["decided_by"]) == ("timeout", "timeout")
        late = await answer(two, name)
        told = {"state": "timeout", "outcome": "timeout", "decided_by": "timeout"}
        assert late.payload["params"] == told


async def test_what_is_no_answer_changes_nothing(daemon: Daemon, stand_in: Host) -> None:
    async with phones(daemon, 1) as (phone,):
        assert "questions" in phone.hello_ok.payload["capabilities"] or await find(
            phone, "gateway.status", capabilities=["questions"]
        )
        stand_in.question("s1")
        name = await asked(phone)
        refused = await answer(phone, name, [], request_id="again")
        assert refused.payload["code"] == "bad_answer"
        assert refused.payload["params"] == {"reason": "count"}
        unknown = await answer(phone, "qst_nothing")
        assert unknown.payload["code"] == "unknown_question"
        approval = await phone.request(
            "approval.resolve", approval_id=name, choice="once", request_id="r"
        )
        assert approval.payload["code"] == "unknown_approval"
        assert not stand_in.commands
        # What is refused is not remembered: the same request may be sent again, mended.
        body = {"question_id": name, "answers": RED, "request_id": "again"}
        await phone.send("question.answer", body)
        again = await find(phone, "question.answer.result")
        assert again.payload == {"request_id": "again", "question_id": name, "state": "accepted"}


async def test_what_waits_comes_again_on_every_connect(daemon: Daemon, stand_in: Host) -> None:
    async with phones(daemon, 2) as (one, two):
        stand_in.start_turn("t1")
        stand_in.question("s1", "t1", tool_call_id="c1")
        name = await asked(one)
        run = await find(two, "question.required", question_id=name)
        assert run.payload["call_id"] == "c1"
        assert run.frame.run_id == run.payload["run_id"]
        waits = await find(one, "task.updated", status="waiting")
        assert waits.payload["task_id"] == run.payload["task_id"]
        await asyncio.to_thread(daemon.kill)
        await asyncio.to_thread(daemon.start)
        await until(lambda: daemon.status()["gateways"][0]["online"], WAIT_S)
        async with one.phone.connect() as again:
            await again.wait_for(
                lambda: [
                    got for got in again.got if got.type == "question.required" and got.frame.replay
                ]
            )
            assert (await answer(again, name, None)).payload["state"] == "accepted"
            end = await find(again, "question.resolved", question_id=name)
            assert (end.payload["outcome"], end.payload["decided_by"]) == ("cancelled", "remote")
        async with two.phone.connect() as back:
            await find(back, "question.resolved", question_id=name)
            late = await answer(back, name)
            told = {"state": "cancelled", "outcome": "cancelled", "decided_by": "remote"}
            assert late.payload["params"] == told


async def test_an_answer_that_did_not_run_can_be_given_again(
    daemon: Daemon, stand_in: Host
) -> None:
    stand_in.errors["answer"] = "starting"
    async with phones(daemon, 2) as (one, two):
        stand_in.question("s1")
        name = await asked(two)
        accepted = await answer(one, name, request_id="mine")
        assert accepted.payload["state"] == "accepted"
        mine = {"device_id": one.phone.device_id, "request_id": "mine", "reason": "gateway_offline"}
        for phone in (one, two):
            again = await find(phone, "question.required", returned=mine)
            assert again.frame.replay
            assert again.payload["questions"]
        stand_in.errors.clear()
        assert (await answer(two, name, None)).payload["state"] == "accepted"
        end = await find(one, "question.resolved", question_id=name)
        assert end.payload["outcome"] == "cancelled"
    assert [(outcome, bool(by)) for _, outcome, by in stand_in.decided] == [("cancelled", True)]


async def test_a_gateway_that_goes_takes_its_questions_along(
    daemon: Daemon, stand_in: Host
) -> None:
    async with phones(daemon, 1) as (phone,):
        stand_in.question("s1")
        name = await asked(phone)
        stand_in.link.stop(1.0)
        again = Host(daemon.runtime_dir / "hermes.sock", boot="boot2")
        again.link.start()
        try:
            end = await find(phone, "question.resolved", question_id=name)
            assert (end.payload["outcome"], end.payload["decided_by"]) == ("lost", "agent")
            assert (await answer(phone, name)).payload["params"] == LOST
        finally:
            again.link.stop(0.1)


async def test_what_the_host_no_longer_lists_is_lost(daemon: Daemon, stand_in: Host) -> None:
    async with phones(daemon, 1) as (phone,):
        stand_in.question("s1")
        name = await asked(phone)
        stand_in._questions.clear()
        # Not younger than what an inventory may have missed.
        begun = time.monotonic()
        await asyncio.to_thread(daemon.kill)
        while time.monotonic() < begun + 1.1:  # noqa: ASYNC110 - the clock is what counts
            await asyncio.sleep(0.05)
        await asyncio.to_thread(daemon.start)
        async with phone.phone.connect() as again:
            end = await find(again, "question.resolved", question_id=name)
            assert end.payload["outcome"] == "lost"


async def test_loomictl_shows_all_that_is_asked_and_answers_it(
    daemon: Daemon, stand_in: Host
) -> None:
    empty = await asyncio.to_thread(loomictl, daemon.runtime_dir, "questions")
    assert (empty.returncode, empty.stdout) == (0, "")
    sizes = {"question": "Sizes\x1b[31m?", "choices": ["S", "M", "L"], "multi_select": True}
    own = {"question": "What for?", "choices": None, "multi_select": False}
    async with phones(daemon, 1) as (phone,):
        stand_in.question("s1", questions=[card("Which?"), sizes, own])
        name = await asked(phone)
        shown = (await asyncio.to_thread(loomictl, daemon.runtime_dir, "questions")).stdout
        assert shown.splitlines()[0].startswith(f"{name}  ")
        assert "    1. red\n    2. blue\n" in shown
        assert "(several may be chosen)" in shown
        assert "\x1b" not in shown
        assert (await by_owner(daemon, name)).returncode == 2
        few = await by_owner(daemon, name, "1")
        assert (few.returncode, "it asks for 3 answers, given are 1" in few.stderr) == (1, True)
        beyond = await by_owner(daemon, name, "1", "2, 4", "x")
        assert (beyond.returncode, "no option 4: they are 1 to 3" in beyond.stderr) == (1, True)
        wrong = await by_owner(daemon, name, "1", "S,S", "x")
        assert (wrong.returncode, "duplicate" in wrong.stderr) == (1, True)
        done = await by_owner(daemon, name.removeprefix("qst_")[:8], "2", "S, 3", "a present")
        assert won(done)
        await find(phone, "question.resolved", question_id=name)
        assert stand_in.ops("answer")[0].args["answers"] == [
            {"selected": [1]},
            {"selected": [0, 2]},
            {"selected": [], "custom": "a present"},
        ]
        late = await by_owner(daemon, name, "--cancel")
        assert (late.returncode, "decided_by: local" in late.stderr) == (1, True)
        stand_in.question("s2", questions=[card("Again?")])
        name = await asked(phone, "Again?")
        assert won(await by_owner(daemon, name, "--cancel"), "Cancelled.")
        await find(phone, "question.resolved", question_id=name, outcome="cancelled")
        assert daemon.status()["pending_questions"] == 0
        assert (await listed(daemon))[name]["answer"] is None
        stand_in.question("s3", questions=[card("By a phone?")])
        await answer(phone, await asked(phone, "By a phone?"), [{"id": "q0", "custom": "so"}])
        await find(phone, "question.resolved", outcome="answered")
        shown = (await asyncio.to_thread(loomictl, daemon.runtime_dir, "questions")).stdout
        assert f"answered by Pixel ({phone.phone.device_id})" in shown
