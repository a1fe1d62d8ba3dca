"""Takes in the files that agents send, one at a time, and tells the fold how that went."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from loomid.errors import BadFile, StorageFailing, TooLarge
from loomid.fileindex import Use
from loomid.files import on_disk
from loomid.lmp.facts import Arrival, FileTaken

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.files import Files
    from loomid.lmp.file_frames import AttachmentRef
    from loomid.lmp.folding import FileSeen

log = logging.getLogger("loomid.files")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
UNTOLD_S = 3600.0
"""A gateway makes a copy for us and tells of it at once, after a restart of ours within
minutes. What it has not told of by then is of one that ended, or was told in vain."""


class Intake:
    """`want` may be called before `run` is: what waited when a former loomid ended comes first.

    That one may have taken a file and not told of it: the index knows by its source.
    """

    def __init__(
        self, files: Files, arrive: Callable[[Arrival], None], clock: Callable[[], float]
    ) -> None:
        self._files = files
        self._arrive = arrive
        self._clock = clock
        self._wanted: asyncio.Queue[tuple[str, FileSeen, float]] = asyncio.Queue()
        """With the seconds until the next attempt, should the disk fail."""
        self._told: set[str] = set()
        """Paths of those that are not taken in yet."""
        self._untold: dict[str, float] = {}
        """Names of copies that nobody told of, and since when they have been seen."""

    def want(self, gateway_id: str, seen: FileSeen) -> None:
        """This file is to be taken in."""
        self._told.add(seen.fact.path)
        self._wanted.put_nowait((gateway_id, seen, _FIRST_PAUSE_S))

    async def run(self) -> None:
        """Take in what is wanted, until cancelled; however long the disk fails.

        It may have no room for one file and some for those after it: they do not wait.
        """
        later = asyncio.get_running_loop().call_later
        while True:
            gateway_id, seen, pause = await self._wanted.get()
            try:
                kept, error = await self._taken(gateway_id, seen)
            except StorageFailing:
                again = gateway_id, seen, min(2 * pause, _LONGEST_PAUSE_S)
                later(pause, self._wanted.put_nowait, again)
                continue
            if seen.fact.ours:
                await asyncio.to_thread(_remove, seen.fact.path)
            self._told.discard(seen.fact.path)
            now = self._clock()
            fact = FileTaken(seen.fact.message_id, kept, error)
            self._arrive(Arrival(gateway_id, seen.boot, 0, now, now, fact))

    async def tend(self) -> None:
        """Remove copies that no gateway tells of. Raises StorageFailing."""
        inbox, now = self._files.inbox, self._clock()
        there = await on_disk(os.listdir, inbox)
        untold = [name for name in there if str(inbox / name) not in self._told]
        self._untold = {name: self._untold.get(name, now) for name in untold}
        for name in [n for n, since in self._untold.items() if now - since > UNTOLD_S]:
            await asyncio.to_thread(_remove, str(inbox / name))

    async def _taken(
        self, gateway_id: str, seen: FileSeen
    ) -> tuple[AttachmentRef | None, str | None]:
        """The file, or why there is none. Raises StorageFailing."""
        fact = seen.fact
        source = f"{gateway_id}:{seen.boot}:{fact.message_id}"
        use = Use(fact.name, task_id=seen.task_id, source=source)
        try:
            return (await self._files.take(Path(fact.path), use)).ref(), None
        except StorageFailing:
            raise
        except (BadFile, TooLarge) as refused:
            error = str(refused.params.get("reason", refused.code))
            log.warning("a file of the agent was not taken: %s", error)
            return None, error
        except Exception as error:  # noqa: BLE001 - one odd file must not end the daemon
            log.error("a file of the agent met an error of our own: %s", type(error).__name__)
            return None, "internal"


def _remove(path: str) -> None:
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        log.warning("a copy made for us cannot be removed: %s", error.strerror)
