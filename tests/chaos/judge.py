"""Whether what the witness sees is what the host did: runs, approvals, questions and commands.

What loomid never had cannot be seen: facts in the memory of a killed host that loomid had not
acknowledged count as not emitted (the host's journal has the acknowledgements that it got).
What was told before the database was replaced, or the power went, may be lost: a turn or an
approval that began before then is not judged after it, except that it has one end at most.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.chaos import answers
from tests.support.view import RUN_ENDS, asked_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.frame import Frame
    from tests.chaos.journal import Asked, Truth, Turn
    from tests.chaos.trace import Violated
    from tests.support.view import Run

MARK = re.compile(r"«([0-9a-f]+\.\d+)»$")
IN_TEXT = re.compile(r"«([0-9a-f]+\.\d+)\.")
COMMAND = "rm -rf "
APPLIED = {"once": "once", "session": "session", "deny": "deny"}


class Judge:
    """Takes the witness' events; `truth` is the host's journal."""

    def __init__(self, truth: Truth, violated: Violated) -> None:
        self.truth = truth
        self.dead: set[str] = set()
        """Boots whose process was killed."""
        self.counts: Counter[str] = Counter()
        self._violated = violated
        self._line = 0  # of the journal: what began before may have been lost
        self._began: dict[str, str] = {}  # run → mark, in this era
        self._ended: set[str] = set()
        self._asked: dict[str, str] = {}  # approval or question → the host's id, in this era
        self._resolved: set[str] = set()
        self._names: dict[str, str] = {}  # the host's id of either → the phones'
        self._judged: set[str] = set()  # marks of turns that were seen to their end

    def new_era(self) -> None:
        """Events may have been lost now."""
        self.truth.read()
        self._line = self.truth.lines
        for turn in self.truth.turns.values():
            turn.said.clear()  # it is not judged any more
        self._began.clear()
        self._ended.clear()
        self._asked.clear()
        self._resolved.clear()

    def begin(self) -> None:
        """The witness' history begins here: what has ended by now, it may not tell."""
        self.truth.read()
        self._judged.update(mark for mark, turn in self.truth.turns.items() if turn.end_n)

    def event(self, frame: Frame, ended: Run | None) -> None:
        """The witness saw an event; `ended`: the run that it ended, as it was shown."""
        payload = frame.payload
        match frame.type:
            case "run.started":
                self._started(payload)
            case type_ if type_ in RUN_ENDS:
                self.truth.read()
                self._end(type_, payload, ended)
            case "approval.required":
                self._ask(payload, "a_" + payload["command"].removeprefix(COMMAND))
            case "question.required":
                self._ask(payload, "q_" + payload["questions"][0]["question"].split()[0])
            case "approval.resolved" | "question.resolved":
                self._decided(payload)

    # ── runs ────────────────────────────────────────────────────────────────

    def _started(self, payload: dict[str, Any]) -> None:
        found = MARK.search(payload.get("prompt", ""))
        run_id = payload["run_id"]
        if run_id in self._began:
            self._violated("twice", what="run.started", run_id=run_id)
        self._began[run_id] = found[1] if found else ""

    def _end(self, type_: str, payload: dict[str, Any], shown: Run | None) -> None:
        run_id = payload["run_id"]
        if run_id in self._ended:
            self._violated("twice", what="end of a run", run_id=run_id)
        self._ended.add(run_id)
        if run_id not in self._began or shown is None:
            return  # begun in an earlier era
        self._judge(self._began[run_id] or _mark_in(shown), type_, payload, shown)

    def _judge(self, mark: str, type_: str, payload: dict[str, Any], shown: Run) -> None:
        """Compare a run that has ended with what the host did."""
        turn = self.truth.turns.get(mark)
        if turn is None and (mark or not self._line):
            self._violated("unknown run", run_id=payload["run_id"])
        if turn is None or turn.line <= self._line:
            return  # begun in an earlier era, as far as the host is concerned
        self.counts["runs"] += 1
        self._judged.add(mark)
        status = "failed" if type_ == "run.failed" else payload["status"]
        lost = payload["error"] == "gateway_lost"
        if lost and self._was_whole(turn):
            self._violated("lost", what="the end of a run", mark=mark, end_n=turn.end_n)
        if (lost and turn.boot not in self.dead) or (not lost and status != turn.status):
            self._violated("wrong end", mark=mark, said=status, true=turn.status)
        self._texts(turn, shown, partly=lost)
        if not lost and shown.tools_done != turn.tools:
            self._violated("lost", what="tools", mark=mark, seen=shown.tools_done)
        last = turn.whole(max((call for call, _ in turn.said), default=0), "text")
        if status == "completed" and payload["text"] != last:
            self._violated("wrong text", mark=mark, **_difference(payload["text"], last))
        turn.said.clear()

    def _was_whole(self, turn: Turn) -> bool:
        """loomid had said that it has the end of this turn."""
        return 0 < turn.end_n <= self.truth.acked.get(turn.boot, 0)

    def _texts(self, turn: Turn, shown: Run, *, partly: bool) -> None:
        acked = self.truth.acked.get(turn.boot, 0) if partly else None
        for call, channel in turn.said:
            true, seen = turn.whole(call, channel), shown.text(call, channel)
            least = turn.whole(call, channel, acked)
            if not (true.startswith(seen) and seen.startswith(least)):
                where = {"turn": turn.turn_id, "call": call, "channel": channel}
                self._violated("wrong text", **where, **_difference(seen, true))

    # ── approvals and questions ─────────────────────────────────────────────

    def _ask(self, payload: dict[str, Any], name: str) -> None:
        self._asked[asked_id(payload)] = name
        self._names[name] = asked_id(payload)

    def _decided(self, payload: dict[str, Any]) -> None:
        name = asked_id(payload)
        if name in self._resolved:
            self._violated("twice", what="its end", asked=name)
        self._resolved.add(name)
        kind = "approvals" if "approval_id" in payload else "questions"
        self.counts[f"{kind} {payload['outcome']}"] += 1
        self.told(name, payload)

    def told(self, name: str, said: dict[str, Any]) -> None:
        """A phone was told what became of one: by an event, or for its late answer."""
        self.truth.read()
        asked = self.truth.asked.get(self._asked.get(name, ""))
        if asked is None or asked.line <= self._line or "outcome" not in said:
            return
        true = self._outcome(asked)
        is_true = true is not None and true.items() <= said.items()
        if said["outcome"] == "lost":
            had = 0 < asked.done_n <= self.truth.acked.get(asked.boot, 0)
            is_true = asked.boot in self.dead and not had
        elif asked.how == "answered" and "state" in said:  # a late answer hears which one counts
            counts = answers.said(said["answers"]) if "answers" in said else ""
            is_true = is_true and counts == asked.answer
        if not is_true:
            self._violated("wrong outcome", asked=name, said=said, true=true, answer=asked.answer)

    @staticmethod
    def _outcome(asked: Asked) -> dict[str, str] | None:
        """What the host says became of it; None: it still waits."""
        if asked.how is None:
            return None
        by = "local" if asked.command_id is None else "remote"
        if asked.cards is not None:
            return {"outcome": asked.how, "decided_by": "timeout" if asked.how == "timeout" else by}
        if asked.how in APPLIED:
            return {"outcome": "applied", "choice": APPLIED[asked.how], "decided_by": by}
        if asked.how == "timeout":
            return {"outcome": "expired", "choice": "deny", "decided_by": "timeout"}
        return {"outcome": "cancelled", "choice": "deny", "decided_by": by}

    # ── at the end ──────────────────────────────────────────────────────────

    def answers(self, given: dict[str, set[str]], restored_at: Sequence[int]) -> None:
        """`given`: what phones answered to each of them and were not told to be void.

        A database from before an answer calls it so, though it was carried out.
        """
        for name, asked in self.truth.asked.items():
            told = self._names.get(name)
            if asked.command_id is None or told is None:
                continue
            forgotten = asked.line <= max(restored_at, default=0)
            if not forgotten and asked.answer not in given.get(told, ()):
                self._violated("untrue answer", asked=told, true=asked.answer)

    def conclude(self, restored_at: Sequence[int]) -> None:
        """All is quiet: nothing that loomid acknowledged may be missing. `restored_at`: lines
        of the journal where earlier databases came."""
        self.truth.read()
        for mark, turn in self.truth.turns.items():
            of_dead = turn.boot in self.dead and not self._was_whole(turn)
            self.counts["turns gone with a host's memory"] += of_dead and turn.end_n > 0
            if turn.line > self._line and mark not in self._judged and not of_dead:
                self._violated("lost", what="run", mark=mark, boot=turn.boot, status=turn.status)
        for name in self._began.keys() - self._ended:
            self._violated("lost", what="the end of a run", run_id=name)
        for name in self._asked.keys() - self._resolved:
            self._violated("lost", what="the end of what was asked", asked=name)
        for command_id, ran in self.truth.commands.items():
            if len(ran) > 1:
                self._violated("ran twice", command_id=command_id, op=ran[0].op)
        self._answered_once(restored_at)
        self.counts["commands run"] = len(self.truth.commands)

    def _answered_once(self, restored_at: Sequence[int]) -> None:
        """At most one answer to each left loomid, as far as its database can know."""
        answered: dict[str, list[int]] = {}
        for ran in (one for commands in self.truth.commands.values() for one in commands):
            if ran.op in {"approve", "answer"}:
                answered.setdefault(asked_id(ran.args), []).append(ran.line)
        for name, lines in answered.items():
            if len(lines) > 1 + sum(lines[0] < line < lines[-1] for line in restored_at):
                self._violated("ran twice", what="an answer", asked=name, times=len(lines))


def _mark_in(shown: Run) -> str:
    """Of a run whose beginning was lost with an earlier era: what its texts say."""
    found = IN_TEXT.search(str(shown.items))
    return found[1] if found else ""


def _difference(seen: str, true: str) -> dict[str, Any]:
    """Where two texts part, and a little of both from there."""
    parted = (i for i, (a, b) in enumerate(zip(seen, true, strict=False)) if a != b)
    at = next(parted, min(len(seen), len(true)))
    return {"at": at, "said": seen[at : at + 80], "true": true[at : at + 80]}
