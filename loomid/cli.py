"""loomictl: the owner's tool. It asks the daemon over the admin socket, never the database;
only `db` (see `cli_db`) opens that, because it must work without a daemon.

What was asked for goes to stdout, everything else to stderr. Exit status: EXIT_CODES.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from loomid import (
    __version__,
    cli_approvals,
    cli_devices,
    cli_gateways,
    cli_questions,
    cli_trace,
    paircode,
    terminal,
    values,
)
from loomid.cli_db import db
from loomid.cli_devices import scopes_of
from loomid.ctl import Asked, Commands, Failed, Interrupted, parsed, say, show_json
from loomid.lmp import pairing
from loomid.terminal import span

EXIT_CODES = {
    0: "done",
    1: "refused or failed: the pairing code ran out, there is no such device or event, …",
    2: "the command line is wrong",
    65: "the database is damaged, or none of this loomid",
    69: "no loomid is running, or it stopped while it was asked",
    73: "the state directory or the database cannot be used",
    75: "a loomid runs and holds the state directory",
    77: "the admin socket belongs to another account",
    130: "interrupted by Ctrl-C",
}
_WAIT_SLACK_S = 15.0
UNKNOWN = object()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--runtime-dir", metavar="DIR", help="Where loomid's admin socket is.")
@click.option("--state-dir", metavar="DIR", help="loomid's state directory, if not the usual.")
@click.version_option(__version__, prog_name="loomictl")
@click.pass_context
def main(ctx: click.Context, runtime_dir: str | None, state_dir: str | None) -> None:
    """Pair phones with loomid and look after them.

    \b
    Exit status: 0 done; 1 refused or failed; 2 wrong command line;
    65 the database is damaged; 69 loomid is not running; 73 the state cannot be used;
    75 a loomid holds it; 77 the admin socket belongs to another account; 130 Ctrl-C.
    """
    ctx.obj = Asked(runtime_dir, state_dir)


@main.command()
@click.option("--name", callback=parsed(values.parse_name), help="What to call the phone.")
@click.option(
    "--url",
    metavar="URL",
    callback=parsed(values.phone_url),
    help="The URL for the phone, if not the configured one.",
)
@click.option(
    "--ttl",
    metavar="TIME",
    callback=parsed(paircode.parse_ttl),
    help="How long the code is valid, as 300 or 5m, at most a day. [default: 5m]",
)
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    callback=scopes_of,
    help="What the phone may do: view, send, approve, admin. [default: view,send,approve]",
)
@click.option("--json", "as_json", is_flag=True, help="One line with the code, one at the end.")
@click.pass_obj
def pair(asked: Asked, /, as_json: bool, **wanted: Any) -> None:  # noqa: ANN401 - the options
    """Show a pairing code and wait until a phone has used it."""
    body = {name: value for name, value in wanted.items() if value is not None}
    timeout = (wanted["ttl"] or pairing.TOKEN_TTL_S) + _WAIT_SLACK_S
    # One call: however this process ends, the daemon sees it and withdraws the code.
    with asked.told("POST", "/pair", body=body | {"wait": True}, timeout=timeout) as lines:
        made = next(lines)
        try:
            _show_code(made, as_json)
            paired = next(lines)["paired"]
        except KeyboardInterrupt:
            said, paired = _withdrawn(asked, made)
            if as_json and paired is not UNKNOWN:
                show_json({"paired": paired})
            raise Interrupted(said) from None
    if as_json:
        show_json({"paired": paired})
    elif paired is not None:
        say(f"Paired {paired['name']} ({paired['device_id']}).")
    if paired is None:
        raise Failed(paircode.RAN_OUT)


def _show_code(made: dict[str, Any], as_json: bool) -> None:
    url = made["qr"]["url"]
    warning = paircode.warning(url)
    if warning is not None:
        click.echo(f"loomictl: warning: {warning}", err=True)
    if as_json:
        show_json(made["qr"])
        return
    for line in paircode.explained(url, made["expires_in"]):
        click.echo(line, err=True)
    for line in terminal.qr(made["drawn"]):
        click.echo(line)


def _withdrawn(asked: Asked, made: dict[str, Any]) -> tuple[str, object]:
    """What became of a code that nobody waits for any more, and whom it paired, or UNKNOWN."""
    target = f"/pair/{quote(made['token_ref'], safe='')}"
    try:
        if asked.call("DELETE", target)["withdrawn"]:
            return paircode.WITHDRAWN, None
        paired = asked.call("GET", f"{target}/outcome")["paired"]
    except Failed as error:
        until = time.strftime("%H:%M:%S", time.localtime(made["expires_at"]))
        said = f"the code may be valid until {until}, if it is not withdrawn: {error.message}"
        return said, UNKNOWN
    return paircode.used_already("loomictl"), paired


@main.command()
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_obj
def status(asked: Asked, as_json: bool) -> None:
    """Say how loomid is doing."""
    found = asked.call("GET", "/status")
    if as_json:
        show_json(found)
        return
    if found["log"]["failing"]:
        reason = found["log"]["reason"]
        say(f"STORAGE FAILS ({reason}): events are not being stored; see the log")
    if found["log"]["damaged"]:
        click.echo("THE DATABASE IS DAMAGED; see loomictl db check")
    listening = ", ".join(found["listen"])
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["started_at"]))
    up = f"up {span(found['uptime_s'])}, since {started}"
    click.echo(f"loomid {found['version']} (pid {found['pid']}), {up}")
    click.echo(f"phones connect to {found['url']} (listening on {listening})")
    for line in cli_gateways.lines(found):
        say(line)
    connected = sum(d["connected"] for d in found["devices"])
    click.echo(f"{terminal.count(len(found['devices']), 'device')}, {connected} connected")
    waits = [terminal.count(found[f"pending_{what}s"], what) for what in ("approval", "question")]
    click.echo(f"{', '.join(waits)} waiting")
    for line in _figure_lines(found["figures"]):
        say(line)


def _figure_lines(figures: dict[str, Any]) -> list[str]:
    """What is slow, and what was lost, since loomid's start."""
    lines = [
        f"{what}: half within {_bound(seen['p50_s'])}, 99 of 100 within {_bound(seen['p99_s'])}"
        for what, seen in (
            ("storing", figures["commit"]),
            ("hook to phone", figures["hook_to_phone"]),
        )
        if seen["count"]
    ]
    if figures["facts_lost"]:
        lost = ", ".join(f"{count} {reason}" for reason, count in figures["facts_lost"].items())
        lines.append(f"LOST before they were sent: {lost} (docs/metrics.md)")
    if figures["events_unencodable"]:
        lost = terminal.count(figures["events_unencodable"], "event")
        lines.append(f"LOST: {lost} that cannot be JSON")
    return lines


def _bound(seconds: float | None) -> str:
    return "more than 10 s" if seconds is None else f"{seconds * 1000:g} ms"


@main.command()
@click.pass_obj
def metrics(asked: Asked) -> None:
    """Print all that is measured, in the text format of Prometheus."""
    click.echo(asked.call("GET", "/metrics"), nl=False)


@main.command()
@click.argument("event")
@click.option("--device", help="Of which phone, as its id, the beginning of it, or its name.")
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_obj
def trace(asked: Asked, event: str, device: str | None, as_json: bool) -> None:
    """Say when EVENT (an event_id, as e_123) came along: hook, received, committed, written.

    Each phone counts its own events; without --device, all phones that have one of that id.
    """
    target = f"/trace/{quote(event, safe='')}"
    if device is not None:
        target += f"?device={quote(asked.device(device)['device_id'], safe='')}"
    found = asked.call("GET", target)
    known = cli_trace.known(found)
    if as_json:
        show_json(found)
    for line in [] if as_json else cli_trace.lines(known):
        say(line)
    if not known:
        raise Failed(cli_trace.missing(found))


main.add_command(db)


_home = click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="The Hermes home. [$HERMES_HOME, else ~/.hermes]",
)


@main.group()
def hermes() -> None:
    """Link loomid to a Hermes installation, or undo that."""


@hermes.command()
@_home
@click.option("--python", type=click.Path(path_type=Path), help="The Python that runs Hermes.")
@click.pass_obj
def install(asked: Asked, home: Path | None, python: Path | None) -> None:
    """Put the loomi plugin into a Hermes home and say what was changed."""
    from loomid import installer  # late: it needs a YAML library

    try:
        installed = installer.install(
            home or installer.hermes_home(os.environ), python, asked.hermes_endpoint()
        )
    except installer.InstallError as error:
        raise Failed(str(error)) from None
    done = installed.done or ["Everything is there already; nothing was changed."]
    for line in (*installed.found, *done, installed.next):
        click.echo(line)
    if installed.doubt is not None:
        raise Failed(f"warning: {installed.doubt}")


@hermes.command()
@_home
def uninstall(home: Path | None) -> None:
    """Take the loomi plugin out of a Hermes home and say what was changed, and what stays."""
    from loomid import installer  # late, as above

    try:
        done = installer.uninstall(home or installer.hermes_home(os.environ))
    except installer.InstallError as error:
        raise Failed(str(error)) from None
    for line in done or ["Nothing of the plugin is there; nothing was changed."]:
        click.echo(line)


main.add_command(cli_devices.devices)
main.add_command(cli_devices.revoke)
main.add_command(cli_devices.rename)
main.add_command(cli_devices.audit)
main.add_command(cli_gateways.gateways)
main.add_command(cli_approvals.approvals)
main.add_command(cli_approvals.approve)
main.add_command(cli_questions.questions)
main.add_command(cli_questions.answer)


if __name__ == "__main__":
    main(prog_name="loomictl")
