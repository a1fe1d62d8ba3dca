"""Answers to approvals: who may give which (LMP §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomid.errors import BadChoice, NotPermitted
from loomid.lmp.frames import ApprovalResolve, ApprovalResolveResult
from loomid.wire import CHOICES

if TYPE_CHECKING:
    from typing import Any

    from loomid.lmp.asks import AskView
    from loomid.lmp.decisions import Claim
    from loomid.lmp.requests import Reply


def order(view: AskView, answer: ApprovalResolve) -> tuple[str, dict[str, Any], str]:
    """The operation, its arguments, and what the ledger keeps of this answer.

    Raises NotPermitted or BadChoice.
    """
    if not view.answerable:
        raise NotPermitted(reason="not_answerable")
    offered = [word for word in view.choices if word in CHOICES]
    if answer.choice not in offered:
        raise BadChoice(choices=offered)
    args = {"approval_id": view.shim_id, "choice": answer.choice}
    if answer.reason is not None:
        args["reason"] = answer.reason
    return "approve", args, answer.choice


def accepted(claim: Claim) -> Reply:
    """What the phone hears when its answer won."""
    payload = ApprovalResolveResult(
        request_id=claim.request_id,
        approval_id=claim.id,
        choice=claim.answer,
        state="accepted",
    )
    return "approval.resolve.result", payload
