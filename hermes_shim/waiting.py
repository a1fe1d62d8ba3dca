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

    gateway_runner: Any
    _loop: Any
    _pending_messages: Any

    def _waiting(self, key: str) -> list[Any]:
        """What waits there, the next one first."""
        return state.waiting[key].events if key in state.waiting else []

    def _hurried(self, key: str) -> int:
        """How many of them interrupt."""
        return sum(event.first for event in self._waiting(key))

    def _wait(self, key: str, event: Any, agent: Any, *, first: bool) -> None:
        """Have a message wait behind the others; before those, if it is to interrupt the agent."""
        if key not in state.waiting:
            task = asyncio.run_coroutine_threadsafe(_hand_over(key), self._loop)
            state.waiting[key] = SimpleNamespace(events=[], task=task)
        events, event.first = self._waiting(key), first
        events.insert(self._hurried(key) if first else len(events), event)
        # An interrupt would take back the text that the agent is to go on with.
        if first and hasattr(agent, "interrupt") and not redirected(agent):
            if key not in self._pending_messages:  # alone there, nothing is lost
                self.gateway_runner._enqueue_fifo(key, events.pop(0), self)
            agent.interrupt(event.text)

    def _forget(self, key: str) -> list[Any]:
        """Drop what waits there, and return it."""
        events = self._waiting(key)
        dropped = events[:]
        events.clear()
        return dropped


def redirected(agent: Any) -> bool:
    """Whether it has yet to go on with a text (0.20, 0.22): a second one would become part of it,
    or nobody could tell that the first was taken up."""
    return getattr(agent, "_current_turn_id", None) in state.redirects


def redirect(agent: Any, text: str) -> bool:
    """Have it break off and go on with a text, if it can."""
    turn = agent._current_turn_id
    if not agent._executing_tools:  # else it reads the text with their results
        state.redirects.append(turn)
    done = bool(agent.redirect(text))
    if not done and turn in state.redirects:
        state.redirects.remove(turn)
    return done


async def _hand_over(key: str) -> None:
    """Begin the turns of what waits there, one by one, with the adapter of the moment."""
    events = state.waiting[key].events
    while events:
        await asyncio.sleep(LOOK_S)
        try:
            state.adapter._heal_stale_session_lock(key)
            idle = await state.adapter._idle(key)
            if idle and events and state.adapter._takes(key):
                state.adapter._start_session_processing(events.pop(0), key)
        except Exception as error:  # noqa: BLE001 - what waits behind must not be stuck for it
            once(f"a message that waited met an error of Hermes: {type(error).__name__}")
    del state.waiting[key]
