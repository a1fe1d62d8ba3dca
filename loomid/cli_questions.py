"""`loomictl questions` and `loomictl answer`: what Hermes asks, and an answer from here."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import click
import msgspec

from loomid.ctl import Asked, Failed, only, say
from loomid.lmp.question_frames import Question
from loomid.lmp.questions import typed
from loomid.terminal import count, span

OWNER = "loomictl"
"""Who an answer from here is by."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_obj
def questions(asked: Asked, as_json: bool) -> None:
    """List the questions that wait, with their options, and how the last ones ended."""
    found = asked.listed("questions", as_json, "Hermes has asked for nothing yet.")
    named = asked.namer() if found else str
    for one in found:
        when = one["ended_at"] or one["claimed_at"] or one["asked_at"]
        by = f" by {named(one['by'])}" if one["by"] else ""
        say(f"{one['question_id']}  {one['state']}{by}, {span(time.time() - when)} ago")
        for question in one.get("questions") or [{"question": one["question"], "options": []}]:
            _show(question)


def _show(question: dict[str, Any]) -> None:
    several = "  (several may be chosen)" if question.get("multi_select") else ""
    for number, line in enumerate(question["question"].splitlines() or [""]):
        say(f"  {line}{several if number == 0 else ''}")
    for number, option in enumerate(question["options"], 1):
        say(f"    {number}. {option['label']}")


@click.command()
@click.argument("question")
@click.argument("answers", nargs=-1)
@click.option("--cancel", is_flag=True, help="Give no answer: Hermes goes on without one.")
@click.pass_obj
def answer(asked: Asked, question: str, answers: tuple[str, ...], cancel: bool) -> None:
    """Answer QUESTION (its id or the beginning of it): one ANSWER for each question it asks.

    An ANSWER is an option's number or label, several with commas where several may be chosen,
    or words of your own.
    """
    if bool(answers) is cancel:
        raise click.UsageError("give the answers, or --cancel")
    found = only(asked.call("GET", "/questions")["questions"], "question", question)
    body = {} if cancel else {"answers": _answers(found.get("questions") or [], answers)}
    target = f"/questions/{quote(found['question_id'], safe='')}"
    ended = asked.call("POST", target, body=body)["question"]
    if ended["state"] == "claimed":
        click.echo("Accepted; Hermes has not said yet what became of it.")
    elif ended["state"] in ("pending", "shown"):
        raise Failed("the answer did not reach Hermes: the question waits again")
    elif ended["by"] == OWNER:
        click.echo(f"{ended['state'].capitalize()}.")
    else:
        raise Failed(f"Hermes says otherwise: {ended['state']} by {ended['decided_by']}")


def _answers(asked: list[dict[str, Any]], said: tuple[str, ...]) -> list[dict[str, Any]]:
    if asked and len(asked) != len(said):
        raise Failed(f"it asks for {count(len(asked), 'answer')}, given are {len(said)}")
    cards = msgspec.convert(asked, list[Question])
    try:
        answers = [typed(*both) for both in zip(cards, said, strict=False)]
    except ValueError as error:
        raise Failed(str(error)) from None
    return [msgspec.to_builtins(one) for one in answers]
