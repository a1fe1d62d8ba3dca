"""What the rows of the matrix share: the table they enter, and what the scripted model says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.matrix.world import Player
    from tests.support.phone import Got

SCENARIOS: dict[str, Callable[[Player], Awaitable[None]]] = {}


def scenario(function: Callable[[Player], Awaitable[None]]) -> Any:
    """Make a row of it."""
    SCENARIOS[function.__name__] = function
    return function


def words(count: int) -> str:
    """What the scripted model says to `say <count>`."""
    return " ".join(f"w{index}" for index in range(count))


def went_through(end: Got) -> bool:
    """Whether the tool of this run did its work, by what Hermes told the model of it.

    An interrupt of Hermes is a mark on a thread's id. When the /stop of one session comes as
    its tool ends, the mark may outlive it and hit the tool of another session whose thread
    has the same id (seen in 0.22 on a busy machine). That is then the truth to be told.
    """
    return "[Command interrupted]" not in end.payload["text"]
