"""What `hermes loomi …` means. The shim in that process only sends the words and says the lines."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import TYPE_CHECKING, NoReturn

from loomid import values
from loomid.errors import StorageFailing
from loomid.lmp import scopes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from loomid.hub import Hub
    from loomid.lmp.scopes import Scopes

    Mint = Callable[[str | None, Scopes], Awaitable[tuple[str, bytes]]]
    """Makes a pairing code for a phone of this name, with these scopes: as drawn, and its hash."""


class _Unclear(Exception):
    """The words make no sense; the argument says what would."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unclear(f"{message}\n{self.format_usage().strip()}")


def _parser() -> _Parser:
    parser = _Parser(prog="hermes loomi", add_help=False)
    commands = parser.add_subparsers(dest="command", required=True)
    pair = commands.add_parser("pair", add_help=False)
    pair.add_argument("--name", type=values.parse_name)
    pair.add_argument("--scope", action="extend", nargs=1, default=[])
    devices = commands.add_parser("devices", add_help=False).add_subparsers(dest="what")
    scope = devices.add_parser("scope", add_help=False)
    scope.add_argument("device")
    scope.add_argument("scopes", nargs="+")
    commands.add_parser("revoke", add_help=False).add_argument("device")
    return parser


async def run(hub: Hub, mint: Mint, words: Sequence[str]) -> AsyncIterator[dict[str, str]]:
    """Lines `{say: …}` as things happen, perhaps a last one `{error: …}`."""
    try:
        asked = _parser().parse_args(words)
        held = scopes.parse(asked.scope) if getattr(asked, "scope", None) else scopes.DEFAULT
        wanted = scopes.parse(asked.scopes) if getattr(asked, "scopes", None) else None
    except (_Unclear, ValueError) as unclear:
        yield {"error": str(unclear)}
        return
    if asked.command == "pair":
        async for line in _pair(hub, mint, asked.name, held):
            yield line
    elif asked.command == "revoke":
        gone = await hub.desk.revoke(asked.device)
        yield {"say": f"Revoked {asked.device}."} if gone else _no_device(asked.device)
    elif wanted is not None:
        done = await hub.desk.change(asked.device, scopes=wanted)
        said = {"say": f"{asked.device} may {', '.join(wanted)}."}
        yield said if done else _no_device(asked.device)
    else:
        for status in hub.desk.devices():
            one, online = status.device, "online" if status.connected else "offline"
            yield {"say": f"{one.device_id}  {online}  {','.join(one.scopes)}  {one.name}"}


def _no_device(device_id: str) -> dict[str, str]:
    return {"error": f"there is no such device: {device_id}"}


async def _pair(
    hub: Hub, mint: Mint, name: str | None, held: Scopes
) -> AsyncIterator[dict[str, str]]:
    drawn, token_hash = await mint(name, held)
    yield {"say": drawn}
    try:
        device = await hub.desk.outcome(token_hash)
    except asyncio.CancelledError:  # whoever waited has gone
        with contextlib.suppress(StorageFailing, KeyError):
            await hub.desk.withdraw(token_hash)
        raise
    if device is None:
        yield {"error": "The code ran out; nothing was paired."}
    else:
        yield {"say": f"Paired {device.name} ({device.device_id})."}
