"""Questions: what phones are shown of Hermes' cards, and what is an answer to them (LMP §5).

Labels are shown without what Hermes adds to them, and no two of a question are alike; an
answer goes back by the places of what was chosen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from loomid.errors import BadAnswer
from loomid.lmp.frames import (
    Answer,
    Option,
    Question,
    QuestionAnswer,
    QuestionCancel,
    QuestionResult,
)
from loomid.lmp.preview import cut, head_and_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loomid import wire
    from loomid.lmp.asks import AskView
    from loomid.lmp.decisions import Claim
    from loomid.lmp.requests import Reply

CONFIRM = "confirm"
LABEL_CHARS = 8_000
"""As many as 0.22 lets a choice have."""

_RECOMMENDED = re.compile(r"\s*\(recommended\)\s*$", re.IGNORECASE)
_PLAINLY = {"once": "Yes, this time", "always": "Yes, and never ask again", "cancel": "No"}
"""What the choices of a confirmation mean."""


def shown(fact: wire.QuestionAsked) -> list[Question]:
    """What phones are shown: a question a card, in their order."""
    return [
        _question(f"q{place}", card, fact.title, confirms=fact.source == CONFIRM)
        for place, card in enumerate(fact.questions)
    ]


def _question(id_: str, card: wire.Card, title: str, *, confirms: bool) -> Question:
    text, choices = head_and_tail(card.question), card.choices or []
    labels = [_PLAINLY.get(choice, choice) for choice in choices] if confirms else _labels(choices)
    return Question(
        id=id_,
        question=text.text,
        options=[Option(label=label) for label in labels],
        multi_select=card.multi_select and bool(labels),
        custom=not confirms,
        header=cut(title).text or UNSET,
        truncated=text.truncated or any(len(c) > LABEL_CHARS for c in choices) or UNSET,
    )


def _labels(choices: Sequence[str]) -> list[str]:
    """Clean, none empty and none like another."""
    labels: list[str] = []
    for place, choice in enumerate(choices):
        # Hermes marks the first one as the model's own pick; a lone choice is none.
        clean = _RECOMMENDED.sub("", choice) if place == 0 and len(choices) > 1 else choice
        label = base = cut(clean.strip(), LABEL_CHARS).text or str(place + 1)
        number = 2
        while label in labels:
            label, number = f"{base} ({number})", number + 1
        labels.append(label)
    return labels


# ── answers ─────────────────────────────────────────────────────────────────


def order(view: AskView, said: QuestionAnswer | QuestionCancel) -> tuple[str, dict[str, Any], str]:
    """The operation, its arguments, and what the ledger keeps of this. Raises BadAnswer."""
    answers = None if isinstance(said, QuestionCancel) else said.answers
    args: dict[str, Any] = {"question_id": view.shim_id, "answers": None}
    if answers is not None:
        args["answers"] = places(view.questions, answers)
    return "answer", args, msgspec.json.encode(answers).decode()


def places(questions: Sequence[Question], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """The answers as the shim takes them. Raises BadAnswer when they are not one to each of
    these questions, in their order."""
    if len(answers) != len(questions):
        raise BadAnswer(reason="count")
    ids = [question.id for question in questions]
    said = [answer.id for answer in answers]
    if said != ids:
        raise BadAnswer(reason="order" if sorted(said) == sorted(ids) else "ids")
    return [_placed(*both) for both in zip(questions, answers, strict=True)]


def _placed(question: Question, answer: Answer) -> dict[str, Any]:
    reason = _fault(question, answer)
    if reason is not None:
        raise BadAnswer(reason=reason, id=question.id)
    labels = [option.label for option in question.options]
    placed: dict[str, Any] = {"selected": [labels.index(label) for label in answer.selected]}
    return placed if answer.custom is None else {**placed, "custom": answer.custom.strip()}


def _fault(question: Question, answer: Answer) -> str | None:
    """Why this is no answer to that question."""
    selected, custom = answer.selected, answer.custom
    faults = {
        "unknown_label": not {option.label for option in question.options}.issuperset(selected),
        "duplicate": len(set(selected)) < len(selected),
        "one_choice": not question.multi_select and len(selected) > 1,
        "custom_not_allowed": custom is not None and not question.custom,
        "empty_custom": custom is not None and not custom.strip(),
        "custom_and_selected": custom is not None and bool(selected) and not question.multi_select,
        "nothing": custom is None and not selected and not question.multi_select,
    }
    return next((reason for reason, holds in faults.items() if holds), None)


def typed(question: Question, text: str) -> Answer:
    """What a person at a keyboard means: options by number or label, several with commas where
    several may be chosen; words of one's own. Raises ValueError for the number of no option."""
    labels = [option.label for option in question.options]
    parts = [part.strip() for part in text.split(",")] if question.multi_select else [text]
    chosen = [text] if text in labels else [_label(labels, part) for part in parts]
    if set(chosen) <= set(labels):
        return Answer(id=question.id, selected=chosen)
    return Answer(id=question.id, custom=text)


def _label(labels: Sequence[str], part: str) -> str:
    if not labels or part in labels or not part.isdecimal():
        return part
    if not 0 < int(part) <= len(labels):
        raise ValueError(f"there is no option {part}: they are 1 to {len(labels)}")
    return labels[int(part) - 1]


def accepted(claim: Claim) -> Reply:
    """What the phone hears when its answer won."""
    verb = "cancel" if claim.cancels else "answer"
    payload = QuestionResult(request_id=claim.request_id, question_id=claim.id, state="accepted")
    return f"question.{verb}.result", payload
