"""The turns of one gateway that are remembered, and how others find them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from loomid.lmp import ids
from loomid.lmp.quota import ENDED_KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from loomid.lmp.host import Host
    from loomid.lmp.run import RunView
    from loomid.lmp.turns import Turn


class Roll:
    """Turns in the order of their first facts. `ended`: ids of some that are over already."""

    def __init__(self, host: Host, ended: Iterable[str]) -> None:
        self._host = host
        self._turns: dict[str, Turn] = {}
        self._by_run: dict[str, str] = {}
        # The view is None of a turn that never became a run, and of one from before a restart.
        self._ended: OrderedDict[str, RunView | None] = OrderedDict()
        for turn_id in ended:
            self._remember(turn_id, None)

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._turns.values())

    def __len__(self) -> int:
        return len(self._turns)

    def get(self, turn_id: str) -> Turn | None:
        """By Hermes' own id."""
        return self._turns.get(turn_id)

    def ended(self, turn_id: str) -> bool:
        """Whether it was forgotten lately: what still comes of it is late."""
        return turn_id in self._ended

    def view(self, run_id: str) -> RunView | None:
        """A run that is live, or ended lately and since our start."""
        turn_id = self._by_run.get(run_id)
        if turn_id is None:
            return None
        turn = self._turns.get(turn_id)
        return turn.view if turn is not None and turn.run.begun else self._ended.get(turn_id)

    def of_key(self, session_key: str) -> list[Turn]:
        """The live turns of a session, the latest first."""
        return [t for t in reversed(self._turns.values()) if t.live and t.key == session_key]

    def of_chat(self, session_key: str | None, chat_id: str, reply_to: str | None) -> list[Turn]:
        """Turns of a chat of ours: live ones first, and first the one that was answered."""
        turns = [
            t
            for t in reversed(self._turns.values())
            if t.ours
            and t.key is not None
            and (t.key == session_key if session_key else chat_id in t.key.split(":"))
        ]
        return sorted(turns, key=lambda t: (reply_to not in t.messages, not t.live))

    def add(self, turn: Turn) -> None:
        """Its first fact has come."""
        self._turns[turn.turn_id] = turn
        self._by_run[turn.run.run_id] = turn.turn_id

    def forget(self, turn: Turn) -> None:
        """Its late facts have come, or it never began."""
        del self._turns[turn.turn_id]
        self._remember(turn.turn_id, turn.view if turn.run.begun else None)

    def _remember(self, turn_id: str, view: RunView | None) -> None:
        self._ended[turn_id] = view
        if len(self._ended) > ENDED_KEPT:
            oldest, _ = self._ended.popitem(last=False)
            run_id = ids.run_id(self._host.key, self._host.gateway_id, oldest)
            self._by_run.pop(run_id, None)
