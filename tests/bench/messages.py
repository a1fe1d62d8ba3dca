"""What is published: one text for all servers, and how often.

A message is a whole LMP frame of `SIZE` bytes (a digit more or less), the same for every
server. In its text stand its number and when it was published, for the load client.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from loomid.lmp import envelope, frames

SIZE = 250
BATCH = 512
"""How many events at most are formed at once: what loomid's pump takes at once."""
TASK, RUN = "task_1", "run_1"


def mark(number: int) -> str:
    """Number and time of publication, as swarm.c reads them."""
    return f"@{number:010d}.{time.monotonic_ns():019d}"


def frame(seq: int, payload: frames.Payload) -> str:
    """The frame in which loomid would send a payload."""
    body = envelope.encode_payload(payload)
    parts = envelope.frame_parts("run.delta", 1759123456.789012, TASK, RUN, body)
    return envelope.render(seq, parts).decode()


def delta(text: str) -> frames.RunDelta:
    """A piece of a run's text."""
    return frames.RunDelta(run_id=RUN, text=text, kind="text", iteration=1)


FILLING = "." * (SIZE - len(frame(100_000, delta(mark(1)))))
REST, END = frame(7, delta("|")).removeprefix('{"v":1,"seq":7,"event_id":"e_7"').split("|")


def text(number: int) -> str:
    """The text of an event."""
    return mark(number) + FILLING


def message(number: int) -> str:
    """The whole frame of an event, for servers that take it as it is."""
    return f'{{"v":1,"seq":{number},"event_id":"e_{number}"{REST}{text(number)}{END}'


@dataclass(frozen=True)
class Order:
    """What a publisher is to do: events from `first` on, at most for some seconds.

    `rate` is events a second, or 0: as fast as they are taken.
    """

    first: int
    count: int
    rate: float = 0.0
    seconds: float = 60.0

    def due(self, since: float, sent: int) -> int:
        """How many may go now; -1 when it is over."""
        passed = time.monotonic() - since
        if sent >= self.count or passed >= self.seconds:
            return -1
        allowed = self.count if self.rate == 0 else int(passed * self.rate) + 1
        return min(allowed, self.count) - sent

    def pause(self, since: float, sent: int) -> float:
        """Seconds until the next one may go."""
        return max(0.0, since + sent / self.rate - time.monotonic())

    def done(self, begun: int, sent: int) -> dict[str, int]:
        """What the publisher says at the end: times in ns, and the last number."""
        return {"begun": begun, "ended": time.monotonic_ns(), "last": self.first + sent - 1}

    def line(self) -> str:
        """As a line for the publisher's stdin."""
        return json.dumps(asdict(self)) + "\n"


def say(**what: object) -> None:
    """Tell the bench."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
