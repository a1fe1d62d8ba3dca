"""What a device may ask for: its scopes, and the one table of what each request needs.

`view` is part of every other scope. An acting request of a later kind that is missing in
NEEDS fails `tests/lmp/test_scopes.py`, and nobody can use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from loomid.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loomid.lmp.payload import Payload

Scope = Literal["view", "send", "approve", "admin"]
Scopes = tuple[Scope, ...]
"""In the order of ALL, always with `view`."""

ALL: Scopes = get_args(Scope)
DEFAULT: Scopes = ("view", "send", "approve")
"""Of a phone that is paired without a word about it."""

CHAT_COMMANDS = frozenset(
    """bg btw branch compact compress commands fork help new q queue reset status steer stop
    title undo usage version whoami""".split()  # noqa: SIM905
)
"""Commands of Hermes that touch the conversation they are sent to, and nothing beyond. All
releases have them: a word that one has not may be a command of its user's own. Not `retry` and
`goal`: without our plugin, Hermes takes what they send once more, or later, for a command if it
looks like one, and 0.19 perhaps for the answer to a confirmation."""


def _message(asked: Any) -> Scope:  # noqa: ANN401 - a SessionSend
    """Of `session.send`: Hermes has commands that approve, and some that change the gateway."""
    if not asked.command:
        return "send"
    word, *more = asked.text.lower().split() or [""]
    if any("/" in one[:1] or one.startswith("@") for one in more):
        return "admin"  # a text in it may be taken for a command when its turn comes
    if word in ("/approve", "/deny"):
        return "approve"
    return "send" if word.removeprefix("/") in CHAT_COMMANDS else "admin"


def _by_weight(asked: Any) -> Scope:  # noqa: ANN401 - a payload with `weighty`
    """Of what changes one task, or (`weighty`) all of them, or takes a safeguard away."""
    return "admin" if asked.weighty else "send"


NEEDS: dict[str, Scope | Callable[[Any], Scope]] = {
    "session.send": _message,
    "run.cancel": "send",
    "run.pause": "send",
    "run.resume": "send",
    "approval.resolve": "approve",
    "question.answer": "approve",
    "question.cancel": "approve",
    "task.list": "view",
    "task.history": "view",
    "task.search": "view",
    "task.stats": "view",
    "task.new": "send",
    "task.rename": "send",
    "task.fork": "send",
    "task.continue": "send",
    "host.info": "view",
    "model.list": "view",
    "model.set": _by_weight,
    "mode.get": "view",
    "mode.set": _by_weight,
    "command.list": "view",
    "attachment.get": "view",
    "device.update": "view",
}
"""Request type → the scope that it needs; a function where its payload decides."""


def needed(type_: str, payload: Payload) -> Scope:
    """The scope that a request needs. Raises KeyError for a type that NEEDS does not have."""
    need = NEEDS[type_]
    return need(payload) if callable(need) else need


def permit(held: Scopes, needs: Scope) -> None:
    """Raise NotPermitted unless a device that holds these scopes has this one."""
    if needs not in held:
        raise NotPermitted(
            "This device may not do that; 'loomictl devices scope' can allow it.",
            reason="scope",
            needs=needs,
            scopes=list(held),
        )


def parse(words: Iterable[str]) -> Scopes:
    """Scopes as people write them, each word perhaps several with commas between.

    Raises ValueError, which says what could be written.
    """
    asked = {word.strip().lower() for text in words for word in text.split(",")} - {""}
    if not asked or not asked <= set(ALL):
        raise ValueError(f"some of {', '.join(ALL)} are needed, and nothing else")
    return known(asked)


def parse_json(value: object) -> Scopes:
    """The same of a list in JSON."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ValueError("a list of scopes is needed")
    return parse(value)


def known(words: Iterable[str]) -> Scopes:
    """Those of the words that are scopes: a later version may have written more."""
    held = {"view", *words}
    return tuple(scope for scope in ALL if scope in held)
