"""What the calls of a model took: tokens by Hermes' names, summed to what phones are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from loomid.lmp.history_frames import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import UnsetType

_OURS = {
    "input_tokens": ("input_tokens", "cache_read_tokens", "cache_write_tokens"),
    "output_tokens": ("output_tokens",),
    "cached_tokens": ("cache_read_tokens",),
    "reasoning_tokens": ("reasoning_tokens",),
}
"""Our figures → what they are the sum of: Hermes' input is without what the cache had."""


def figures(told: Mapping[str, int | None]) -> dict[str, int]:
    """Our figures of Hermes' counts; without those that it does not tell."""
    return {
        ours: sum(told.get(name) or 0 for name in theirs)
        for ours, theirs in _OURS.items()
        if told.get(theirs[0]) is not None
    }


class Tally:
    """The calls of one run so far."""

    def __init__(self) -> None:
        self._calls = 0
        self._sums: dict[str, int] = {}
        self._context: dict[str, int] = {}

    def add(self, told: Mapping[str, int] | None, window: int | None) -> None:
        """One more call was answered; what it took and may take, if Hermes says so."""
        self._calls += 1
        held = (told or {}).get("prompt_tokens")
        newest = {"context_tokens": held, "context_window": window}
        self._context |= {name: count for name, count in newest.items() if count}
        for name, count in figures(told or {}).items():
            self._sums[name] = self._sums.get(name, 0) + count

    def usage(self) -> Usage | UnsetType:
        """What `run.completed` tells; nothing where no call was answered."""
        return Usage(calls=self._calls, **self._sums, **self._context) if self._calls else UNSET
