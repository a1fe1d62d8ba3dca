"""`hermes loomi …`: loomid's admin door carries it out; and where that daemon may be."""

import json
import os
import socket
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any


def runtime_dirs() -> list[Path]:
    """Where loomid may keep its sockets most likely first."""
    env, home = os.environ.get, Path.home()
    state = env("LOOMI_STATE_DIR") or Path(env("XDG_STATE_HOME") or home / ".local/state", "loomid")
    user = env("XDG_RUNTIME_DIR") and Path(env("XDG_RUNTIME_DIR", ""), "loomid")
    dirs = env("LOOMI_RUNTIME_DIR"), user, "/run/loomid", Path(state, "run")
    return [Path(found) for found in dirs if found]


def set_up(parser: Any) -> None:
    """Take all words: loomid knows what they mean."""
    parser.add_argument(
        "words", nargs="...", metavar="pair | devices [scope DEVICE SCOPE] | revoke DEVICE"
    )


def run(args: Any) -> None:
    """Have the first loomid that answers do it; each line of its answer is to be said."""
    doors = [str(folder / "admin.sock") for folder in runtime_dirs()]
    for door in doors:
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(door)
        except OSError:
            continue
        connection.request("POST", "/hermes", json.dumps(args.words))
        for line in connection.getresponse():
            said = json.loads(line)
            if "error" in said:
                sys.exit(said["error"])
            print(said["say"], flush=True)  # noqa: T201
        return
    sys.exit(f"loomid does not run (start it with `loomid`); tried {', '.join(doors)}")
