"""What phones are told of the disk: `server.status`, once it has failed for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from loomid.lmp.frames import ServerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from loomid.health import Health

TOLD_AFTER_S = 1.0


class Alarm:
    """`status` is what all live phones have been told, at hello or since."""

    def __init__(
        self, health: Health, tell: Callable[[ServerStatus], None], clock: Callable[[], float]
    ) -> None:
        self.status = ServerStatus(storage="ok", since=clock())
        self._health = health
        self._tell = tell
        self._clock = clock

    async def run(self) -> None:
        """Tell each change, until cancelled."""
        while True:
            await self._health.fails.wait()
            since = self._health.failing_since or self._clock()
            try:
                async with asyncio.timeout(TOLD_AFTER_S):
                    await self._health.works.wait()
            except TimeoutError:
                self._change(ServerStatus(storage="failing", since=since))
                await self._health.works.wait()
                self._change(ServerStatus(storage="ok", since=self._clock()))

    def _change(self, status: ServerStatus) -> None:
        self.status = status
        self._tell(status)
