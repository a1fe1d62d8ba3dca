"""Answers to questions as phones give them, right and wrong, and how two are compared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

CANCELS = "null"
MARK = " (Recommended)"


def said(answers: list[dict[str, Any]] | None) -> str:
    """What was answered, by labels; the same for the same answer. None: it was cancelled."""
    if answers is None:
        return CANCELS
    each = [(sorted(one["selected"]), (one.get("custom") or "").strip()) for one in answers]
    return json.dumps(each)


def placed(cards: list[dict[str, Any]], answers: list[dict[str, Any]] | None) -> str:
    """The same of what the host was told: places of its own choices."""
    if answers is None:
        return CANCELS
    named = []
    for card, one in zip(cards, answers, strict=True):
        labels = [card["choices"][place].removesuffix(MARK) for place in one["selected"]]
        named.append({**one, "selected": labels})
    return said(named)


def right(questions: list[dict[str, Any]], rng: Random) -> list[dict[str, Any]]:
    """An answer to each."""
    return [_right(question, rng) for question in questions]


def _right(question: dict[str, Any], rng: Random) -> dict[str, Any]:
    labels = [option["label"] for option in question["options"]]
    if question["multi_select"]:
        own, chosen = rng.random() < 0.5, rng.sample(labels, rng.randint(0, len(labels)))
    else:
        own = not labels or rng.random() < 0.3
        chosen = [] if own else [rng.choice(labels)]
    answer = {"id": question["id"], "selected": chosen}
    return answer | {"custom": f" words {rng.randrange(10**6)}, 1\n"} if own else answer


def wrong(questions: list[dict[str, Any]], rng: Random) -> list[dict[str, Any]]:
    """What is no answer to them."""
    first, *more = right(questions, rng)
    labels = [option["label"] for option in questions[0]["options"]] or ["x"]
    faults: list[list[dict[str, Any]]] = [
        more,
        [first, *more, first],
        [*more, first | {"id": "q99"}],
        [first | {"selected": [labels[0], labels[0]]}, *more],
        [first | {"selected": [f"no {labels[0]}"]}, *more],
        [first | {"custom": " \n"}, *more],
    ]
    if more:
        faults.append([*more, first])
    return rng.choice(faults)
