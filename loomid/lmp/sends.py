"""What Hermes sends to our chats: part of a run, or a notification (docs/hermes.md).

Everything a run says is sent to its chat as well, whether or not hooks told it
already. Texts are not stable (docs/hermes.md), so nothing here reads
their wording.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from loomid.lmp import ids
from loomid.lmp.frames import Notification, Origin
from loomid.lmp.preview import cut, title
from loomid.lmp.text import CURSOR, without_cursor

if TYPE_CHECKING:
    from loomid import wire
    from loomid.lmp.folding import Folding
    from loomid.lmp.host import Host
    from loomid.lmp.turns import Turn

AFTERMATH_S = 2.0
"""How long after a run failed or was cancelled the gateway may still remark on that."""


class Sends:
    """Tells sends that belong to a run from those that are news."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def sent(self, out: Folding, fact: wire.Sent, turns: list[Turn]) -> None:
        """A message. `turns`: those of its chat, live or lately ended, the latest first."""
        answered = self._host.inbox.get(fact.reply_to)
        if fact.job_id is not None:
            self._notify(out, fact.session_key, fact.text, "result", "cron")
        elif answered is not None and answered.mode == "command":
            if answered.origin == Origin():  # the /stop of a run.cancel: the run's end tells it
                self._host.dropped["stop_answered"] += 1
                return
            self._notify(out, fact.session_key, fact.text, "result", "command")
        elif any(self._belongs(out, fact, turn) for turn in turns):
            self._host.dropped["run_text_sent"] += 1
        elif fact.notify:
            self._notify(out, fact.session_key, fact.text, "result", "command")
        else:
            self._notify(out, fact.session_key, fact.text, "diagnostic", "gateway")

    def edited(self, out: Folding, fact: wire.Edited, turns: list[Turn]) -> None:
        """A message was replaced. Only its last edit is worth telling, if it is no run's."""
        text = without_cursor(fact.text)
        for turn in turns:
            if turn.live and turn.owns_message(fact.message_id):
                turn.preview(out, fact.message_id, text, final=fact.finalize)
                return
        if fact.finalize and not turns:
            self._notify(out, None, text, "diagnostic", "gateway")
        else:
            self._host.dropped["edit"] += 1

    def _belongs(self, out: Folding, fact: wire.Sent, turn: Turn) -> bool:
        """Whether this run says it, or it is the gateway's chatter about the run."""
        text = without_cursor(fact.text)
        flagged = fact.expect_edits or fact.notify or fact.interim
        if turn.live:
            # What is sent after a failed call tells of the failure.
            if flagged and turn.work.failure is None and self._host.edits_only(turn.boot):
                final = fact.notify or not fact.text.endswith(CURSOR)
                turn.preview(out, fact.message_id, text, final=final)
            chatter = turn.work.failure is not None or turn.work.tools.is_progress(text)
            return flagged or chatter or turn.said(text)
        if fact.expect_edits or turn.said(text):
            return True
        if fact.notify and fact.reply_to in turn.messages:
            return True
        ended_at = turn.run.ended_at or 0.0
        remark = turn.ending is not None and turn.ending.status != "completed"
        return remark and out.at - ended_at <= AFTERMATH_S

    def _notify(
        self,
        out: Folding,
        session_key: str | None,
        text: str,
        category: Literal["result", "diagnostic"],
        source: str,
    ) -> None:
        shown = cut(text.strip())
        if not shown.text:
            return
        payload = Notification(
            category=category,
            title=title(text),
            text=shown.text,
            source=source,
            requires_attention=False,
            truncated=shown.truncated or UNSET,
        )
        host = self._host
        task = session_key and ids.task_id(host.key, host.gateway_id, session_key)
        out.emit(payload, task_id=task or None)
