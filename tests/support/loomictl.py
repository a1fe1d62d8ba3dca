"""loomictl as a process, asked about one daemon of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.daemon import clean_environ


def command(runtime_dir: Path | None, *arguments: str) -> list[str]:
    """The command line; without a runtime directory loomictl looks in the usual places."""
    where = ["--runtime-dir", str(runtime_dir)] if runtime_dir else []
    return [sys.executable, "-m", "loomid.cli", *where, *arguments]


def loomictl(
    runtime_dir: Path | None, *arguments: str, home: Path = Path("/nonexistent"), **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(runtime_dir, *arguments),
        env=clean_environ(home, **environ),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def begin(runtime_dir: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start it, to be talked to while it runs."""
    return subprocess.Popen(
        command(runtime_dir, *arguments),
        env=clean_environ(Path("/nonexistent")),
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
