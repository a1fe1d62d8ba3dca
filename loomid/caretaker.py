"""Keeps what there is of files within its bounds: stored ones, uploads, copies for us."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from loomid.errors import StorageFailing

if TYPE_CHECKING:
    from loomid.files import Files
    from loomid.intake import Intake
    from loomid.lmp.scopes import Scopes
    from loomid.uploads import Uploads

ROUND_S = 600.0


class Caretaker:
    """Does its round every ten minutes, and when a device was revoked."""

    def __init__(self, files: Files, uploads: Uploads, intake: Intake) -> None:
        self._files = files
        self._uploads = uploads
        self._intake = intake
        self._called = asyncio.Event()

    def changed(self, _device_id: str, held: Scopes) -> None:
        """A device has these scopes from now on; none: it is gone, and what it brought goes."""
        if not held:
            self._called.set()

    async def run(self) -> None:
        """Do the rounds, until cancelled."""
        while True:
            self._called.clear()
            # Uploads first: the last byte of one may just have come.
            for tend in (self._uploads.tend, self._files.tend, self._intake.tend):
                with contextlib.suppress(StorageFailing):  # tried again
                    await tend()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await self._called.wait()
