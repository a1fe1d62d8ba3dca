"""What Hermes asks its user: the clarify tool's cards, and confirmations of slash commands.

Each question becomes a fact with the labels Hermes gives; an answer names them by their place.
0.22 shows the cards of one call one after another: the phones get all at once, and the answers
of the later ones wait here for their card.
"""

import asyncio
import json
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from gateway.platforms.base import SendResult
from tools import clarify_gateway, clarify_tool, slash_confirm

from .facts import answered, ended, state
from .wire import Message

# 0.19 and 0.20 have no word for it: an empty answer is none.
CANCELLED = getattr(clarify_gateway, "CANCELLED", "")
POLL_S = 0.5  # how often we look whether a confirmation still waits


class Questions:
    """The part of the adapter that asks. All of it runs on the gateway's event loop."""

    send: Any

    async def send_clarify(
        self, chat_id: str, question: str, choices: Any, clarify_id: str, session_key: str, **_: Any
    ) -> Any:
        """A card: the first of its call is told, for a later one the answer may be here."""
        entry = clarify_gateway._entries.get(clarify_id)
        if entry is None:  # the session was cleared meanwhile
            return SendResult(success=False)
        call = state.clarify.get(session_key) or SimpleNamespace(kw={}, asked=None)
        first = call.asked is None
        if first:
            card = {"question": question, "choices": choices, "multi_select": False}
            card["multi_select"] = getattr(entry, "multi_select", False)
            call.asked = self._ask("clarify", session_key, entry, _cards(call.kw, card), call.kw)
        asked = call.asked
        asked.entry, asked.card = entry, asked.card + 1
        if first and not call.kw:  # no hook told of its call, so none will tell of its end
            self._look(asked)
        if asked.answers and asked.card < len(asked.answers):
            _settle(entry, asked.answers[asked.card])
        return SendResult(success=True)

    async def send_slash_confirm(
        self, chat_id: str, title: str, message: str, session_key: str, confirm_id: str, **_: Any
    ) -> Any:
        """Hermes asks before a slash command; its handler tells us what was chosen, by whom."""
        with slash_confirm._lock:
            entry = slash_confirm._pending.get(session_key)
            if not entry or entry["confirm_id"] != confirm_id:
                return SendResult(success=False)
            card = {"question": message, "choices": ["once", "always", "cancel"]}
            cards, run = [card | {"multi_select": False}], entry["handler"]
            asked = self._ask("confirm", session_key, entry, cards, {}, title)
            asked.chat_id, asked.reply_to = chat_id, state.commands.get(session_key)

            async def decided(choice: str) -> Any:
                ended(asked, "cancelled" if choice == "cancel" else "answered")
                return await run(choice)

            entry["handler"] = decided
        self._look(asked)
        return SendResult(success=True)

    def _look(self, asked: Any) -> None:
        """Nobody says when a confirmation is dropped, or too old."""
        if _waits(asked):
            asyncio.get_running_loop().call_later(POLL_S, self._look, asked)
        elif asked.kind == "clarify":
            answered(asked)
        else:
            stale = slash_confirm.clear_if_stale(asked.key)
            ended(asked, "timeout" if stale else "cancelled")

    def _ask(self, kind: str, key: str, entry: Any, cards: Any, kw: Any, title: str = "") -> Any:
        asked = SimpleNamespace(id=f"q{next(state.serial)}", kind=kind, key=key, cards=cards)
        asked.answers, asked.command, asked.card, asked.entry = None, None, -1, entry
        state.questions[asked.id] = asked
        wait = clarify_gateway.get_clarify_timeout()
        timeout = wait if kind == "clarify" else slash_confirm.DEFAULT_TIMEOUT_SECONDS
        told = {"question_id": asked.id, "source": kind, "session_key": key, "title": title}
        told |= {name: kw.get(name) for name in ("turn_id", "session_id", "tool_call_id")}
        state.link.emit("question.asked", {**told, "questions": cards, "timeout_s": timeout})
        return asked

    def _drop(self, key: str) -> None:
        """All releases stop an agent, but not the wait of its tool, for up to an hour."""
        for asked in list(state.questions.values()):
            if asked.kind == "clarify" and asked.key == key:
                _settle(asked.entry, CANCELLED)

    async def _op_answer(
        self, _id: str, question_id: str, answers: Any = None, **_: Any
    ) -> Message:
        """Answer all of a question, each card by the places of its choices and a text of one's
        own; without answers it is cancelled."""
        asked = state.questions.get(question_id)
        if not asked or asked.answers:
            return {"error": "not_pending"}
        if asked.kind == "confirm":
            return await self._confirm(asked, answers, _id)
        try:
            said = [_said(*both) for both in zip(asked.cards, answers or (), strict=bool(answers))]
        except (LookupError, TypeError, ValueError):
            return {"error": "bad_args"}
        with clarify_gateway._lock:
            if not _settle(asked.entry, said[asked.card] if said else CANCELLED):
                return {"error": "not_pending"}
            asked.answers, asked.command = said or [CANCELLED] * len(asked.cards), _id
        return {"value": {"applied": True}}

    async def _confirm(self, asked: Any, answers: Any, command: str) -> Message:
        choice = asked.cards[0]["choices"][answers[0]["selected"][0]] if answers else "cancel"
        if not _waits(asked):
            return {"error": "not_pending"}
        asked.answers, asked.command = [choice], command
        # No await since we looked: it is still there.
        said = await slash_confirm.resolve(asked.key, asked.entry["confirm_id"], choice)
        if said:
            await self.send(asked.chat_id, said, asked.reply_to)
        return {"value": {"applied": True}}


def _cards(kw: Message, card: Message) -> Any:
    """All that its call asks, where that can be told from its arguments (0.22)."""
    args: Any = kw.get("args")
    with suppress(Exception):
        found, _ = clarify_tool._normalize_questions(args["questions"])
        names = ("question", "choices", "multi_select")
        return [{name: one[name] for name in names} for one in found]
    return [card]


def _said(card: Message, answer: Message) -> str:
    """An answer as Hermes wants it: a choice as it shows it, or several as JSON."""
    chosen = [card["choices"][place] for place in answer["selected"]]
    chosen += [answer["custom"]] if answer.get("custom") else []
    return json.dumps(chosen, ensure_ascii=False) if card["multi_select"] else chosen[0]


def _settle(entry: Any, said: str) -> bool:
    """Answer a card that waits. 0.19 would let a second answer take the first one's place."""
    with clarify_gateway._lock:
        waits = entry.clarify_id in clarify_gateway._entries and not entry.event.is_set()
        return bool(waits and clarify_gateway.resolve_gateway_clarify(entry.clarify_id, said))


def _waits(asked: Any) -> bool:
    """Whether Hermes still waits."""
    if asked.kind == "clarify":
        return asked.entry.clarify_id in clarify_gateway._entries
    fresh = time.time() - asked.entry["created_at"] < slash_confirm.DEFAULT_TIMEOUT_SECONDS
    return fresh and slash_confirm._pending.get(asked.key) is asked.entry
