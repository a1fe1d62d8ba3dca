"""loomictl: the Hermes gateways, and those that are no more."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click

from loomid.ctl import Asked, say, table
from loomid.terminal import span

SHOWN = 8
"""Characters of an id, mostly enough to tell it from others."""
NONE = "no Hermes gateway has connected; loomictl hermes install links one"
WAY_OUT = (
    "no history, search or figures of it on phones: let loomid's account and its service read"
    " Hermes' home (README, As a service), then restart loomid"
)


def lines(found: dict[str, Any]) -> list[str]:
    """What `loomictl status` says of them."""
    told = [line for one in found["gateways"] for line in _lines(one)]
    told += [f"gateway refused: {line}" for line in found["incompatible"]]
    return told or [NONE]


def _lines(one: dict[str, Any]) -> list[str]:
    said = f"gateway {one['name']}: {_state(one)}, Hermes {one['hermes_version']}"
    said += f", shim {one['shim_version']}, id {one['gateway_id'][:SHOWN]}"
    said += f", home {one['home']}" if one["home"] else ""
    if one["unreadable"] is None:
        return [said]
    return [said, f"gateway {one['name']}: CANNOT READ {one['unreadable']}; {WAY_OUT}"]


def _state(one: dict[str, Any]) -> str:
    since = one["since"]
    lasts = "since before this start of loomid"
    if since is not None:
        lasts = f"for {span(time.time() - since)}"
    return f"{'online' if one['online'] else 'offline'} {lasts}"


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_context
def gateways(ctx: click.Context, as_json: bool) -> None:
    """List the Hermes gateways, or forget one that is no more."""
    if ctx.invoked_subcommand is not None:
        return
    asked: Asked = ctx.obj
    found = asked.listed("gateways", as_json, f"{NONE[0].upper()}{NONE[1:]}.")
    if found:
        rows: list[tuple[str, ...]] = [
            (one["gateway_id"], one["name"], _state(one), one["hermes_version"], one["home"] or "-")
            for one in found
        ]
        table(("GATEWAY", "NAME", "STATE", "HERMES", "HOME"), rows)


@gateways.command()
@click.argument("gateway")
@click.pass_obj
def forget(asked: Asked, gateway: str) -> None:
    """Forget GATEWAY (its id, the beginning of it, or its name), which must be offline.

    Phones no longer show it, nor list its tasks. If it comes back it is there again.
    """
    found = asked.one("gateway", gateway)
    asked.call("DELETE", f"/gateways/{quote(found['gateway_id'], safe='')}")
    say(f"Forgot {found['name']} ({found['gateway_id']}).")
