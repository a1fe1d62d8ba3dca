"""`hermes loomi …`: thin calls of loomid's admin door, and where that daemon may be."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote


def runtime_dirs() -> list[Path]:
    """Where loomid may keep its sockets (architecture, "Doors"), most likely first."""
    env, home = os.environ, Path.home()
    state = env.get("LOOMI_STATE_DIR") or Path(
        env.get("XDG_STATE_HOME") or home / ".local/state", "loomid"
    )
    user = env.get("XDG_RUNTIME_DIR")
    dirs = [env.get("LOOMI_RUNTIME_DIR"), user and Path(user, "loomid"), "/run/loomid"]
    return [Path(found) for found in (*dirs, Path(state, "run")) if found]


def _call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the first admin socket that answers; exits with one line otherwise."""
    doors = [folder / "admin.sock" for folder in runtime_dirs()]
    for door in doors:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(door))
        except OSError:
            continue
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            sys.exit(f"loomid refused ({answer.status}): {text.strip()[:200]}")
        return json.loads(text) if text else None
    sys.exit(f"loomid does not run (start it with `loomid`); tried {', '.join(map(str, doors))}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def pair(args: Any) -> None:
    """Show a pairing code and wait for the phone."""
    token = _call("POST", "/pair", {"name": args.name} if args.name else {})
    _say(token["drawn"])
    outcome = _call("GET", f"/pair/{quote(token['token_ref'])}/outcome")
    paired = outcome and outcome.get("paired")
    if not paired:
        sys.exit("The code ran out; nothing was paired.")
    _say(f"Paired {paired.get('name')} ({paired.get('device_id')}).")


def devices(args: Any) -> None:
    """List the paired phones."""
    del args
    listed = _call("GET", "/devices")
    for device in listed["devices"] if isinstance(listed, dict) else listed:
        online = "online" if device.get("connected") else "offline"
        _say(f"{device['device_id']}  {online}  {device.get('name') or ''}")


def revoke(args: Any) -> None:
    """Unpair one phone."""
    _call("DELETE", f"/devices/{quote(args.device)}")
    _say(f"Revoked {args.device}.")


def set_up(parser: Any) -> None:
    """Add the subcommands to Hermes' parser."""
    commands = parser.add_subparsers(dest="loomi_command", required=True)
    for function, argument in ((pair, "--name"), (devices, None), (revoke, "device")):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        if argument:
            command.add_argument(argument)
        command.set_defaults(func=function)
