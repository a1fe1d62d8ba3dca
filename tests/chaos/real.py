"""A real Hermes gateway in the place of the stand-in, and what can be known of it.

It keeps no journal. The scripted model knows which messages were said to it, and so how often
each ran; what it answers is determined by the message.
"""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.journal import Ran, Truth
from tests.chaos.judge import Judge
from tests.support.hermes import RELEASES, Gateway
from tests.support.model import DANGER, Model

if TYPE_CHECKING:
    from random import Random

    from tests.support.view import Run

TAG = re.compile(r"<(dev_\w+)/([\w-]+)>")
SAY = re.compile(r"^say (\d+)", re.MULTILINE)
OUTCOMES = frozenset({"applied", "expired", "answered", "timeout", "cancelled", "lost"})


class RealTruth(Truth):
    """What the model was asked."""

    at_once = False

    def __init__(self, model: Model) -> None:
        super().__init__(Path("/dev/null"))
        self.rested = True
        self._model = model
        self._taken = 0

    def read(self) -> None:
        """Count how often each message was said, in the conversation where it was most."""
        new = self._model.seen[self._taken :]
        self._taken += len(new)
        self.lines += len(new)
        for messages in new:
            said = [str(m.get("content")) for m in messages if m.get("role") == "user"]
            tags = [tag for text in said for tag in TAG.findall(text)]
            for tag in set(tags):
                known = self.injected[tag]
                known += [Ran("", self.lines, "inject", {})] * (tags.count(tag) - len(known))


class RealJudge(Judge):
    """Without a journal: each run, approval and question has one end, and a whole answer is the
    model's."""

    def _judge(self, _mark: str, type_: str, payload: dict[str, Any], shown: Run) -> None:
        self.counts["runs"] += 1
        asked = SAY.search(shown.started.get("prompt", ""))
        if asked is None or type_ == "run.failed" or payload["status"] != "completed":
            return
        true = " ".join(f"w{number}" for number in range(int(asked[1])))
        texts = payload["text"].strip(), shown.text(1).strip()
        if texts != (true, true):
            self._violated("wrong text", said=texts, true=true)

    def told(self, name: str, said: dict[str, Any]) -> None:
        """Which of them is true is Hermes' secret."""
        if "outcome" in said and said["outcome"] not in OUTCOMES:
            self._violated("wrong outcome", asked=name, said=said)


class RealHost:
    """The gateway process, with the interface of the stand-in."""

    def __init__(self, folder: Path, release: str) -> None:
        self.kills = self.stops = 0
        self.endpoint = ""
        self._folder = folder / "hermes"
        self._release = next(one for one in RELEASES if one.name == release)
        self._model = Model()
        self.truth = RealTruth(self._model)
        self._gateway: Gateway | None = None

    async def start(self) -> None:
        """Begin another process and wait until it is ready."""
        if self._gateway is None:
            self._folder.mkdir()
            where = self._release, self._folder, self._model.url, self.endpoint
            self._gateway = Gateway(*where)
        await asyncio.to_thread(self._gateway.start)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._gateway is not None
        self.kills += 1
        self._gateway.kill()

    async def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        assert self._gateway is not None
        assert self._gateway.process is not None
        self.stops += 1
        self._gateway.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._gateway.process.send_signal(signal.SIGCONT)

    def rest(self) -> None:
        """It does nothing by itself."""

    @staticmethod
    def text(device_id: str, request_id: str, rng: Random) -> str:
        """What a phone writes to it: a tag, and what the scripted model is to do."""
        what = (
            f"say {rng.randint(3, 60)} 20",
            "tool",
            f"danger {DANGER}-{request_id}",
            "clarify",
            "slow 2",
        )
        return f"<{device_id}/{request_id}>\n{rng.choice(what)}"

    def close(self) -> None:
        """End it, whatever state it is in."""
        process = None if self._gateway is None else self._gateway.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        self._model.close()
