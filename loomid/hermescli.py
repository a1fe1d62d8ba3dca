"""What `hermes loomi …` means. The shim in that process only sends the words and says the lines."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import TYPE_CHECKING, NoReturn

from loomid import values
from loomid.errors import StorageFailing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from loomid.hub import Hub

    Mint = Callable[[str | None], Awaitable[tuple[str, bytes]]]
    """Makes a pairing code for a phone of this name: as drawn, and its hash."""


class _Unclear(Exception):
    """The words make no sense; the argument says what would."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unclear(f"{message}\n{self.format_usage().strip()}")


def _parser() -> _Parser:
    parser = _Parser(prog="hermes loomi", add_help=False)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pair", add_help=False).add_argument("--name", type=values.parse_name)
    commands.add_parser("devices", add_help=False)
    commands.add_parser("revoke", add_help=False).add_argument("device")
    return parser


async def run(hub: Hub, mint: Mint, words: Sequence[str]) -> AsyncIterator[dict[str, str]]:
    """Lines `{say: …}` as things happen, perhaps a last one `{error: …}`."""
    try:
        asked = _parser().parse_args(words)
    except _Unclear as unclear:
        yield {"error": str(unclear)}
        return
    if asked.command == "devices":
        for status in hub.devices():
            online = "online" if status.connected else "offline"
            yield {"say": f"{status.device.device_id}  {online}  {status.device.name}"}
    elif asked.command == "revoke":
        if await hub.revoke(asked.device):
            yield {"say": f"Revoked {asked.device}."}
        else:
            yield {"error": f"there is no such device: {asked.device}"}
    else:
        drawn, token_hash = await mint(asked.name)
        yield {"say": drawn}
        try:
            device = await hub.outcome(token_hash)
        except asyncio.CancelledError:  # whoever waited has gone
            with contextlib.suppress(StorageFailing, KeyError):
                await hub.withdraw(token_hash)
            raise
        if device is None:
            yield {"error": "The code ran out; nothing was paired."}
        else:
            yield {"say": f"Paired {device.name} ({device.device_id})."}
