"""`loomictl db`: look at the database, copy it, put a copy back.

It goes to the file itself: a damaged database has no daemon to ask, and reading
disturbs one that runs as little as a phone does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from loomid import terminal
from loomid.errors import StartupError

if TYPE_CHECKING:
    from loomid.dbcheck import Findings

FILE = click.Path(path_type=Path)


class Asked(Protocol):
    """What the global options say."""

    def state_dir(self) -> Path:
        """Where the database is."""


DAMAGED = 65
"""EX_DATAERR."""


def _refused(status: int, *lines: str) -> click.exceptions.Exit:
    """Say why on stderr; what to raise."""
    for line in lines:
        click.echo(f"loomictl: {terminal.plain(line)}", err=True)
    return click.exceptions.Exit(status)


def _unusable(error: StartupError) -> click.exceptions.Exit:
    from loomid import dbcheck

    missing = isinstance(error, dbcheck.MissingError)
    other = "; --state-dir (before db) names another place" if missing else ""
    return _refused(error.exit_code, f"{error}{other}")


@click.group()
def db() -> None:
    """Check the database, back it up, restore it."""


@db.command()
@click.pass_obj
def check(asked: Asked) -> None:
    """Look through the whole database; loomid may run meanwhile."""
    from loomid import database, dbcheck  # late: they need SQLite

    path = asked.state_dir() / database.FILE
    try:
        findings = dbcheck.check(path)
    except StartupError as error:
        raise _unusable(error) from None
    free = dbcheck.free_on_disk(path)
    room = "" if free is None else f"{size(free)} free on the disk"
    click.echo(f"{path}: {'; '.join(filter(None, (_said(findings), room)))}")
    if findings.problems:
        raise _refused(DAMAGED, *(f"{path}: {one}" for one in findings.problems))
    click.echo("no fault was found")


@db.command()
@click.argument("file", type=FILE)
@click.pass_obj
def backup(asked: Asked, file: Path) -> None:
    """Write a copy of the database to FILE, which must not be there yet; loomid may run."""
    from loomid import database, dbtool

    try:
        findings = dbtool.backup(asked.state_dir() / database.FILE, file.absolute())
    except StartupError as error:
        raise _unusable(error) from None
    except dbtool.Unsound as unsound:
        raise _refused(DAMAGED, *unsound.problems) from None
    click.echo(f"Written and checked: {file} ({_said(findings)})")


@db.command()
@click.argument("file", type=FILE)
@click.option("--bring-back", is_flag=True, help="With the phones that were revoked since.")
@click.pass_obj
def restore(asked: Asked, file: Path, bring_back: bool) -> None:
    """Put FILE in the place of the database, while loomid is stopped; that is kept beside it."""
    from loomid import dbtool

    try:
        done = dbtool.restore(asked.state_dir(), file.absolute(), bring_back=bring_back)
    except StartupError as error:
        raise _refused(error.exit_code, str(error)) from None
    except dbtool.Unsound as unsound:
        raise _refused(DAMAGED, *unsound.problems) from None
    click.echo(f"restored: {_said(done.findings)}")
    if done.former is not None:
        click.echo(f"the former database is now {done.former}")
    if done.missing and done.back:
        click.echo("paired again, though the former database had them no more; to revoke them")
        click.echo("(once loomid runs):")
    elif done.missing:
        click.echo("revoked since the copy was made, and still so (else: restore --bring-back):")
    for device_id, name in done.missing:
        command = "loomictl revoke " if done.back else ""
        click.echo(f"  {terminal.plain(name)}: {command}{device_id}")


def _said(findings: Findings) -> str:
    """What could be read."""
    said = []
    if findings.schema is not None:
        said.append(f"schema {findings.schema}")
    if findings.size is not None and findings.free is not None:
        said.append(f"{size(findings.size)} ({size(findings.free)} of it unused)")
    if findings.events is not None and findings.devices is not None:
        said += [
            terminal.count(findings.events, "event"),
            terminal.count(findings.devices, "device"),
        ]
    return ", ".join(said)


def size(number: int) -> str:
    """Bytes in words."""
    unit, name = (2**30, "GiB") if number >= 2**30 else (2**20, "MiB")
    return f"{number / unit:.1f} {name}"
