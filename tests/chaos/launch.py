"""loomid with a kernel boot id of the test's choosing: `launch.py FILE [loomid's options]`."""

from __future__ import annotations

import sys
from pathlib import Path

from loomid import daemon
from loomid.__main__ import main

if __name__ == "__main__":
    daemon.BOOT_ID = Path(sys.argv.pop(1))
    main(prog_name="loomid")
