"""What the commands of loomictl share: calls of the daemon, failures as exits, what is shown."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from loomid import __version__, adminclient, config, meant, terminal
from loomid.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Failed(click.ClickException):
    """One line on stderr and an exit status."""

    def show(self, file: Any = None) -> None:  # noqa: ANN401 - click's signature
        """Print without click's prefix."""
        click.echo(terminal.plain(f"loomictl: {self.message}"), err=True)


class Unknown(Failed):
    """There is no such device or gateway."""


class Away(Failed):
    """No daemon answers."""

    exit_code = 69


class NotOurs(Failed):
    """The daemon is another account's."""

    exit_code = 77


class Interrupted(Failed):
    """Ctrl-C: what a shell says of a process that this signal has ended."""

    exit_code = 130


class Commands(click.Group):
    """Commands that Ctrl-C ends with a line of ours."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


def parsed(parse: Callable[[object], Any]) -> Callable[..., Any]:
    """A click callback around one of config's parsers."""

    def callback(ctx: click.Context, param: click.Parameter, value: object) -> Any:  # noqa: ANN401
        if value is None:
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


class Asked:
    """What the global options say, and the calls that turn failures into an exit."""

    def __init__(self, runtime_dir: str | None, state_dir: str | None) -> None:
        self._overrides = {"runtime_dir": runtime_dir, "state_dir": state_dir}
        self._client: adminclient.AdminClient | None = None
        self._compared = False

    def call(self, method: str, target: str, **options: Any) -> Any:  # noqa: ANN401 - JSON
        """Call the daemon, found on first use."""
        with _as_exits():
            client = self._found()
            try:
                return client.call(method, target, **options)
            finally:
                self._compare(client.speaks)

    @contextlib.contextmanager
    def told(
        self, method: str, target: str, body: dict[str, Any], timeout: float
    ) -> Iterator[Iterator[Any]]:
        """Call it for an answer that comes in lines."""
        with _as_exits():
            client = self._found()
            with client.lines(method, target, body, timeout) as lines:
                self._compare(client.speaks)
                yield lines

    def _found(self) -> adminclient.AdminClient:
        if self._client is None:
            places = config.admin_places(self._overrides, os.environ)
            self._client = adminclient.find(places)
        return self._client

    def listed(
        self, what: str, as_json: bool, none: str, query: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """What is to be shown as a table: nothing where it was shown as JSON, or where there
        is none, which was said."""
        found = self.call("GET", f"/{what}?{urlencode(query or {})}")
        if as_json:
            show_json(found)
            return []
        rows: list[dict[str, Any]] = found[what]
        if not rows:
            click.echo(none, err=True)
        return rows

    def _compare(self, speaks: str | None) -> None:
        """Say once that the daemon is of another version: commands may not suit it."""
        if speaks in (None, __version__) or self._compared:
            return
        self._compared = True
        click.echo(
            f"loomictl: warning: loomid is of version {speaks}, this loomictl of"
            f" {__version__}; restart loomid after an upgrade, or use its own loomictl",
            err=True,
        )

    def hermes_endpoint(self) -> str:
        """Where a running loomid listens for Hermes, else where it would."""
        return self._where("hermes_endpoint")

    def state_dir(self) -> Path:
        """Of a running loomid, else where it would be."""
        if self._overrides["state_dir"]:
            return Path(self._overrides["state_dir"]).absolute()
        return Path(self._where("state_dir"))

    def _where(self, key: str) -> str:
        try:
            return str(self.call("GET", "/status")[key])
        except Away:
            try:
                return str(getattr(config.client_config(self._overrides, os.environ), key))
            except ConfigError as error:
                raise Failed(str(error)) from None

    def namer(self) -> Callable[[str | None], str]:
        """Says who an id is: a paired device by its name too, anyone else as it stands."""
        names = {one["device_id"]: one["name"] for one in self.call("GET", "/devices")["devices"]}
        return lambda who: f"{names[who]} ({who})" if who in names else who or "-"

    def device(self, wanted: str, of: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The one device that an id, a name or the beginning of an id means, of those given or
        of all that are paired."""
        return self.one("device", wanted, of)

    def one(self, kind: str, wanted: str, of: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The same for a device or a gateway."""
        listed = f"{kind}s"
        try:
            return meant.one(
                self.call("GET", f"/{listed}")[listed] if of is None else of, kind, wanted
            )
        except meant.Missing as error:
            raise Unknown(str(error)) from None
        except meant.Unclear as error:
            raise Failed(str(error)) from None


@contextlib.contextmanager
def _as_exits() -> Iterator[None]:
    try:
        yield
    except adminclient.NotRunning as error:
        raise Away(str(error)) from None
    except adminclient.NotAllowed as error:
        raise NotOurs(str(error)) from None
    except adminclient.Refused as error:
        raise Failed(str(error)) from None


def only(listed: list[dict[str, Any]], what: str, wanted: str) -> dict[str, Any]:
    """The one approval or question that an id or the beginning of an id means."""
    name = f"{what}_id"
    found = [one for one in listed if one[name] == wanted] or [
        one for one in listed if meant.begins(one[name], wanted)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failed(f"there is no {what} {wanted!r}; loomictl {what}s lists them")
    raise Failed(f"{wanted!r} fits {len(found)} {what}s; give more of its id")


def show_json(value: object) -> None:
    """One line for programs."""
    click.echo(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def say(line: str) -> None:
    """One line in which a phone or a gateway may have named itself."""
    click.echo(terminal.plain(line))


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Columns under their heads."""
    rows = [tuple(map(terminal.plain, row)) for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())
