"""Commands of loomid: each id runs at most once, and its result can be asked for again.

Pure but for the wall clock, against which deadlines are told; the link thread alone uses it.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from . import wire

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS_KEPT = 256
RESULT_BYTES = 4 << 20


class Orders:
    """What became of each command; `results` are the encoded ones still to be sent."""

    def __init__(self, boot: str, execute: Callable[[wire.Command], None]) -> None:
        self.results: deque[bytes] = deque(maxlen=RESULTS_KEPT)
        self._boot, self._execute = boot, execute
        self._known: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def take(self, command: wire.Command) -> None:
        """Run it, unless it came before, is for another process or comes too late."""
        if command.id in self._known:
            self._repeat(command.id)
            return
        stale = command.boot != self._boot or command.deadline < time.time()
        self._remember(command.id, command.deadline)
        if stale or command.op not in wire.OPS:
            self.settle(wire.Result(command.id, "stale" if stale else "unknown_op"))
            return
        try:
            self._execute(command)
        except Exception as error:  # noqa: BLE001 - a guest never hurts its host
            self.settle(wire.Result(command.id, "failed", type(error).__name__))

    def recall(self, command_id: str) -> None:
        """Repeat its result. One that never ran is remembered: should it come after all
        (from a connection that broke), it does not run."""
        if command_id in self._known:
            self._repeat(command_id)
            return
        self._remember(command_id, time.time() + wire.COMMAND_DEADLINE_S)
        self.settle(wire.Result(command_id, "unknown_command"))

    def settle(self, result: wire.Result) -> None:
        """The first result of an id counts."""
        deadline, before = self._known.get(result.id, (0.0, None))
        if before is not None:
            return
        try:
            data = wire.encode(result)
        except (ValueError, TypeError, RecursionError):
            data = b""
        if not 0 < len(data) <= RESULT_BYTES:
            data = wire.encode(wire.Result(result.id, "failed", "the result cannot be sent"))
        self._known[result.id] = deadline, data
        self.results.append(data)

    def _repeat(self, command_id: str) -> None:
        data = self._known[command_id][1]
        if data is not None:  # else it still runs, and its result will be sent
            self.results.append(data)

    def _remember(self, command_id: str, deadline: float) -> None:
        self._known[command_id] = deadline, None
        # None is forgotten before its deadline: until then the command may come again.
        while len(self._known) > RESULTS_KEPT and next(iter(self._known.values()))[0] < time.time():
            self._known.popitem(last=False)
