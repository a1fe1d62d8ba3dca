"""`loomictl approvals` and `loomictl approve`: the owner's view of the ledger, and an answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from loomid.ctl import Asked, Failed, only, table
from loomid.terminal import span
from loomid.wire import CHOICES

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMAND_CHARS = 60


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one line of JSON.")
@click.pass_obj
def approvals(asked: Asked, as_json: bool) -> None:
    """List the approvals that wait, and the last that were decided."""
    found = asked.listed("approvals", as_json, "Hermes has asked for nothing yet.")
    if found:
        head = ("APPROVAL", "STATE", "CHOICE", "BY", "WHEN", "ENDS", "TASK", "COMMAND")
        named = asked.namer()
        table(head, [_approval_row(one, named) for one in found])


def _approval_row(one: dict[str, Any], named: Callable[[str | None], str]) -> tuple[str, ...]:
    when = one["ended_at"] or one["claimed_at"] or one["asked_at"]
    deadline = one["deadline_ts"] if one["ended_at"] is None else None
    command = " ".join(one["command"].split())
    return (
        one["approval_id"],
        one["state"],
        one["choice"] or one["answer"] or "-",
        named(one["by"]),
        f"{span(time.time() - when)} ago",
        "-" if deadline is None else f"in {span(deadline - time.time())}",
        one["task_id"] or "-",
        command if len(command) <= _COMMAND_CHARS else command[:_COMMAND_CHARS] + "…",
    )


@click.command()
@click.argument("approval")
@click.argument("choice", metavar="CHOICE", type=click.Choice(CHOICES))
@click.pass_obj
def approve(asked: Asked, approval: str, choice: str) -> None:
    """Answer APPROVAL (its id or the beginning of it) with CHOICE, as a phone would."""
    found = only(asked.call("GET", "/approvals")["approvals"], "approval", approval)
    target = f"/approvals/{quote(found['approval_id'], safe='')}"
    ended = asked.call("POST", target, body={"choice": choice})["approval"]
    if ended["state"] == "claimed":
        click.echo("Accepted; Hermes has not said yet what became of it.")
    elif ended["state"] in ("pending", "shown"):
        raise Failed("the answer did not reach Hermes: the approval waits again")
    elif ended["state"] == "applied" and ended["choice"] == choice:
        click.echo(f"Applied: {choice}.")
    else:
        raise Failed(
            f"Hermes says otherwise: {ended['state']}, {ended['choice']} by {ended['decided_by']}"
        )
