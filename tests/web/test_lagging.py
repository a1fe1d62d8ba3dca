"""A phone that takes little is served as long as it takes something. In virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from loomid.writer import Writer
from tests.support.whole.loop import virtual
from tests.support.whole.phone import ROOM, Pipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.whole.loop import VirtualLoop

STALL_S = 10.0
FRAME = b"x" * 30_000
FRAMES = 2 + ROOM // len(FRAME)  # more than there is room for


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    with virtual(1) as loop:
        yield loop


class Connection:
    """A writer whose phone reads when it is told to."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.pipe = Pipe()
        self.complaints: list[str] = []
        self._serving = loop.create_task(self._serve())
        loop.advance(0.1)

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.writer = Writer(self.pipe, STALL_S, self.complaints.append)
            self.writer.start(tasks)
            await self.pipe.receive()

    def fill(self, loop: VirtualLoop) -> None:
        for _ in range(FRAMES):
            self.writer.say(FRAME)
        loop.advance(0.1)
        assert self.pipe.unsent > ROOM

    def close(self, loop: VirtualLoop) -> None:
        self.pipe.leave()
        loop.advance(0.1)
        assert self._serving.done()
        self._serving.exception()


def test_a_phone_that_takes_a_little_now_and_then_is_served(loop: VirtualLoop):
    connection = Connection(loop)
    connection.fill(loop)
    loop.advance(STALL_S * 0.9)
    assert connection.pipe.read() == FRAME
    assert connection.pipe.unsent > ROOM
    loop.advance(STALL_S * 1.05)  # its patience was looked at meanwhile
    assert not connection.complaints
    while connection.pipe.read() is not None:
        pass
    loop.advance(0.1)
    connection.writer.say(b"more")
    loop.advance(0.1)
    assert connection.pipe.read() == b"more"
    connection.close(loop)


def test_a_phone_that_takes_nothing_is_complained_of(loop: VirtualLoop):
    connection = Connection(loop)
    connection.fill(loop)
    loop.advance(STALL_S * 0.9)
    assert not connection.complaints
    loop.advance(STALL_S * 0.2)
    assert connection.complaints == ["takes nothing"]
    connection.close(loop)
