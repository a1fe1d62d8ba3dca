"""What `hermes loomi …` means. The shim in that process only sends the words and says the lines."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from loomid import meant, paircode, terminal, values
from loomid.lmp import scopes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from loomid.desk import Desk
    from loomid.hub import Hub
    from loomid.lmp.scopes import Scopes
    from loomid.paircode import Code

    Mint = Callable[[str | None, str | None, float | None, Scopes], Awaitable[Code]]
    """Makes a pairing code: for a phone of this name, with this URL, for so many seconds,
    with these scopes."""
    Lines = AsyncGenerator[dict[str, Any], None]

TERMINAL = "Loomi-Terminal"
"""The header of a request whose lines go to a terminal: its size, as `80x24`."""

WITHDRAW = "withdraw"


class _Unclear(Exception):
    """The words make no sense; the argument says what would."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unclear(f"{message}\n{self.format_usage().strip()}")


def _value(parse: Callable[[object], Any]) -> Callable[[str], Any]:
    """An argparse type that tells what is wrong in the parser's own words."""

    def parsed(value: str) -> Any:  # noqa: ANN401 - as the parser
        try:
            return parse(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _parser(*, undoing: bool) -> _Parser:
    """`undoing`: it also knows what only our own lines tell to send."""
    parser = _Parser(prog="hermes loomi", add_help=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{pair,devices,revoke}")
    pair = commands.add_parser("pair", add_help=False)
    pair.add_argument("--name", type=_value(values.parse_name))
    pair.add_argument("--url", type=_value(values.phone_url))
    pair.add_argument("--ttl", type=_value(paircode.parse_ttl))
    pair.add_argument("--scope", action="extend", nargs=1, default=[])
    devices = commands.add_parser("devices", add_help=False).add_subparsers(dest="what")
    scope = devices.add_parser("scope", add_help=False)
    scope.add_argument("device")
    scope.add_argument("scopes", nargs="+")
    commands.add_parser("revoke", add_help=False).add_argument("device")
    if undoing:
        commands.add_parser(WITHDRAW, add_help=False).add_argument("code", type=bytes.fromhex)
    return parser


async def run(hub: Hub, mint: Mint, words: Sequence[str], window: str | None) -> Lines:
    """Lines as things happen: `{say: …}`, `aside` for what is not asked for but explains it,
    perhaps a last one `{error: …}`. `undo` in a line: the words to send on Ctrl-C from now on,
    none when there is nothing left to undo. `window`: what TERMINAL says."""
    try:
        asked = _parser(undoing=words[:1] == [WITHDRAW]).parse_args(words)
        held = scopes.parse(asked.scope) if getattr(asked, "scope", None) else scopes.DEFAULT
        wanted = scopes.parse(asked.scopes) if getattr(asked, "scopes", None) else None
    except (_Unclear, ValueError) as unclear:
        yield {"error": str(unclear)}
        return
    if asked.command == "pair":
        code = await mint(asked.name, asked.url, asked.ttl, held)
        async with contextlib.aclosing(_pair(hub.desk, code, window)) as lines:
            async for line in lines:
                yield line
    elif asked.command == WITHDRAW:
        yield await _withdraw(hub.desk, asked.code)
    elif asked.command == "revoke" or wanted is not None:
        yield await _change(hub.desk, asked.device, wanted)
    else:
        for status in hub.desk.devices():
            one, online = status.device, "online" if status.connected else "offline"
            name, may = terminal.plain(one.name), ",".join(one.scopes)
            yield {"say": f"{one.device_id}  {online}  {may}  {name}"}


async def _pair(desk: Desk, code: Code, window: str | None) -> Lines:
    async with paircode.held(desk, code.token_hash):
        for line in _shown(code, window):
            yield line
        device = await desk.outcome(code.token_hash)
    if device is None:
        yield {"error": paircode.RAN_OUT}
    else:
        said = f"Paired {terminal.plain(device.name)} ({device.device_id})."
        yield {"say": said, "undo": []}


def _shown(code: Code, window: str | None) -> list[dict[str, Any]]:
    url, warning = code.qr["url"], paircode.warning(code.qr["url"])
    asides = [] if warning is None else [f"warning: {warning}"]
    asides += paircode.explained(url, code.expires_in)
    lines: list[dict[str, Any]] = [{"say": line, "aside": True} for line in asides]
    lines[0]["undo"] = [WITHDRAW, code.token_hash.hex()]
    return lines + [{"say": line} for line in _drawn(code.drawn, window)]


def _drawn(drawn: str, window: str | None) -> list[str]:
    if window is None:
        return [drawn]
    size = terminal.said_size(window)  # an older plugin does not say it
    return [terminal.coloured(drawn)] if size is None else terminal.fitted(drawn, size)


async def _change(desk: Desk, wanted: str, may: Scopes | None) -> dict[str, Any]:
    """Let a device do this and no more; None: revoke it."""
    try:
        known = [one.device for one in desk.devices()]
        listed = [{"device_id": d.device_id, "name": d.name} for d in known]
        found = meant.one(listed, "device", wanted)
    except meant.Unclear as error:
        return {"error": terminal.plain(str(error))}
    named = f"{terminal.plain(found['name'])} ({found['device_id']})"
    if may is None:
        await desk.revoke(found["device_id"])
        return {"say": f"Revoked {named}."}
    await desk.change(found["device_id"], scopes=may)
    return {"say": f"{named} may {', '.join(may)}."}


async def _withdraw(desk: Desk, token_hash: bytes) -> dict[str, Any]:
    try:
        withdrawn = await desk.withdraw(token_hash)
    except KeyError:
        return {"error": "there is no such pairing code"}
    said = paircode.WITHDRAWN if withdrawn else paircode.used_already("hermes loomi")
    return {"say": said, "aside": True}
