"""`loomid --demo`: the daemon with a scripted agent in place of Hermes, and a text phone.

It runs beside the daemon and reaches it only as others do: the agent through the shim's
link, the pairing code over the admin socket, the phone over its WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from loomid import demo_phone, terminal, values
from loomid.adminclient import AdminClient, NotRunning
from loomid.config import ADMIN_SOCKET, DEFAULT_PORT
from loomid.demo_phone import Phone
from loomid.lmp import scopes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from loomid.config import Config

log = logging.getLogger("loomid.demo")

START_S = 15.0
STOP_S = 3.0


@contextlib.contextmanager
def directories(
    overrides: Mapping[str, str | None], environ: Mapping[str, str]
) -> Iterator[dict[str, str | None]]:
    """Overrides with directories of the demo's own in place of those that nobody named.

    A demo must not touch what a real loomid keeps; they are deleted at its end. Nor must it
    say where that one is reached: a loomid.toml is read only when it was named.
    """
    found = dict(overrides)
    with tempfile.TemporaryDirectory(prefix="loomid-demo-") as place:
        for name in ("state_dir", "runtime_dir"):
            if not found.get(name) and not environ.get(f"LOOMI_{name.upper()}"):
                found[name] = str(Path(place) / name.removesuffix("_dir"))
        if not found.get("config") and not environ.get("LOOMI_CONFIG"):
            found["config"] = os.devnull
        yield found


async def run(config: Config) -> None:
    """Play the demo until it is cancelled."""
    client = AdminClient(config.runtime_dir / ADMIN_SOCKET)
    async with _agent(config):
        status = await _once_running(client)
        code = await _code(client, "Phone")
        say(f"loomid {status['version']} demo: everything is real but Hermes.\n")
        say("\n".join(terminal.qr(code["drawn"])))
        say(_about_code(config, code["qr"]["url"]))
        say(_about_words(on_terminal=sys.stdin.isatty()))  # last: a QR code fills the screen
        if not sys.stdin.isatty():
            await asyncio.Event().wait()
        await _phone(config, client, status)


async def _code(client: AdminClient, name: str) -> Any:  # noqa: ANN401 - JSON
    """A pairing code for a phone that may try everything."""
    asked = {"name": name, "scopes": scopes.ALL}
    return await asyncio.to_thread(client.call, "POST", "/pair", asked)


def say(text: str) -> None:
    """To the person in front of the terminal."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


async def _once_running(client: AdminClient) -> dict[str, Any]:
    """The daemon's status, as soon as it answers and the agent is linked."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                status: dict[str, Any] = await asyncio.to_thread(client.call, "GET", "/status")
            except NotRunning:
                status = {"gateways": []}
            if any(gateway["online"] for gateway in status["gateways"]):
                return status
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _agent(config: Config) -> AsyncIterator[None]:
    """The scripted agent, in a process that ends when we do, however we end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "loomid.demo_agent",
        config.hermes_endpoint,
        *("--home", str(config.state_dir / "demo")),
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None  # noqa: S101 - asked for one line above
    try:
        yield
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _phone(config: Config, client: AdminClient, status: dict[str, Any]) -> None:
    """The text phone; its end is the demo's end."""
    code = await _code(client, "Terminal")
    phone = Phone({**code["qr"], "url": _local_url(config, status)}, _show)
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_terminal, args=(loop, lines), daemon=True).start()
    await phone.run(lines)
    os.kill(os.getpid(), signal.SIGTERM)  # the daemon stops as it always does
    await asyncio.Event().wait()  # and cancels us then: once, so that the agent is waited for


def _read_terminal(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    """Lines from stdin until it ends or /quit; a thread, as reading a terminal blocks.

    os.read and not sys.stdin: a thread inside the latter breaks the interpreter's exit.
    """
    rest = b""
    while data := os.read(0, 4096):
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            text = line.decode("utf-8", "replace").strip()
            if text == "/quit":
                loop.call_soon_threadsafe(lines.put_nowait, None)
                return
            loop.call_soon_threadsafe(lines.put_nowait, text)
    loop.call_soon_threadsafe(lines.put_nowait, None)


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


# ── what is said at the start ───────────────────────────────────────────────


def _local_url(config: Config, status: dict[str, Any]) -> str:
    """Where this machine reaches the daemon, whatever the pairing code says."""
    host, _, port = str(status["listen"][0]).rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
        if address.is_unspecified:
            host = "[::1]" if address.version == 6 else "127.0.0.1"
    except ValueError:
        pass
    return f"{'wss' if config.tls else 'ws'}://{host}:{port}/ws"


def _about_code(config: Config, url: str) -> str:
    text = f"This code pairs one phone, once, within five minutes, with\n  {url}\n"
    if values.is_loopback(urlsplit(url).hostname or ""):
        port = config.listen_port or DEFAULT_PORT
        text += f"""\
No phone can reach that: loomid listens for this machine alone. In a network
that you trust:
  LOOMI_ALLOW_INSECURE_BIND=true {_command("loomid")} --demo --listen {_lan_address()}:{port}
"""
    return f"""{text}\
loomictl works with the demo, so an app without a camera gets a code by:
  {_command("loomictl")} --runtime-dir {shlex.quote(str(config.runtime_dir))} pair --json
"""


def _about_words(*, on_terminal: bool) -> str:
    first = "A scripted agent answers. The first word of a message says how:"
    if on_terminal:
        first = "This terminal is a phone too. Write a message, or what stands for a button:"
    return f"\n{first}\n{demo_phone.words(keys=on_terminal)}\nCtrl-C ends the demo.\n"


def _command(name: str) -> str:
    """How a person here would call that program: as this one was called."""
    beside = Path(sys.argv[0]).with_name(name)
    if shutil.which(name) == str(beside.absolute()):
        return name
    if os.access(beside, os.X_OK) and beside.is_file():
        return shlex.quote(str(beside))
    module = {"loomid": "loomid", "loomictl": "loomid.cli"}[name]
    return f"{shlex.quote(sys.executable)} -m {module}"


def _lan_address() -> str:
    """This machine's address in its network, as the kernel would choose it; sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "ADDRESS"
        return str(probe.getsockname()[0])
