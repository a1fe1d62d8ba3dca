"""A gateway with a Hermes home of its own, and what phones are told of a task's past."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.answering import Host, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.hermes_home import Home


@asynccontextmanager
async def linked(side: Side, hermes: Home) -> AsyncIterator[Host]:
    made = Host(side.socket, home=str(hermes.folder))
    yield await side.online(made)
    made.link.stop(0.1)


async def turns(side: Side, task_id: str, **more: Any) -> list[Any]:
    found: list[Any] = (await side.ask("task.history", task_id=task_id, **more))["turns"]
    return found
