"""Waiting for what nothing announces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 30.0


async def until(condition: Callable[[], Any], bound: float = WAIT_S) -> Any:
    """Wait until a condition holds; its value, or TimeoutError."""
    async with asyncio.timeout(bound):
        while not (value := condition()):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.002)
    return value
