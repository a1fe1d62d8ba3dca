"""Finds the interpreter that runs Hermes and gives the plugin a pyzmq for it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loomid.hermes_config import InstallError, own

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REQUIREMENT = "pyzmq>=26"
_NAMES = ("hermes", "hermesx")
_PIP_TIMEOUT_S = 300.0
# Runs in the foreign interpreter: what Hermes is it, and does the plugin's pyzmq load in it?
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys
sys.path[:] = [p for p in sys.path if p]
own = u.find_spec("zmq") is not None
sys.path.insert(0, sys.argv[1])
why = None
try:
    import zmq
    found = zmq.__file__
    zmq = zmq.__version__ if found.startswith(sys.argv[1]) else None
    if zmq is None:
        why = f"{found} comes first"
except Exception as error:
    zmq, why = None, " ".join(f"{type(error).__name__}: {error}".split())
hermes = [d.version for d in m.distributions()
          if (d.metadata["Name"] or "").lower().startswith("hermes-agent")]
print(json.dumps({"python": list(sys.version_info[:3]), "zmq": zmq, "why": why, "own_zmq": own,
                  "hermes": hermes[0] if hermes else None,
                  "runs_hermes": u.find_spec("hermes_cli") is not None,
                  "aiohttp": u.find_spec("aiohttp") is not None}))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python as its own process reports it."""

    path: Path
    version: tuple[int, ...]
    hermes_version: str | None
    runs_hermes: bool
    zmq: str | None
    """Version of the pyzmq in the plugin's `_vendor`, when that loads."""
    no_zmq: str | None
    """Why it does not."""
    own_zmq: bool
    """It has a pyzmq of its own, which goes first."""
    aiohttp: bool

    @property
    def minor(self) -> int | None:
        """Of Hermes' 0.x, None where that is not known."""
        numbers = re.match(r"0\.(\d+)", self.hermes_version or "")
        return int(numbers[1]) if numbers else None


def probe(python: Path, vendor: Path) -> Interpreter:
    """Ask an interpreter what it has. Raises InstallError when it does not run."""
    # Not resolved: python in a venv is a symbolic link, and its place is what counts.
    python = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named or runs
            [str(python), "-c", _PROBE, str(vendor)],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            cwd="/",
            check=True,
        )
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "strerror", None) or _last_line(error) or type(error).__name__
        raise InstallError(f"{python} does not work as a Python interpreter: {reason}") from None
    return Interpreter(
        path=python,
        version=tuple(said["python"]),
        hermes_version=said["hermes"],
        runs_hermes=said["runs_hermes"],
        zmq=said["zmq"],
        no_zmq=said["why"],
        own_zmq=said["own_zmq"],
        aiohttp=said["aiohttp"],
    )


def find(home: Path, vendor: Path, environ: Mapping[str, str]) -> Interpreter | None:
    """The interpreter of the Hermes on PATH, or of the virtual environment in its home."""
    for candidate in _candidates(home, environ):
        if not os.access(candidate, os.X_OK):
            continue
        try:
            found = probe(candidate, vendor)
        except InstallError:
            continue
        if found.runs_hermes:
            return found
    return None


def _candidates(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    for name in _NAMES:
        script = shutil.which(name, path=environ.get("PATH"))
        if script is not None:
            yield from _interpreters_of(Path(script), depth=3)
    for venv in (home, home / "hermes-agent"):
        yield venv / "venv" / "bin" / "python"
        yield venv / ".venv" / "bin" / "python"


def _interpreters_of(script: Path, depth: int) -> Iterator[Path]:
    """The Python that a console script starts with; follows links and shell wrappers."""
    script = script.resolve()
    try:
        with script.open("rb") as file:
            text = file.read(4096).decode("utf-8", "replace")
    except OSError:
        return
    # `#!/…/python3`, or `'''exec' "/…/python3" "$0"` where the path is too long for that.
    for path in re.findall(r"(/[^\s\"']*(?:/[^\"'\n]*)?/python[0-9.]*)(?=[\s\"']|$)", text):
        yield Path(path)
    for name in _NAMES:
        for path in re.findall(rf"(/[^\s\"']+/bin/{name})(?=[\s\"']|$)", text):
            if depth and Path(path) != script:
                yield from _interpreters_of(Path(path), depth - 1)
    yield script.parent / "python"  # a launcher beside its interpreter


def command(interpreter: Interpreter, environ: Mapping[str, str]) -> str:
    """What to type for that Hermes' own command."""
    python = interpreter.path
    for name in _NAMES:
        script = shutil.which(name, path=environ.get("PATH"))
        if script is not None and python in _interpreters_of(Path(script), depth=3):
            return name
    beside = (python.with_name(name) for name in _NAMES)
    return next((shlex.quote(str(one)) for one in beside if one.exists()), "hermes")


def vendor_pyzmq(interpreter: Interpreter, vendor: Path) -> str:
    """Put a pyzmq wheel for that interpreter into `vendor`; returns its version.

    The new directory takes the place of an old one only when it can be imported.
    """
    like = vendor.parent.stat()
    try:
        fresh = Path(tempfile.mkdtemp(prefix=".vendor-", dir=vendor.parent))
    except OSError as error:
        raise InstallError(f"{vendor.parent}: {error.strerror}") from None
    try:
        _pip_install(interpreter.path, fresh)
        loaded = probe(interpreter.path, fresh)
        if loaded.zmq is None:
            raise InstallError(
                f"the pyzmq wheel does not load in {interpreter.path}: {loaded.no_zmq}"
            )
        fresh.chmod(0o755)
        for path in (fresh, *fresh.rglob("*")):
            own(path, like)
        if vendor.exists():
            shutil.rmtree(vendor)
        fresh.rename(vendor)
    except OSError as error:
        raise InstallError(f"{vendor}: {error.strerror}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return loaded.zmq


def _pip_install(python: Path, target: Path) -> None:
    """Run the first pip that is there: theirs, ours on their behalf, or uv's."""
    complaints = []
    for command in _pips(python):
        try:
            subprocess.run(  # noqa: S603 - a fixed command of the interpreters found above
                [*command, "--target", str(target), "--only-binary", ":all:", REQUIREMENT],
                check=True,
                capture_output=True,
                text=True,
                timeout=_PIP_TIMEOUT_S,
                env=clean_environment(),
                cwd="/",
            )
        except (OSError, subprocess.SubprocessError) as error:
            complaints.append(_last_line(error) or type(error).__name__)
        else:
            return
    reason = complaints[-1] if complaints else "there is no pip"
    raise InstallError(
        f"cannot install {REQUIREMENT} for {python}: {reason}. "
        f"Put it into that environment yourself and run this again."
    )


def _pips(python: Path) -> Iterator[list[str]]:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    install = ["install", "--no-compile"]
    if _has_pip(python):
        yield [str(python), "-m", "pip", *quiet, *install]
    elif importlib.util.find_spec("pip") is not None:
        # For environments made without pip (uv): our pip, run by their interpreter.
        yield [sys.executable, "-m", "pip", "--python", str(python), *quiet, *install]
    uv = shutil.which("uv")
    if uv is not None:
        yield [uv, "pip", "install", "--quiet", "--python", str(python)]


def _has_pip(python: Path) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pip') is None)"
    done = subprocess.run(  # noqa: S603 - as above
        [str(python), "-c", code], env=clean_environment(), cwd="/", check=False, timeout=60
    )
    return done.returncode == 0


def clean_environment() -> dict[str, str]:
    """Ours without what would change how another interpreter imports or where pip writes."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET")
    return {key: value for key, value in os.environ.items() if key not in drop}


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or ""
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR: ")
