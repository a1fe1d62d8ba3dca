"""Settings: one frozen Config from `loomid.toml`, the environment and the command line.

It only reads; directories are made and locked by `locks`. Every fault is a ConfigError
of one line that names the file and line, the variable or the option.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import socket
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import values
from loomid.errors import ConfigError
from loomid.wire import SOCKET_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX = "LOOMI_"
ADMIN_SOCKET = "admin.sock"
"""In the runtime directory."""
DEFAULT_PORT = 8770
MIN_REPLAY_WINDOW = 512
MAX_FILE_BYTES = 1 << 20

NOT_SETTINGS = {
    "LOOMI_CONFIG": "path of loomid.toml",
    "LOOMI_HERMES_CACHE": "for the tests: where the Hermes releases are kept",
    "LOOMI_REQUIRE_HERMES": "for the tests: a Hermes release that cannot be installed is a failure",
    "LOOMI_ALLOW_ALL_USERS": "read by Hermes for the platform, not by loomid",
    "LOOMI_HOME_CHANNEL": "read by Hermes for the platform, not by loomid",
}
"""Variables with our prefix that are no settings of loomid, and what they are."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one loomid process."""

    listen_host: str
    listen_port: int
    state_dir: Path
    runtime_dir: Path
    public_url: str | None
    tls_cert: Path | None
    tls_key: Path | None
    name: str
    replay_window: int
    retention_s: float
    max_db_bytes: int
    allow_insecure_bind: bool
    max_frame_bytes: int
    max_file_bytes: int
    max_files_bytes: int

    @property
    def tls(self) -> bool:
        """Phones connect with TLS straight to loomid."""
        return self.tls_cert is not None

    @property
    def hermes_endpoint(self) -> str:
        """Where shims connect."""
        return f"ipc://{self.runtime_dir / SOCKET_NAME}"

    @property
    def listen(self) -> str:
        """As one would write it in loomid.toml."""
        return values.address_text(self.listen_host, self.listen_port)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of loomid.toml; the variable is LOOMI_ and the key in capitals."""

    parse: Callable[[object], Any]
    default: str
    """In words, for people."""
    about: str


SETTINGS: dict[str, Setting] = {
    "listen": Setting(
        values.parse_listen, f"127.0.0.1:{DEFAULT_PORT}", "Where phones connect, as host:port."
    ),
    "state_dir": Setting(
        values.path,
        "$STATE_DIRECTORY, $XDG_STATE_HOME/loomid, ~/.local/state/loomid",
        "Database and locks.",
    ),
    "runtime_dir": Setting(
        values.path,
        "$RUNTIME_DIRECTORY, $XDG_RUNTIME_DIR/loomid, <state_dir>/run",
        "The sockets for Hermes and loomictl.",
    ),
    "public_url": Setting(values.phone_url, "made from listen", "The URL in the pairing code."),
    "tls_cert": Setting(values.path, "none", "PEM file with the certificate chain."),
    "tls_key": Setting(values.path, "none", "PEM file with the certificate's private key."),
    "name": Setting(values.parse_name, "the host's name", "What phones call this server."),
    "replay_window": Setting(
        values.whole(MIN_REPLAY_WINDOW, 1_000_000),
        str(MIN_REPLAY_WINDOW),
        "Events a phone may miss and still get when it is back.",
    ),
    "retention": Setting(values.parse_duration, "7d", "How long events and texts are kept."),
    "max_db_size": Setting(
        values.size(values.MIN_DB_BYTES, 2**40),
        "1GiB",
        "How large the database may become; the oldest events go first.",
    ),
    "allow_insecure_bind": Setting(
        values.yes_no, "false", "Listen beyond this host without TLS (behind a VPN, say)."
    ),
    "max_frame_bytes": Setting(
        values.size(2**14, 2**26), "1MiB", "Largest frame taken from a phone."
    ),
    "max_file_size": Setting(
        values.size(2**20, 2**32), "64MiB", "Largest file taken from a phone or the agent."
    ),
    "max_files_size": Setting(
        values.size(2**20, 2**44),
        "1GiB",
        "How much all files may take; those that were used longest ago go first.",
    ),
}


def variable(key: str) -> str:
    """The environment variable of a key."""
    return PREFIX + key.upper()


# ── sources: key → (parsed value, where it stands) ──────────────────────────

_Found = dict[str, Any]


def _parsed(key: str, value: object, where: str) -> Any:  # noqa: ANN401 - one of many types
    try:
        return SETTINGS[key].parse(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {key}: {error}") from None


def _from_environment(environ: Mapping[str, str]) -> _Found:
    """An empty variable counts as not set, as in systemd's EnvironmentFile."""
    found: _Found = {}
    known = {variable(key): key for key in SETTINGS}
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        if name not in known:
            raise ConfigError(f"environment variable {name}: {_no_such(name, variable)}")
        if environ[name].strip():
            found[known[name]] = _parsed(known[name], environ[name], f"environment {name}")
    return found


def _no_such(name: str, spell: Callable[[str], str]) -> str:
    """The fault, and the name that was meant; a variable's is often written for a key's."""
    bare = name.removeprefix(PREFIX).lower()
    near = difflib.get_close_matches(bare, SETTINGS, n=1, cutoff=0.75)
    return "there is no such setting" + "".join(f"; is {spell(one)} meant?" for one in near)


def _line_of(text: str, key: str) -> int:
    """The line on which a top-level key or a table stands."""
    bare = re.escape(key)
    pattern = re.compile(rf"""^\s*(?:\[+\s*)?["']?{bare}["']?\s*[=.\]]""", re.MULTILINE)
    match = pattern.search(text)
    return text.count("\n", 0, match.end()) + 1 if match else 1


def _from_file(path: Path) -> _Found:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode()
        table = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_fault(path, text, str(error))) from None
    found: _Found = {}
    for key, value in table.items():
        where = f"{path}:{_line_of(text, key)}"
        shown = key if key.isprintable() else ascii(key)
        if isinstance(value, dict):
            raise ConfigError(f"{where}: {shown}: no tables are needed, only lines `key = value`")
        if key not in SETTINGS:
            raise ConfigError(f"{where}: {shown}: {_no_such(key, str)}")
        found[key] = _parsed(key, value, where)
        if isinstance(found[key], Path):  # a path in a file means: from that file
            found[key] = path.parent / found[key]
    return found


def _toml_fault(path: Path, text: str, said: str) -> str:
    match = re.search(r" \(at line (\d+), column \d+\)$", said)
    line = int(match[1]) if match else max(1, len(text.splitlines()))
    said = said[: match.start()] if match else said.removesuffix(" (at end of document)")
    unquoted = said.startswith(("Invalid value", "Expected newline"))
    hint = '; texts need quotes: key = "text"' if unquoted else ""
    return f"{path}:{line}: {' '.join(said.split())}{hint}"


def config_file(named: str | None, environ: Mapping[str, str]) -> Path | None:
    """Which loomid.toml is read: a named one must be there, the usual places may be empty."""
    explicit = named or environ.get("LOOMI_CONFIG")
    if explicit:
        return Path(explicit).expanduser().absolute()
    home = environ.get("XDG_CONFIG_HOME") or _home(environ, ".config")
    places = [*([Path(home) / "loomid" / "loomid.toml"] if home else []), SYSTEM_FILE]
    return next((place.absolute() for place in places if place.exists()), None)


SYSTEM_FILE = Path("/etc/loomid/loomid.toml")


def _home(environ: Mapping[str, str], below: str) -> str | None:
    home = environ.get("HOME")
    return str(Path(home) / below) if home else None


def _state_dir(environ: Mapping[str, str]) -> Path:
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    base = environ.get("XDG_STATE_HOME") or _home(environ, ".local/state")
    if not base:
        raise ConfigError("no place for the state: set LOOMI_STATE_DIR or HOME")
    return Path(base) / "loomid"


def _runtime_dir(environ: Mapping[str, str], state_dir: Path) -> Path:
    given = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    base = environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "loomid" if base else state_dir / "run"


def load(overrides: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """Read all sources: the command line over the environment over the file.

    `overrides` may have the keys listen, state_dir, runtime_dir and config (the file).
    """
    path = config_file(overrides.get("config"), environ)
    found = _from_file(path) if path else {}
    found |= _from_environment(environ)
    for key, value in overrides.items():
        if key != "config" and value is not None:
            found[key] = _parsed(key, value, f"option --{key.replace('_', '-')}")
    if ("tls_cert" in found) != ("tls_key" in found):
        has, lacks = ("tls_cert", "tls_key") if "tls_cert" in found else ("tls_key", "tls_cert")
        raise ConfigError(f"{has} is set without {lacks} ({variable(lacks)}): set both or neither")
    host, port = found.get("listen", ("127.0.0.1", DEFAULT_PORT))
    state_dir = Path(os.path.abspath(found.get("state_dir") or _state_dir(environ)))  # noqa: PTH100 - no links resolved
    runtime_dir = found.get("runtime_dir") or _runtime_dir(environ, state_dir)
    return Config(
        listen_host=host,
        listen_port=port,
        state_dir=state_dir,
        runtime_dir=Path(os.path.abspath(runtime_dir)),  # noqa: PTH100 - no links resolved
        public_url=found.get("public_url"),
        tls_cert=found.get("tls_cert"),
        tls_key=found.get("tls_key"),
        name=found.get("name") or (socket.gethostname().split(".")[0] or "loomid")[:64],
        replay_window=found.get("replay_window", MIN_REPLAY_WINDOW),
        retention_s=found.get("retention", 7 * 86400.0),
        max_db_bytes=found.get("max_db_size", 2**30),
        allow_insecure_bind=found.get("allow_insecure_bind", False),
        max_frame_bytes=found.get("max_frame_bytes", 1 << 20),
        max_file_bytes=found.get("max_file_size", 64 << 20),
        max_files_bytes=found.get("max_files_size", 1 << 30),
    )


DAEMON_ONLY = {"RUNTIME_DIRECTORY", "STATE_DIRECTORY"}


def client_config(overrides: Mapping[str, str | None], environ: Mapping[str, str]) -> Config:
    """The settings as a client guesses them.

    $RUNTIME_DIRECTORY and $STATE_DIRECTORY are the daemon's alone: inside Hermes' own
    unit they are Hermes'.
    """
    return load(overrides, {k: v for k, v in environ.items() if k not in DAEMON_ONLY})


def admin_places(overrides: Mapping[str, str | None], environ: Mapping[str, str]) -> list[Path]:
    """The runtime directories in which a client looks for the daemon, in order.

    Settings with a fault must not keep a client from asking: it then looks where
    loomid is without them.
    """
    if overrides.get("runtime_dir"):
        return [Path(str(overrides["runtime_dir"])).absolute()]
    places: list[Path] = []
    if environ.get("LOOMI_RUNTIME_DIR"):
        places.append(Path(environ["LOOMI_RUNTIME_DIR"]))
    if environ.get("XDG_RUNTIME_DIR"):
        places.append(Path(environ["XDG_RUNTIME_DIR"]) / "loomid")
    places.append(Path("/run/loomid"))
    try:
        config = client_config(overrides, environ)
        places += config.runtime_dir, config.state_dir / "run"
    except ConfigError:
        named = overrides.get("state_dir") or environ.get("LOOMI_STATE_DIR")
        with contextlib.suppress(ConfigError):
            client = {k: v for k, v in environ.items() if k not in DAEMON_ONLY}
            places.append((Path(named) if named else _state_dir(client)) / "run")
    return list(dict.fromkeys(place.absolute() for place in places))
