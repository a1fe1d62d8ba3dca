"""Phones that bring files to a server and fetch them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.samples import Carrier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.hub import Server

MIB = 2**20


@asynccontextmanager
async def carrying(server: Server) -> AsyncIterator[Carrier]:
    """A phone of its own."""
    async with aiohttp.ClientSession() as session:
        yield Carrier(await server.paired(), session)


def left_behind(server: Server) -> list[str]:
    """What lies in the two directories."""
    folder = server.files.folder
    return [one.name for place in (folder, folder.parent / "uploads") for one in place.iterdir()]


async def cut_off(work: Any) -> bool:
    """Whether a request ends without an answer."""
    try:
        await work
    except aiohttp.ClientError:
        return True
    return False
