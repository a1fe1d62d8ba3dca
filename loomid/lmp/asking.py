"""Approvals and questions in the fold: asked, decided or lost, told at their place in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomid import wire
from loomid.lmp.asks import KEEP_S, Ask, Asked, Asks, AskView, Done

if TYPE_CHECKING:
    from loomid.lmp.decisions import Resolved
    from loomid.lmp.folding import Alarms, Folding
    from loomid.lmp.frames import Payload
    from loomid.lmp.host import Host
    from loomid.lmp.roll import Roll
    from loomid.lmp.turns import Turn


class Asking:
    """What becomes of what one gateway asks."""

    def __init__(self, host: Host, turns: Roll, alarms: Alarms) -> None:
        self._asks = Asks(host.gateway_id, host.key)
        self._dropped = host.dropped
        self._turns = turns
        self._alarms = alarms

    def view(self, name: str) -> AskView | None:
        """An approval or question that is pending or was decided lately."""
        ask = self._asks.get(name)
        return None if ask is None else ask.view()

    def asked(self, out: Folding, fact: Asked) -> None:
        """Hermes waits for an answer."""
        turn = self._turns.get(fact.turn_id or "")
        run = None
        if turn is not None and turn.live and turn.run.begun:
            run = turn.run.run_id, turn.run.task_id, turn.work.tools.part(fact.call_id)
        ask = self._asks.ask(out.boot, out.t, fact, run)
        if ask is None:
            self._dropped["duplicate"] += 1
        elif not ask.pending:
            self._dropped[f"too_many_{ask.kind}s"] += 1
            out.emit(ask.refused(), task_id=ask.task_id)
        else:
            out.touched.add(ask.owner)
            self._tell(out, ask, ask.required(), pending=True)

    def done(self, out: Folding, fact: Done) -> None:
        """Hermes says what was decided."""
        done = self._asks.done(out.boot, fact)
        if done is not None:
            self._over(out, *done)
        elif isinstance(fact, wire.ApprovalDone):
            self._dropped["unknown_approval"] += 1
        else:
            self._dropped["unknown_question"] += 1

    def only(self, out: Folding, listed: list[str] | None, before: float) -> None:
        """Of this process, asked before then, only the listed ones wait: the others are lost."""
        for ask in self._asks.missing(out.boot, listed, before):
            self._over(out, ask, ask.lost())

    def orphan(self, turn: Turn) -> None:
        """It made room for others: without its facts, a restart would not find whose these are."""
        for name in turn.run.waiting_for:
            self._asks.orphan(name)

    def surplus(self) -> list[str]:
        """Forget those decided longest ago where there are too many: their owners."""
        return [ask.owner for ask in self._asks.surplus()]

    def forget(self, name: str) -> None:
        """It was decided long ago."""
        self._asks.forget(name)

    def _over(self, out: Folding, ask: Ask, end: Resolved) -> None:
        out.touched.add(ask.owner)
        self._alarms.set(ask.owner, out.at + KEEP_S)
        self._tell(out, ask, end, pending=False)

    def _tell(self, out: Folding, ask: Ask, payload: Payload, *, pending: bool) -> None:
        def event(then: Folding) -> None:
            then.emit(payload, task_id=ask.task_id, run_id=ask.run_id)

        turn = self._turns.get(ask.fact.turn_id or "")
        if turn is None or ask.run_id is None:
            event(out)
        else:
            turn.asks(out, ask.id, event, pending=pending)
