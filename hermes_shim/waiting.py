"""What waits behind a run. Hermes' own queue loses messages from the fifth on (docs/hermes.md),
so they wait here, and Hermes gets one at a time when nothing runs in their chat."""

import asyncio
from types import SimpleNamespace
from typing import Any

from .facts import state
from .wire import once

MOST = 32  # a chat
LOOK_S = 0.05


class Waiting:
    """The part of the adapter that has messages wait. All of it runs on the gateway's loop."""

    _loop: Any

    def _waiting(self, key: str) -> list[Any]:
        """What waits there, the next one first."""
        return state.waiting[key].events if key in state.waiting else []

    def _hurried(self, key: str) -> int:
        """How many of them interrupt."""
        return sum(event.first for event in self._waiting(key))

    def _wait(self, key: str, event: Any, *, first: bool) -> None:
        """Have a message wait behind the others; before those, if it is to interrupt the run."""
        if key not in state.waiting:
            task = asyncio.run_coroutine_threadsafe(_hand_over(key), self._loop)
            state.waiting[key] = SimpleNamespace(events=[], task=task, stopped=None)
        events, event.first = self._waiting(key), first
        events.insert(self._hurried(key) if first else len(events), event)

    def _forget(self, key: str) -> list[str]:
        """Drop what waits there; returns the message ids."""
        dropped = [event.message_id for event in self._waiting(key)]
        self._waiting(key).clear()
        return dropped

    def _turn_for(self, agent: Any, mode: str, key: str) -> Any:
        """The turn that the agent is at, if a text becomes part of that."""
        turn, can = turn_of(agent), getattr(agent, "_supports_active_turn_redirect", False) is True
        free = mode == "interrupt" and can and turn and not (turn.fresh or self._hurried(key))
        return turn if mode == "steer" or free else None


def turn_of(agent: Any) -> Any:
    """The turn that an agent is at, from its first hook to its last."""
    return state.turns.get(getattr(agent, "_current_turn_id", None))


def fold(turn: Any, agent: Any, mode: str, text: str) -> bool:
    """Have an agent break off and go on with a text in its turn (0.20, 0.22); in the midst of
    tools, and if that is the mode, it reads the text with their results. False: it cannot."""
    if mode == "steer":
        return bool(agent.steer(text))
    # Until it has asked with this text a second one would become part of it, or an interrupt
    # would take it back.
    turn.fresh = not agent._executing_tools
    done = bool(agent.redirect(text))
    turn.fresh &= done
    return done


def _stop(waiting: Any, agent: Any) -> None:
    """Have an agent end its turn, that one alone, for what waits. It is told no text: Hermes
    would make a turn of that, too."""
    turn = turn_of(agent)
    if turn and not (turn.fresh or turn.stopped):
        waiting.stopped = turn.stopped = agent
        agent.interrupt()
        if turn_of(agent) is not turn:  # it ended meanwhile
            agent.clear_interrupt()


async def _hand_over(key: str) -> None:
    """Begin the turns of what waits there, one by one, with the adapter of the moment."""
    events = (waiting := state.waiting[key]).events
    while events:
        await asyncio.sleep(LOOK_S)
        try:
            state.adapter._heal_stale_session_lock(key)
            idle = await state.adapter._idle(key)
            if not idle and events and events[0].first:
                _stop(waiting, state.adapter.gateway_runner._running_agents.get(key))
            elif idle and events and state.adapter._takes(key):
                if waiting.stopped:  # of a turn that failed there was no end to clear it
                    waiting.stopped.clear_interrupt()
                state.adapter._start_session_processing(events.pop(0), key)
        except Exception as error:  # noqa: BLE001 - what waits behind must not be stuck for it
            once(f"a message that waited met an error of Hermes: {type(error).__name__}")
    del state.waiting[key]
