"""The command `loomid`: settings, one line for a start that fails, and the exit status."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

import click

from loomid import __version__, config as settings, journal
from loomid.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomid.config import Config

CRASHED = 1
INTERRUPTED = 130


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--listen", metavar="HOST:PORT", help="Where phones connect. [127.0.0.1:8770]")
@click.option("--state-dir", metavar="DIR", help="Where the database is.")
@click.option("--runtime-dir", metavar="DIR", help="Where the sockets for Hermes and loomictl are.")
@click.option("--config", "config_file", metavar="FILE", help="The loomid.toml to read.")
@click.option("--demo", is_flag=True, help="Try it without Hermes: a scripted agent.")
@click.version_option(__version__, prog_name="loomid")
def main(
    listen: str | None,
    state_dir: str | None,
    runtime_dir: str | None,
    config_file: str | None,
    demo: bool,
) -> None:
    """Connect phones to Hermes Agent gateways.

    SIGTERM, SIGINT and SIGHUP stop it in an orderly way; it has no reload.

    \b
    Exit status: 0 stopped; 1 crashed (the log has the traceback); 2 wrong command line;
    73 the state cannot be used; 75 a port or directory is in use by another process, or
    the address is not of this host (yet); 78 a setting is wrong or unsafe.
    """
    os.umask(0o077)
    overrides = {
        "listen": listen,
        "state_dir": state_dir,
        "runtime_dir": runtime_dir,
        "config": config_file,
    }
    environ = dict(os.environ)
    try:
        with _directories(overrides, environ, demo) as overrides:
            config = settings.load(overrides, environ)
            quiet = demo and sys.stdin.isatty()  # the screen is a phone's then
            journal.start(environ, logging.WARNING if quiet else logging.INFO)
            _run(config, demo)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BaseExceptionGroup as group:
        _end(group, environ)
    except Exception as error:  # noqa: BLE001 - the top of the process: all else is a bug
        _end(error, environ)


@contextlib.contextmanager
def _directories(
    overrides: dict[str, str | None], environ: dict[str, str], demo: bool
) -> Iterator[dict[str, str | None]]:
    if not demo:
        yield overrides
        return
    from loomid.demo import directories

    with directories(overrides, environ) as found:
        yield found


def _run(config: Config, demo: bool) -> None:
    import asyncio  # late: a wrong setting is said at once

    from loomid import daemon

    asyncio.run(daemon.run(config, demo=demo))


def _end(error: BaseException, environ: dict[str, str]) -> None:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, StartupError):
        journal.fatal(str(error), environ)
        sys.exit(error.exit_code)
    logging.getLogger("loomid").critical("loomid ends after an error", exc_info=error)
    sys.exit(CRASHED)


if __name__ == "__main__":
    main(prog_name="loomid")
