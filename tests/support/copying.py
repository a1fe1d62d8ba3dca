"""`loomictl db backup` or `restore` in a process that kills itself before its n-th step on files.

    python -m tests.support.copying backup DATABASE TARGET N [no-links]
    python -m tests.support.copying restore STATE_DIR COPY N [no-links]

With `no-links` as on a file system without hard links.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

from loomid import dbtool

STEPS = frozenset({"os.link", "os.remove", "os.rename", "sqlite3.connect", "fcntl.flock"})


def no_links(*_: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def main() -> None:
    what, where, file, left = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    if "no-links" in sys.argv:
        os.link = no_links

    def step(event: str, what: tuple[Any, ...]) -> None:
        nonlocal left
        if event in STEPS or (event == "open" and what[2] & os.O_CREAT):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)
    (dbtool.backup if what == "backup" else dbtool.restore)(where, file)


if __name__ == "__main__":
    main()
