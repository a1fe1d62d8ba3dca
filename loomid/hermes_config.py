"""What a Hermes home's config.yaml must say for loomid, and how it is put there.

Values that the user has set are kept, comments and layout untouched; the file is
replaced in one step, or not at all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loomid import yaml_edit
from loomid.errors import LoomiError
from loomid.wire import HOME_CHAT, PLATFORM
from loomid.yaml_edit import Append, Change, Remove, Set, Unset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KeyPath = tuple[str, ...]
_BOM = "\ufeff"


class InstallError(LoomiError):
    """`loomictl hermes install` cannot go on; nothing was written to config.yaml."""


_LOOMI = ("platforms", PLATFORM)
_DISPLAY = ("display", "platforms", PLATFORM)
_ENABLED = ("plugins", "enabled")
_ENDPOINT = (*_LOOMI, "extra", "endpoint")
# Without it no reasoning reaches a phone (0.20 and newer; 0.19 ignores it).
_REASONING = ("plugins", "stream_reasoning_deltas")
_HOME = {"platform": PLATFORM, "chat_id": HOME_CHAT, "name": "Home"}
# Tools and progress come from hooks; as messages they would be noise on a phone.
_QUIET = {"tool_progress": "off", "long_running_notifications": False, "busy_ack_detail": False}
_OURS: dict[KeyPath, Any] = {
    _REASONING: True,
    (*_LOOMI, "enabled"): True,
    (*_LOOMI, "home_channel"): _HOME,
    **{(*_DISPLAY, key): value for key, value in _QUIET.items()},
    (*_DISPLAY, "streaming"): True,
}
"""What `plan` sets, but for the list and the endpoint."""
_PLACES = (_REASONING, _LOOMI, _DISPLAY)


def update(path: Path, endpoint: str, *, edits_are_deltas: bool) -> list[str]:
    """Make config.yaml enable the plugin; returns one line for each thing changed.

    `edits_are_deltas`: this Hermes has no stream hooks (0.19), so that its own
    streaming must be on for the platform.
    """
    steps = _rewrite(path, lambda data: plan(data, endpoint, edits_are_deltas))
    return [f"config.yaml: {line}" for step in steps for line in _say(step)]


def restore(path: Path) -> tuple[list[str], list[str]]:
    """Take out of config.yaml what `update` puts there, by its values.

    One line for each thing taken out, and one for each that stays, as it has another value.
    """
    stays: list[str] = []

    def steps_for(data: dict[str, Any]) -> list[Change]:
        rest = _without_ours(data)
        found = [leaf for at in _PLACES for leaf in _leaves(".".join(at), _at(rest, at))]
        stays.extend(
            f"config.yaml: {key} stays: it is not as install sets it"
            for key, value in found
            if value is not None
        )
        return leave(data)

    steps = _rewrite(path, steps_for)
    return [f"config.yaml: {line}" for step in steps for line in _say(step)], stays


def _rewrite(path: Path, steps_for: Callable[[dict[str, Any]], list[Change]]) -> list[Change]:
    """Make the changes that the file's data need; returns them."""
    path = path.resolve()  # a symbolic link stays one; its target is replaced
    before = _stat(path)
    text = _read(path) if before else ""
    crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
    plain = text.replace("\r\n", "\n") if crlf else text
    bom = _BOM if plain.startswith(_BOM) else ""
    try:
        steps = steps_for(yaml_edit.load(plain.removeprefix(_BOM)))
        edited = bom + yaml_edit.edit(plain.removeprefix(_BOM), steps)
    except yaml_edit.EditError as error:
        raise InstallError(f"{path}: {error}; nothing was changed there") from None
    if not steps:
        return []
    if _stat(path) != before:
        raise InstallError(f"{path} was changed by another program meanwhile; run this again")
    write_atomically(path, (edited.replace("\n", "\r\n") if crlf else edited).encode())
    return steps


def plan(data: dict[str, Any], endpoint: str, edits_are_deltas: bool) -> list[Change]:
    """The changes that config.yaml's data need, in the order of their making."""
    plan = _Plan(data)
    plan.unlisted(("plugins", "disabled"), PLATFORM)
    plan.listed(_ENABLED, PLATFORM)
    plan.default(_REASONING, True)
    if plan.at((*_LOOMI, "enabled")) is not True:
        plan.set((*_LOOMI, "enabled"), True)
    plan.default((*_LOOMI, "home_channel"), _HOME)
    here = plan.at(_ENDPOINT)
    if here is None or (_is_ours(_ENDPOINT, here) and here != endpoint):
        plan.set(_ENDPOINT, endpoint)
    for key, value in _QUIET.items():
        plan.default((*_DISPLAY, key), value)
    if edits_are_deltas:
        plan.default((*_DISPLAY, "streaming"), True)
    return plan.steps


def leave(data: dict[str, Any]) -> list[Change]:
    """The changes after which it has nothing that `plan` sets."""
    return list(_missing(data, _without_ours(data)))


def _is_ours(path: KeyPath, value: object) -> bool:
    if path == _ENDPOINT:
        return str(value).startswith("ipc://")
    return bool(_OURS[path] == value)


def _without_ours(data: dict[str, Any]) -> dict[str, Any]:
    """The data without what `plan` sets, and without mappings that had nothing else."""
    rest: dict[str, Any] = yaml_edit.json_like(data)
    enabled = _at(rest, _ENABLED)
    if isinstance(enabled, list) and PLATFORM in enabled:
        enabled[:] = [name for name in enabled if name != PLATFORM]
        if not enabled:
            _prune(rest, _ENABLED)
    for path in (*_OURS, _ENDPOINT):
        value = _at(rest, path)
        if value is not None and _is_ours(path, value):
            _prune(rest, path)
    return rest


def _prune(data: dict[str, Any], path: KeyPath) -> None:
    del _at(data, path[:-1])[path[-1]]
    if path[:-1] and not _at(data, path[:-1]):
        _prune(data, path[:-1])


def _missing(old: dict[str, Any], new: dict[str, Any], path: KeyPath = ()) -> Iterator[Change]:
    """The changes from the one to the other, in which something is missing."""
    for key, value in old.items():
        here = (*path, key)
        if key not in new:
            yield Unset(here, value)
        elif here == _ENABLED and value != new[key]:
            yield Remove(here, PLATFORM)
        elif isinstance(value, dict):
            yield from _missing(value, new[key], here)


def _at(data: dict[str, Any], path: KeyPath) -> Any:  # noqa: ANN401 - any YAML value
    """The value at a path, None when there is none.

    Raises EditError when something on the way is not a mapping.
    """
    here: Any = data
    for depth, key in enumerate(path):
        if here is None:
            return None
        if not isinstance(here, dict):
            raise yaml_edit.EditError(f"{'.'.join(path[:depth])} is not a mapping")
        here = here.get(key)
    return here


class _Plan:
    """Changes so far, and the data as they make it."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self.steps: list[Change] = []

    def at(self, path: KeyPath) -> Any:  # noqa: ANN401 - any YAML value
        """See `_at`."""
        return _at(self._data, path)

    def set(self, path: KeyPath, value: Any) -> None:  # noqa: ANN401 - any YAML value
        """Set a key; mappings that are missing or empty above it are made with it."""
        depth = 1
        self.at(path)
        while depth < len(path) and self.at(path[:depth]):
            depth += 1
        for key in reversed(path[depth:]):
            value = {key: value}
        self._do(Set(path[:depth], value))

    def default(self, path: KeyPath, value: Any) -> None:  # noqa: ANN401 - any YAML value
        """Set a key unless the user has."""
        if self.at(path) is None:
            self.set(path, value)

    def listed(self, path: KeyPath, item: str) -> None:
        """See that a list has an item."""
        items = self.at(path)
        if items is None:
            self.set(path, [item])
        elif item not in self._checked(path, items):
            self._do(Append(path, item))

    def unlisted(self, path: KeyPath, item: str) -> None:
        """See that a list does not have an item."""
        items = self.at(path)
        if items is not None and item in self._checked(path, items):
            self._do(Remove(path, item))

    def _checked(self, path: KeyPath, items: object) -> list[object]:
        if not isinstance(items, list):
            raise yaml_edit.EditError(f"{'.'.join(path)} is not a list")
        return items

    def _do(self, step: Change) -> None:
        self.steps.append(step)
        self._data = yaml_edit.change(self._data, step)


def _say(step: Change) -> list[str]:
    path = ".".join(step.path)
    match step:
        case Append():
            return [f"{path}: added {step.item}"]
        case Remove():
            return [f"{path}: removed {step.item}"]
        case Unset():
            return [f"{path}: removed" for path, _ in _leaves(path, step.value)]
        case Set():
            return [f"{path}: {yaml_edit.flow(value)}" for path, value in _leaves(path, step.value)]


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - any YAML value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path, value


# ── files ───────────────────────────────────────────────────────────────────


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}") from None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise InstallError(f"{path} is not UTF-8; nothing was changed there") from None
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}") from None


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step, keeping the mode and owner it had.

    A new file gets `mode` and the owner of its directory: root may install for the
    account that Hermes runs as.
    """
    try:
        like = path.stat()
        mode = like.st_mode & 0o7777
    except FileNotFoundError:
        like = path.parent.stat()
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
    except OSError as error:
        raise InstallError(f"{path.parent}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            own(file.fileno(), like)
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise InstallError(f"{path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


def own(target: int | Path, like: os.stat_result) -> None:
    """Give a file the owner of another, where root made it."""
    if os.geteuid() == 0:
        os.chown(target, like.st_uid, like.st_gid)
