"""loomictl: the phones, what they may do, and what they did."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click

from loomid import values
from loomid.ctl import Asked, Unknown, parsed, say, table
from loomid.lmp import scopes
from loomid.terminal import span


def scopes_of(
    ctx: click.Context, param: click.Parameter, words: tuple[str, ...]
) -> list[str] | None:
    """A click callback: the scopes that the words name, None without any."""
    try:
        return list(scopes.parse(words)) if words else None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_context
def devices(ctx: click.Context, as_json: bool) -> None:
    """List the paired phones, or change what one of them may do."""
    if ctx.invoked_subcommand is not None:
        return
    asked: Asked = ctx.obj
    none = "No phone is paired yet; loomictl pair shows a code."
    found = asked.listed("devices", as_json, none)
    if found:
        table(("DEVICE", "NAME", "SCOPES", "STATE", "PHONE"), [_device_row(one) for one in found])


@devices.command()
@click.argument("device")
@click.argument("scopes", metavar="SCOPES", nargs=-1, required=True, callback=scopes_of)
@click.pass_obj
def scope(asked: Asked, device: str, scopes: list[str]) -> None:
    """Let DEVICE do what SCOPES say (of view, send, approve, admin) and no more, at once."""
    found = asked.device(device)
    asked.call("PATCH", _target(found), body={"scopes": scopes})
    say(f"{found['name']} ({found['device_id']}) may {', '.join(scopes)}.")


def _target(device: dict[str, Any]) -> str:
    return f"/devices/{quote(device['device_id'], safe='')}"


def _device_row(device: dict[str, Any]) -> tuple[str, ...]:
    if device["connected"]:
        state = "connected"
    elif device["last_seen"] is None:
        state = "never seen"
    else:
        state = f"seen {span(time.time() - device['last_seen'])} ago"
    if device["removed_in_s"] is not None:
        state += f", removed in {span(device['removed_in_s'])} unless it comes back"
    elif not device["confirmed"]:
        state += ", not confirmed yet"
    phone = ", ".join(p for p in (device["model"], device["os"], device["app_version"]) if p)
    return device["device_id"], device["name"], ",".join(device["scopes"]), state, phone or "-"


@click.command()
@click.argument("device")
@click.pass_obj
def revoke(asked: Asked, device: str) -> None:
    """Forget DEVICE (its id, the beginning of it, or its name) and cut its connection."""
    found = asked.device(device)
    asked.call("DELETE", _target(found))
    say(f"Revoked {found['name']} ({found['device_id']}).")


@click.command()
@click.argument("device")
@click.argument("name", callback=parsed(values.parse_name))
@click.pass_obj
def rename(asked: Asked, device: str, name: str) -> None:
    """Give DEVICE another NAME."""
    found = asked.device(device)
    asked.call("PATCH", _target(found), body={"name": name})
    say(f"Renamed {found['name']} to {name}.")


@click.command()
@click.option("--device", help="Of which phone, as its id, the beginning of it, or its name.")
@click.option(
    "--since",
    metavar="TIME",
    callback=parsed(values.parse_duration),
    help="How far back, as 2h or 7d. [default: all that is kept]",
)
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_obj
def audit(asked: Asked, device: str | None, since: float | None, as_json: bool) -> None:
    """List what was decided, when, and from which phone; the newest first."""
    query: dict[str, Any] = {}
    if device is not None:
        query["device"] = _id_of(asked, device)
    if since is not None:
        query["since"] = time.time() - since
    found = asked.listed("audit", as_json, "Nothing of that is recorded.", query)
    if found:
        head = ("WHEN", "WHO", "WHAT", "ABOUT", "DETAIL", "OUTCOME")
        table(head, [_deed_row(one) for one in found])


def _id_of(asked: Asked, wanted: str) -> str:
    """The id of a device that is paired, or that was: the audit knows it longer."""
    try:
        return str(asked.device(wanted)["device_id"])
    except Unknown:
        deeds = asked.call("GET", "/audit")["audit"]
        known = {one["who"]: one["name"] or "" for one in reversed(deeds)}
        gone = [one for one in deeds if one["action"] == "device.revoked"]
        known |= {one["about"]: one["detail"]["name"] for one in gone}
        rows = [{"device_id": who, "name": name} for who, name in known.items()]
        return str(asked.device(wanted, rows)["device_id"])


def _deed_row(one: dict[str, Any]) -> tuple[str, ...]:
    detail = (
        f"{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in one["detail"].items()
    )
    return (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"])),
        f"{one['name']} ({one['who']})" if one["name"] else one["who"],
        one["action"],
        one["about"] or "-",
        " ".join(detail) or "-",
        one["outcome"] or "-",
    )
