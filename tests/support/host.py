"""A stand-in for the gateway process: a Link driven by script lines.

    python -m tests.support.host --socket /run/x/hermes.sock [--script file]

Each line of the script (stdin by default) is a JSON object:
    {"emit": kind, "body": {...}, "times": 1, "every": 0}   "%d" in texts becomes 0, 1, …
    {"await": "linked"}   {"sleep": 0.1}   {"stop": 1.0}   {"start": 1}   {"fork": 1}   {"exit": 0}
    {"busy": 1}           one more thread that computes all the time
It tells what happens as JSON lines on stdout: {"state": …}, {"command": …}, {"inventory": n}.
A command is answered with {"echo": args}; args {"silent": true} and {"error": code} do as they say.
At the end of the script it waits to be killed, or ends with --end.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from hermes_shim.link import Link
from loomid import wire


def identity(gateway_id: str = "gw1", boot: str = "boot1", **more: Any) -> dict[str, Any]:
    fields = {
        "gateway_id": gateway_id,
        "boot": boot,
        "pid": os.getpid(),
        "stat": Path("/proc/self/stat").read_text(),
        "name": "Stand-in",
        "hermes_version": "0.22.2",
        "shim_version": "0.1.0",
        "hooks": ["pre_llm_call", "on_stream_delta"],
    }
    return fields | more


def delta(text: str, turn: str = "t1", iteration: int = 1) -> dict[str, Any]:
    return {"turn_id": turn, "iteration": iteration, "text": text, "channel": "text"}


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")  # print would let threads mix their lines
    sys.stdout.flush()


class Host:
    def __init__(self, sockets: list[str], gateway_id: str, boot: str, beat_s: float) -> None:
        self.inventories = 0
        self.link = Link(
            identity(gateway_id, boot),
            [f"ipc://{path}" for path in sockets],
            lambda: self,
            beat_s=beat_s,
        )

    def ready(self) -> bool:
        return True

    def execute(self, command: dict[str, Any]) -> None:
        args = command["args"]
        if args == {"fact": "inventory"}:
            self.inventories += 1
            say(inventory=self.inventories)
            self.link.emit("inventory", {"keys": [], "approvals": []})
            return
        say(command=command["id"], op=command["op"])
        if not args.get("silent"):
            echo = {"error": args.get("error"), "value": {"echo": args}}
            self.link.reply({"id": command["id"], **echo})

    def watch(self) -> None:
        before = ""
        while True:
            if self.link.state != before:
                before = self.link.state
                say(state=before)
            time.sleep(0.005)

    def step(self, line: dict[str, Any]) -> None:
        if "emit" in line:
            for i in range(line.get("times", 1)):
                self.link.emit(line["emit"], numbered(line["body"], i))
                time.sleep(line.get("every", 0))
            return
        ((verb, value),) = line.items()
        getattr(self, f"do_{verb}")(value)

    def do_await(self, state: str) -> None:
        while self.link.state != state:
            time.sleep(0.002)

    def do_sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_start(self, _: object) -> None:
        self.link.start()

    def do_stop(self, wait_s: float) -> None:
        self.link.stop(wait_s)

    def do_busy(self, _: object) -> None:
        threading.Thread(target=compute, daemon=True).start()

    def do_exit(self, status: int) -> None:
        say(exit=status)
        sys.exit(status)

    def do_fork(self, _: object) -> None:
        """A child that uses everything it inherited and leaves in the ordinary way."""
        pid = os.fork()
        if pid == 0:
            self.link.emit("delta", delta("from the child"))
            self.link.stop()
            self.link.start()
            sys.exit(0 if self.link.state == "stopped" else 3)
        say(forked=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def numbered(body: dict[str, Any], i: int) -> dict[str, Any]:
    return {k: v.replace("%d", str(i)) if isinstance(v, str) else v for k, v in body.items()}


def compute() -> None:
    """A CPU-bound Python thread."""
    n = 0
    while True:
        n = (n * 31 + 7) % 1_000_003


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", action="append", required=True)
    parser.add_argument("--gateway", default="gw1")
    parser.add_argument("--boot", default="boot1")
    parser.add_argument("--beat", type=float, default=wire.BEAT_S)
    parser.add_argument("--script", type=argparse.FileType(), default=sys.stdin)
    parser.add_argument("--end", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    host = Host(options.socket, options.gateway, options.boot, options.beat)
    host.link.start()
    threading.Thread(target=host.watch, daemon=True).start()
    for line in options.script:
        host.step(json.loads(line))
    if not options.end:
        threading.Event().wait()


if __name__ == "__main__":
    main()
