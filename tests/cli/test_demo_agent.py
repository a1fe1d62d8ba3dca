"""The demo's agent, in its own process, on a real link: facts and answers to commands."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import pytest

from loomid import wire
from loomid.demo_script import HELP
from loomid.gateway import CommandFailed, Gateways

KEY = "agent:main:loomi:dm:c1"


class Bench:
    """A loomid side that only takes facts, and the agent's process."""

    def __init__(self, gateways, process):
        self.gateways = gateways
        self.process = process
        self.facts = []

    async def until(self, wanted, within=10.0):
        """Wait for the first fact that `wanted` likes; older ones count."""
        async with asyncio.timeout(within):
            while True:
                for fact in self.facts:
                    if wanted(fact):
                        return fact
                await self.gateways.arrived(60.0)
                for arrival in self.gateways.take():
                    self.facts.append(arrival.fact)
                    self.gateways.ack(arrival.gateway_id, arrival.boot, arrival.n)

    async def command(self, op, **args):
        gateway_id = self.gateways.states()[0].gateway_id
        return await self.gateways.command(gateway_id, op, args, command_id=f"{op}{time.time_ns()}")

    async def inject(self, text, **more):
        args = {"chat_id": "c1", "text": text, "message_id": "m1"}
        return await self.command("inject", **{**args, "mode": "queue", **more})

    def of(self, type_):
        return [fact for fact in self.facts if isinstance(fact, type_)]


def is_a(type_, **fields):
    return lambda fact: (
        isinstance(fact, type_)
        and all(getattr(fact, name) == value for name, value in fields.items())
    )


@contextlib.asynccontextmanager
async def bench(tmp_path, pace="0.002"):
    path = tmp_path / "hermes.sock"
    gateways = Gateways(path, version="1", instance="i", clock=time.time, acked={})
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(gateways.run())
        await gateways.ready.wait()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "loomid.demo_agent", f"ipc://{path}", pace, stdin=-1
        )
        try:
            found = Bench(gateways, process)
            await found.until(is_a(wire.Inventory))
            yield found
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), 5) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            serving.cancel()


async def test_says_back(tmp_path):
    async with bench(tmp_path) as b:
        value = await b.inject("hello  there", device_id="d1", request_id="r1")
        assert value == {"session_key": KEY, "message_id": "m1", "copies": []}
        await b.until(is_a(wire.ProcessingEnded, outcome="success"))
        (injected,) = b.of(wire.Injected)
        assert (injected.device_id, injected.request_id, injected.busy) == ("d1", "r1", False)
        (answered,) = b.of(wire.TurnAnswered)
        assert answered.text == "You wrote: hello  there"
        (started,) = b.of(wire.TurnStarted)
        assert started.session_key == KEY
        deltas = [fact.text for fact in b.of(wire.Delta)]
        assert len(deltas) > 2
        assert "".join(deltas) == answered.text
        sessions = (await b.command("sessions", limit=10, offset=0))["sessions"]
        assert [s["title"] for s in sessions] == ["hello there"]
        assert (await b.command("running", fact="running"))["keys"] == []


@pytest.mark.parametrize("choice", ["once", "deny"])
async def test_danger_asks_and_obeys(tmp_path, choice):
    async with bench(tmp_path) as b:
        await b.inject("danger")
        asked = await b.until(is_a(wire.ApprovalAsked))
        assert (await b.command("running", fact="running"))["keys"] == [KEY]
        with pytest.raises(CommandFailed) as caught:
            await b.command("approve", approval_id="nonsense", choice=choice)
        assert caught.value.code == "not_pending"
        applied = await b.command("approve", approval_id=asked.approval_id, choice=choice)
        assert applied == {"applied": True}
        done = await b.until(is_a(wire.ApprovalDone))
        assert done.choice == choice
        assert done.command_id is not None
        await b.until(is_a(wire.ProcessingEnded))
        (tool,) = b.of(wire.ToolEnded)
        assert tool.status == ("ok" if choice == "once" else "blocked")


async def test_cancel_ends_the_turn_and_drops_what_waits(tmp_path):
    async with bench(tmp_path, pace="0.05") as b:
        await b.inject("long")
        await b.inject("next", message_id="m2")
        delta = await b.until(is_a(wire.Delta))
        with pytest.raises(CommandFailed) as caught:
            await b.command("cancel", session_key=KEY, turn_id="another")
        assert caught.value.code == "not_active"
        value = await b.command("cancel", session_key=KEY, turn_id=delta.turn_id)
        assert value == {"state": "cancelling", "dropped": ["m2"]}
        await b.until(is_a(wire.ProcessingEnded, outcome="cancelled"))
        assert b.of(wire.StreamEnded)[-1].finished is False
        assert b.of(wire.TurnEnded)[-1].interrupted is True


async def test_a_failed_turn_has_no_end_of_its_own(tmp_path):
    async with bench(tmp_path) as b:
        await b.inject("fail, please")
        await b.until(is_a(wire.ProcessingEnded))
        assert len(b.of(wire.ApiFailed)) == 1
        assert not b.of(wire.TurnEnded)
        assert not b.of(wire.TurnAnswered)


@pytest.mark.parametrize("word", ["tool", "think", "notify"])
async def test_other_words_end_well(tmp_path, word):
    async with bench(tmp_path) as b:
        await b.inject(word)
        await b.until(is_a(wire.ProcessingEnded, outcome="success"))
        if word == "tool":
            assert len(b.of(wire.ToolEnded)) == len(b.of(wire.Interim)) == 1
        elif word == "think":
            assert {fact.channel for fact in b.of(wire.Delta)} == {"text", "reasoning"}
        else:
            assert [fact.job_id for fact in b.of(wire.Sent) if fact.chat_id == "home"] == ["backup"]
    assert word in HELP


async def test_strange_commands(tmp_path):
    async with bench(tmp_path) as b:
        for op, args, code in [("dance", {}, "unknown_op"), ("inject", {}, "bad_args")]:
            with pytest.raises(CommandFailed) as caught:
                await b.command(op, **args)
            assert caught.value.code == code


async def test_ctrl_c_is_not_for_the_agent(tmp_path):
    async with bench(tmp_path) as b:
        os.kill(b.process.pid, signal.SIGINT)
        await b.inject("still here")
        await b.until(is_a(wire.ProcessingEnded))
