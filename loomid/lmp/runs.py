"""Facts of one gateway in any order → LMP events (docs/protocol.md): the fold."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.lmp import frames, ids
from loomid.lmp.asking import Asking
from loomid.lmp.asks import ASKED_RACE_S, Asked, AskView, Done
from loomid.lmp.endings import CANCELLED
from loomid.lmp.facts import (
    Arrival,
    FileTaken,
    GatewayDown,
    GatewayForgotten,
    GatewayLost,
    GatewayUp,
    Tick,
    Unheard,
)
from loomid.lmp.folding import Alarms, Folding, Outcome, TaskSeen, tag_of
from loomid.lmp.handed import Handed
from loomid.lmp.host import BOOTS, Host
from loomid.lmp.inbox import origin_of
from loomid.lmp.quota import Quota
from loomid.lmp.roll import Roll
from loomid.lmp.run import RunView
from loomid.lmp.sends import Sends
from loomid.lmp.start import platform_of
from loomid.lmp.status import Status
from loomid.lmp.turns import TURN_FACTS, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["AskView", "Outcome", "RunView", "Runs", "TaskSeen"]

_TIMELESS = frozenset({GatewayUp, GatewayDown, FileTaken, Unheard})
"""Of the link, and of ourselves."""


class Runs:
    """All that one gateway does. `ended`: ids of turns whose facts were released lately."""

    def __init__(self, gateway_id: str, key: bytes, ended: Iterable[str] = ()) -> None:
        self._gateway_id = gateway_id
        self._key = key
        self._host = Host(gateway_id, key)
        self._turns = Roll(self._host, ended)
        self._sends = Sends(self._host)
        self._handed = Handed(self._host)
        self._status = Status(self._host)
        self._lost: OrderedDict[str, None] = OrderedDict()
        self._alarms = Alarms()
        self._asking = Asking(self._host, self._turns, self._alarms)
        self._quota = Quota()

    # ── what others ask ──

    @property
    def deadline(self) -> float | None:
        """When a Tick is due."""
        return self._alarms.next

    @property
    def wants_running(self) -> float | None:
        """When op `running` should be asked (at most every 2 s); None: not needed."""
        times = (turn.ask_running_at for turn in self._turns)
        return min((t for t in times if t is not None), default=None)

    @property
    def dropped(self) -> Counter[str]:
        """Facts that came to nothing of their own, by reason (see Host)."""
        return self._host.dropped

    def run(self, run_id: str) -> RunView | None:
        """A run that is live, or ended lately and since our start."""
        return self._turns.view(run_id)

    def live(self) -> list[RunView]:
        """The runs that are not over."""
        return [turn.view for turn in self._turns if turn.live and turn.run.begun]

    def asked(self, name: str) -> AskView | None:
        """An approval or question that is pending or was decided lately."""
        return self._asking.view(name)

    # ── the fold ──

    def fold(self, arrival: Arrival) -> Outcome:
        """Take one arrival. Never raises, whatever comes; the same facts, the same events.

        Time passes by ticks and all other arrivals but a turn's own facts, which touch that
        turn alone (see folding), and the link's coming and going: what Hermes did meanwhile
        may still be on its way.
        """
        out = Folding(arrival)
        fact = arrival.fact
        if type(fact) in TURN_FACTS:
            self._turn_fact(out, fact)
        else:
            if type(fact) not in _TIMELESS:
                for owner in self._alarms.due(arrival.at):
                    self._wake(out, owner)
            if (take := _TAKE.get(type(fact))) is not None:
                take(self, out, fact)
        return self._outcome(out)

    def make_do(self, arrival: Arrival) -> Outcome:
        """After `fold` raised on this arrival: where it was to end a turn, that turn ends."""
        out = Folding(arrival)
        turn = self._turns.get(getattr(arrival.fact, "turn_id", None) or "")
        if turn is not None and type(arrival.fact) is wire.TurnEnded:
            turn.abandon(out, "internal")
        return self._outcome(out)

    def _outcome(self, out: Folding) -> Outcome:
        for owner in out.touched:
            turn = self._turns.get(owner)
            if turn is not None:
                self._alarms.set(owner, turn.due)
                self._note(turn, out.arrival)
        reason, surplus = self._quota.surplus(self._turns, len(self._turns))
        for turn in surplus:
            self._evict(out, turn, reason)
        for owner in self._asking.surplus():
            self._release(out, owner)
        return Outcome(
            events=tuple(out.events),
            retain=self._host.retention.keep(out.arrival, out.touched - out.gone),
            release=tuple(out.released),
            tasks=tuple(out.tasks),
            files=tuple(out.files),
            told=tuple(out.told),
            merge=out.merge,
        )

    def _note(self, turn: Turn, arrival: Arrival) -> None:
        """What this arrival adds to what is kept of a turn."""
        self._quota.note(turn, arrival.fact)
        if type(arrival.fact) is Tick:
            turn.segment.tick(tag_of(arrival))
        elif type(arrival.fact) is not wire.Delta:
            turn.segment.end()

    def _evict(self, out: Folding, turn: Turn, reason: str) -> None:
        self._host.dropped[reason] += 1
        cause, out.cause = out.cause, turn.cause
        for owner in self._handed.give_up(out, turn):
            self._release(out, owner)
        if turn.live:
            turn.abandon(out, reason)
        out.cause = cause
        self._asking.orphan(turn)
        self._forget_turn(out, turn)

    def _wake(self, out: Folding, owner: str) -> None:
        turn = self._turns.get(owner)
        if turn is None:
            # A message that became no turn, or something decided long ago.
            self._host.inbox.pop(owner.removeprefix("~msg:"))
            self._asking.forget(owner.removeprefix("~"))
            self._release(out, owner)
        elif turn.live and (turn.run.begun or turn.start.known_at is not None):
            cause, out.cause = out.cause, turn.cause  # what it held back is its own
            turn.wake(out)
            out.cause = cause
        else:
            self._forget_turn(out, turn)

    def _turn_fact(self, out: Folding, fact: Any) -> None:  # noqa: ANN401 - one of TURN_FACTS
        turn = self._turns.get(fact.turn_id)
        if turn is None:
            if self._turns.ended(fact.turn_id) or out.boot in self._lost:
                self._host.dropped["late"] += 1
                return
            turn = Turn(fact.turn_id, out.boot, self._host, out.at)
            self._turns.add(turn)
            # How its text is told depends on what its host can do.
            self._host.retention.share(turn.turn_id, f"~boot:{out.boot}")
        if turn.live:
            turn.take(out, fact)
        else:
            self._host.dropped["late"] += 1

    def _gateway_up(self, out: Folding, fact: GatewayUp) -> None:
        if out.boot in self._lost:
            del self._lost[out.boot]
            self._release(out, f"~lost:{out.boot}")
        # Be it news or not: that depends on facts that may be gone when it is folded again.
        self._host.retention.renew(out, f"~boot:{out.boot}")
        oldest = self._host.learn(out.boot, fact)
        if oldest is not None:
            self._host.forget(oldest)
            self._release(out, f"~boot:{oldest}")
        self._status.up(out, fact)

    def _gateway_down(self, out: Folding, _fact: GatewayDown) -> None:
        self._status.down(out)

    def _gateway_lost(self, out: Folding, _fact: GatewayLost) -> None:
        if out.boot in self._lost:
            return  # each restart finds out anew
        self._status.down(out)
        self._asking.only(out, None, out.t)
        for turn in [t for t in self._turns if t.boot == out.boot and t.live]:
            turn.abandon(out, "gateway_lost")
            if turn.live:
                self._forget_turn(out, turn)  # it never began
        self._host.forget(out.boot)
        self._release(out, f"~boot:{out.boot}")
        self._lost[out.boot] = None
        out.touched.add(f"~lost:{out.boot}")
        if len(self._lost) > BOOTS:
            self._release(out, f"~lost:{self._lost.popitem(last=False)[0]}")

    def _gateway_forgotten(self, out: Folding, fact: GatewayForgotten) -> None:
        """All that it did is over by now (see Roster.forget); whoever folds lets go of the rest."""
        out.emit(frames.GatewayForgotten(gateway_id=self._gateway_id, name=fact.name))

    def _unheard(self, out: Folding, _fact: Unheard) -> None:
        for turn in self._turns:
            turn.unheard(out)
        for message in self._host.inbox.renew(out.at):
            out.touched.add(message.owner)
            self._alarms.set(message.owner, message.expires_at)

    def _injected(self, out: Folding, fact: wire.Injected) -> None:
        turn = next((t for t in self._turns.of_key(fact.session_key) if t.ours), None)
        folds = fact.mode == "steer" and fact.busy and not fact.attachments
        if folds and turn is not None:
            turn.input(out, fact.text, origin_of(fact))
            return
        message, pushed_out = self._host.inbox.put(fact, out.at)
        if message is not None:
            out.touched.add(message.owner)
            self._alarms.set(message.owner, message.expires_at)
        if pushed_out is not None:
            self._release(out, pushed_out.owner)

    def _processing_started(self, out: Folding, fact: wire.ProcessingStarted) -> None:
        message = self._host.inbox.get(fact.message_id)
        if message is not None and not message.handled:
            message.handled = True
            out.touched.add(message.owner)

    def _processing_ended(self, out: Folding, fact: wire.ProcessingEnded) -> None:
        """Hermes is done with a message. Its turn may be another message's by then: 0.19 and
        0.20 run what came meanwhile inside the first one's processing."""
        turns = [t for t in self._turns.of_key(fact.session_key) if t.ours]
        bound = [t for t in turns if fact.message_id in t.messages]
        guests = [t for t in turns if t not in bound and not t.has_own_handler]
        if fact.outcome == "cancelled":
            for turn in bound or guests[:1]:
                turn.end(out, CANCELLED)
            return
        for turn in bound + [t for t in guests if t.work.failure is not None]:
            turn.handler_done(out)

    def _loop_stopped(self, out: Folding, fact: wire.LoopStopped) -> None:
        turns = self._turns.of_key(fact.session_key)
        for turn in [t for t in turns if t.messages] or turns[:1]:
            turn.end(out, CANCELLED)

    def _session_reset(self, out: Folding, fact: wire.SessionReset) -> None:
        """The key goes on under another session id; the task stays the same."""
        if fact.session_key is not None:
            seen = TaskSeen(
                task_id=ids.task_id(self._key, self._gateway_id, fact.session_key),
                gateway_id=self._gateway_id,
                session_key=fact.session_key,
                session_id=fact.new_session_id,
                surface=platform_of(fact.session_key) or "",
                model=None,
                at=out.at,
                prompt=None,
            )
            out.tasks.append(seen)

    def _sent(self, out: Folding, fact: wire.Sent) -> None:
        self._sends.sent(
            out, fact, self._turns.of_chat(fact.session_key, fact.chat_id, fact.reply_to)
        )

    def _file_sent(self, out: Folding, fact: wire.FileSent) -> None:
        turns = self._turns.of_chat(fact.session_key, fact.chat_id, fact.reply_to)
        self._handed.sent(out, fact, turns)

    def _file_taken(self, out: Folding, fact: FileTaken) -> None:
        owner = self._handed.taken(out, fact)
        if owner is not None:
            self._release(out, owner)

    def _edited(self, out: Folding, fact: wire.Edited) -> None:
        self._sends.edited(out, fact, self._turns.of_chat(None, fact.chat_id, None))

    def _running(self, out: Folding, fact: wire.Running) -> None:
        self._not_running(out, fact.keys)

    def _inventory(self, out: Folding, fact: wire.Inventory) -> None:
        self._not_running(out, fact.keys)
        self._asking.only(out, [*fact.approvals, *fact.questions], out.t - ASKED_RACE_S)

    def _not_running(self, out: Folding, keys: list[str]) -> None:
        """Turns whose agents run no longer are over; failed ones end without a word."""
        for turn in list(self._turns):
            if turn.boot == out.boot and turn.stopped(keys, out.at):
                turn.end(out, turn.work.conclusion)

    def _asked(self, out: Folding, fact: Asked) -> None:
        if out.boot in self._lost:
            self._host.dropped["late"] += 1
        else:
            self._asking.asked(out, fact)

    def _done(self, out: Folding, fact: Done) -> None:
        self._asking.done(out, fact)

    # ── small things ──

    def _forget_turn(self, out: Folding, turn: Turn) -> None:
        """Its late facts have come (or it never began): let its facts go."""
        self._turns.forget(turn)
        self._quota.free(turn)
        self._release(out, turn.turn_id)

    def _release(self, out: Folding, owner: str) -> None:
        self._alarms.set(owner, None)
        out.gone.add(owner)
        out.released += self._host.retention.release(owner)


_TAKE: dict[type, Callable[..., None]] = {
    GatewayUp: Runs._gateway_up,
    GatewayDown: Runs._gateway_down,
    GatewayLost: Runs._gateway_lost,
    GatewayForgotten: Runs._gateway_forgotten,
    Unheard: Runs._unheard,
    wire.Injected: Runs._injected,
    wire.ProcessingStarted: Runs._processing_started,
    wire.ProcessingEnded: Runs._processing_ended,
    wire.LoopStopped: Runs._loop_stopped,
    wire.SessionReset: Runs._session_reset,
    wire.Sent: Runs._sent,
    wire.Edited: Runs._edited,
    wire.FileSent: Runs._file_sent,
    FileTaken: Runs._file_taken,
    wire.Running: Runs._running,
    wire.Inventory: Runs._inventory,
    wire.ApprovalAsked: Runs._asked,
    wire.ApprovalDone: Runs._done,
    wire.QuestionAsked: Runs._asked,
    wire.QuestionDone: Runs._done,
}
