"""`hermes loomi …`: loomid's admin door carries it out; and where that daemon may be."""

import json
import os
import socket
import sys
from http.client import HTTPConnection, HTTPException, HTTPResponse
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
    pair = "pair [--name NAME] [--url URL] [--ttl TIME] [--scope SCOPE]..."
    metavar = f"{pair} | devices [scope DEVICE SCOPES] | revoke DEVICE"
    parser.add_argument("words", nargs="...", metavar=metavar)


def _ask(words: Any) -> HTTPResponse:
    """The answer of the first loomid that there is, a line at a time."""
    doors = [str(folder / "admin.sock") for folder in runtime_dirs()]
    for door in doors:
        connection = HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(door)
        except OSError:
            continue
        size = "{}x{}".format(*os.get_terminal_size()) if sys.stdout.isatty() else ""
        headers = {"Loomi-Terminal": size} if size else {}
        connection.request("POST", "/hermes", json.dumps(words), headers)
        return connection.getresponse()
    sys.exit(f"loomid does not run (start it with `loomid`); tried {', '.join(doors)}")


def _say(line: bytes, undo: Any = ()) -> Any:
    """Say one line; what is to be sent should this be interrupted from now on."""
    said = json.loads(line)
    if "error" in said:
        sys.exit(said["error"])
    print(said["say"], file=sys.stderr if said.get("aside") else sys.stdout, flush=True)
    return said.get("undo", undo)


def run(args: Any) -> None:
    """Have loomid do it; each line of its answer is to be said."""
    undo: Any = ()
    try:
        answer = _ask(args.words)
        try:
            for line in answer:
                undo = _say(line, undo)
        except KeyboardInterrupt:
            for line in _ask(undo) if undo else ():
                _say(line)
            sys.exit(130)
    except (OSError, HTTPException) as error:
        sys.exit(f"loomid does not answer ({type(error).__name__})")
    if undo:
        sys.exit("loomid stopped before that was done")
