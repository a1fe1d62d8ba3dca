"""`loomictl hermes install` and `uninstall`: the plugin into a Hermes home and enabled there,
and out of it.

Running one twice changes nothing the second time. Starts and stops no Hermes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from loomid import hermes_config, hermes_python, homes
from loomid.hermes_config import InstallError, own, write_atomically
from loomid.wire import PLATFORM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loomid.hermes_python import Interpreter

VENDOR = "_vendor"
_NO_STREAMING = "display.platforms.loomi.streaming is left out, which Hermes 0.19 needs"
_SUFFIXES = frozenset({".py", ".yaml"})
__all__ = ["InstallError", "Installed", "hermes_home", "install", "plugin_files", "uninstall"]


def hermes_home(environ: Mapping[str, str]) -> Path:
    """The home that Hermes itself would use."""
    return Path(environ.get("HERMES_HOME") or homes.USUAL).expanduser()


@dataclass(frozen=True, slots=True)
class Installed:
    """What was found and what was done, a line each, nothing done if all was there; what to do
    next; and why it may be of no use."""

    found: list[str]
    done: list[str]
    next: str
    doubt: str | None


def install(home: Path, python: Path | None, endpoint: str) -> Installed:
    """Install the plugin into `home`.

    `python` is the interpreter that runs Hermes (found when None), `endpoint` where
    loomid listens. Raises InstallError with one line for people.
    """
    home, plugin = _places(home)
    vendor = plugin / VENDOR
    found: list[str] = []
    interpreter = _interpreter(home, python, vendor, found)
    done = _copy_plugin(home, plugin)
    done += _provide_pyzmq(interpreter, plugin, found)
    done += hermes_config.update(
        home / "config.yaml", endpoint, edits_are_deltas=_edits_are_deltas(interpreter)
    )
    # Whether the gateway has loaded it since the run that put it there is not known.
    unless = "" if done else ", unless that was done since,"
    then = _restart(home, interpreter, f"{unless} so that it loads")
    return Installed(found, done, then, _doubt(interpreter, named=python is not None))


def uninstall(home: Path) -> list[str]:
    """Take the plugin out of `home`, and out of its config.yaml what install has put there.

    A line for each thing done, then for what stays. Raises InstallError.
    """
    home, plugin = _places(home)
    interpreter = hermes_python.find(home, plugin / VENDOR, os.environ)
    done, stays = hermes_config.restore(home / "config.yaml")
    if plugin.is_dir():
        try:
            _delete(plugin)
        except OSError as error:
            raise InstallError(f"{plugin}: {error.strerror}") from None
        done.append(f"{plugin}: removed")
    own_folder = home / PLATFORM
    if own_folder.is_dir():
        stays.append(
            f"{own_folder} stays: with it loomid knows this Hermes again; delete it at will"
        )
    return [
        *done,
        *stays,
        *([_restart(home, interpreter, " so that it lets go of")] if done else []),
    ]


def _places(home: Path) -> tuple[Path, Path]:
    """The home and the plugin's directory in it."""
    # What is run for it runs elsewhere. Not resolved: a link's own place is what counts.
    home = Path(os.path.abspath(home))  # noqa: PTH100
    if not home.is_dir():
        raise InstallError(
            f"there is no Hermes home at {home}: run Hermes once, or name it with --home"
        )
    plugin = home / "plugins" / PLATFORM
    _check_ours(plugin)
    return home, plugin


def _restart(home: Path, interpreter: Interpreter | None, so_that_it: str) -> str:
    """What to do next, with the command for the Hermes that was found."""
    told = f"Restart the Hermes gateway{so_that_it} the plugin"
    if interpreter is None or not interpreter.runs_hermes:
        return f"{told}."
    usual = Path(os.path.abspath(hermes_home(os.environ)))  # noqa: PTH100
    where = "" if home == usual else f"HERMES_HOME={shlex.quote(str(home))} "
    gateway = f"{where}{hermes_python.command(interpreter, os.environ)} gateway"
    minor = interpreter.minor or 0
    if minor >= 22 and not interpreter.aiohttp:
        return (
            f"{told}: {gateway} run --replace (in a terminal of its own, or as it was started:"
            " without aiohttp this Hermes' own `gateway restart` fails)"
        )
    others = " (Hermes 0.20 stops the gateways of other homes with it: start them again)"
    return f"{told}: {gateway} restart{others if minor == 20 else ''}"


def plugin_files() -> dict[str, bytes]:
    """The files of the plugin, by name, as this installation of loomid has them."""
    source = resources.files("hermes_shim")
    return {
        entry.name: entry.read_bytes()
        for entry in source.iterdir()
        if entry.is_file() and Path(entry.name).suffix in _SUFFIXES
    }


def _interpreter(home: Path, python: Path | None, vendor: Path, notes: list[str]) -> Interpreter:
    found = hermes_python.probe(python, vendor) if python else None
    found = found or hermes_python.find(home, vendor, os.environ)
    if found is None:
        found = hermes_python.probe(Path(sys.executable), vendor)
    if found.version < (3, 11):
        raise InstallError(f"{found.path} is older than Python 3.11, which the plugin needs")
    if found.hermes_version is not None:
        notes.append(f"Hermes {found.hermes_version} runs with {found.path}.")
    elif found.runs_hermes:
        notes.append(f"Which Hermes runs with {found.path} is not known: {_NO_STREAMING}.")
    return found


def _doubt(interpreter: Interpreter, *, named: bool) -> str | None:
    if interpreter.runs_hermes:
        return None
    found = f"{interpreter.path} has no Hermes"
    if not named:
        found = f"no Hermes was found, and pyzmq is for loomid's own Python, {interpreter.path}"
    return (
        f"{found}: the plugin may not load, and {_NO_STREAMING}."
        " Run this again and name the Python that runs Hermes with --python"
    )


def _edits_are_deltas(interpreter: Interpreter) -> bool:
    """Up to 0.19 Hermes has no stream hooks: its own streaming is the only live text."""
    return interpreter.minor is not None and interpreter.minor < 20


def _check_ours(plugin: Path) -> None:
    """Refuse to write into what somebody else put there."""
    if plugin.is_symlink():
        raise InstallError(f"{plugin} is a symbolic link; remove it and run this again")
    if plugin.is_dir() and any(plugin.iterdir()) and not (plugin / "wire.py").exists():
        raise InstallError(f"{plugin} holds another plugin; move it away and run this again")


def _copy_plugin(home: Path, plugin: Path) -> list[str]:
    like = home.stat()
    files = plugin_files()
    try:
        for directory in (plugin.parent, plugin):
            if not directory.is_dir():
                directory.mkdir()
                own(directory, like)
        changed = [name for name, data in files.items() if _differs(plugin / name, data)]
        stale = [
            entry for entry in plugin.iterdir() if entry.name not in {*files, VENDOR, "__pycache__"}
        ]
        if not changed and not stale:
            return []
        for entry in (*stale, plugin / "__pycache__"):
            _delete(entry)
    except OSError as error:
        raise InstallError(f"{plugin}: {error.strerror}") from None
    for name in changed:
        write_atomically(plugin / name, files[name], mode=0o644)
    what = [f"{len(changed)} files written"] if changed else []
    what += [f"{len(stale)} stale files removed"] if stale else []
    return [f"{plugin}: {', '.join(what)}"]


def _differs(path: Path, data: bytes) -> bool:
    return path.is_symlink() or not path.is_file() or path.read_bytes() != data


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _provide_pyzmq(interpreter: Interpreter, plugin: Path, notes: list[str]) -> list[str]:
    """Also where Hermes has one: whoever rebuilds its environment may drop what was added."""
    if interpreter.zmq is not None:
        return []
    try:
        version = hermes_python.vendor_pyzmq(interpreter, plugin / VENDOR)
    except InstallError as error:
        if not interpreter.own_zmq:
            raise
        notes.append(f"That Python's own pyzmq is used; none could be put beside it: {error}")
        return []
    return [f"{plugin / VENDOR}: pyzmq {version} for {interpreter.path}"]
