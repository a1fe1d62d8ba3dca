"""A stand-in host process with the shim's link: `python -m tests.bench.host SOCKET`.

Each line of stdin is an order: it emits results of scheduled jobs, each of which becomes one
notification, as fast as a Python thread can or paced. It says so as soon as they are emitted.
"""

from __future__ import annotations

import json
import sys
import time

from hermes_shim.link import Link
from tests.bench import messages
from tests.bench.messages import BATCH, Order, say
from tests.support.host import identity


class Owner:
    """Asks for nothing and does nothing."""

    def ready(self) -> bool:
        return True

    def execute(self, _command: dict[str, object]) -> None:
        pass


def linked(socket: str, **more: str) -> Link:
    """A link, once loomid has welcomed it."""
    link = Link(identity(**more), [f"ipc://{socket}"], Owner)
    link.start()
    while link.state != "linked":
        time.sleep(0.01)
    return link


def emit(link: Link, order: Order) -> dict[str, int]:
    """Carry out one order."""
    begun, since, sent = time.monotonic_ns(), time.monotonic(), 0
    while (due := order.due(since, sent)) >= 0:
        if due == 0:
            time.sleep(order.pause(since, sent))
        for number in range(order.first + sent, order.first + sent + min(due, BATCH)):
            link.emit("sent", _result(number))
            sent += 1
    return order.done(begun, sent)


def _result(number: int) -> dict[str, object]:
    where = {"chat_id": "home", "session_key": "agent:main:loomi:dm:home", "reply_to": None}
    flags = {"notify": True, "expect_edits": False, "interim": False}
    said = {"message_id": f"m{number}", "text": messages.mark(number), "job_id": "j"}
    return {**where, **flags, **said}


def main() -> None:
    """The program."""
    link = linked(sys.argv[1])
    say(ready=True)
    for line in sys.stdin:
        say(**emit(link, Order(**json.loads(line))))


if __name__ == "__main__":
    main()
