"""One Hermes turn: what its facts mean, in whatever order they come (docs/protocol.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loomid import wire
from loomid.lmp.attempts import DRAIN_S
from loomid.lmp.endings import Ending, failed
from loomid.lmp.facts import Deltas
from loomid.lmp.merging import Segment, kind_of
from loomid.lmp.run import Run, RunView
from loomid.lmp.script import Script
from loomid.lmp.start import Start
from loomid.lmp.work import WORK_FACTS, Work

if TYPE_CHECKING:
    from loomid.lmp.attempts import Attempt
    from loomid.lmp.folding import Folding
    from loomid.lmp.frames import Origin
    from loomid.lmp.host import Host
    from loomid.lmp.inbox import Message
    from loomid.lmp.script import Act

NEVER_STARTED_S = 120.0
"""How long facts are held of a turn whose beginning never comes."""
LINGER_S = 30.0
"""How long an ended turn is remembered with its texts, for sends that come late."""
HANDLER_GRACE_S = 5.0
"""How long a turn may go on whose message Hermes says it has done with."""
KEYLESS_FAILED_S = 120.0
"""How long a failed turn is given to go on, where nothing can be asked (cron)."""
SILENT_S = 6 * 3_600.0
"""When a silent turn counts as over of which nothing can be asked."""
RUNNING_EVERY_S = 2.0
STARTED_RACE_S = 1.0
"""A list of running keys may miss a turn that began while it was made."""
OWN_SILENT_S = 600.0
"""How long a turn of ours may say nothing until it is asked whether it still runs."""


class Turn:
    """One turn, from its first fact until its late facts have come."""

    def __init__(self, turn_id: str, boot: str, host: Host, at: float) -> None:
        self.turn_id = turn_id
        self.boot = boot
        self.run = Run(turn_id, host)
        self.start = Start()
        self.ending: Ending | None = None
        self.messages: dict[str, Message] = {}
        """The phones' messages that this turn answers, by id."""
        self.seen_at = at
        self.cause: tuple[float, float] | None = None
        """Of its newest fact, as events have it."""
        self.last_at = at
        self.segment = Segment()
        self._host = host
        self._handled_at: float | None = None
        self._linger_until: float | None = None
        self._files: set[str] = set()
        self._script = Script(
            self.run, self._redirected, host.dropped, streamed=not host.edits_only(boot)
        )
        self.work = Work(self.run, self.start, self._script, host.dropped)

    # ── what others ask ──

    @property
    def key(self) -> str | None:
        """The session key, where it is this turn's own."""
        return self.start.own_key

    @property
    def ours(self) -> bool:
        """A turn of our own platform."""
        return self.start.platform == wire.PLATFORM

    @property
    def live(self) -> bool:
        """Not over yet (perhaps not even begun)."""
        return self.run.live

    @property
    def has_own_handler(self) -> bool:
        """Hermes handles a message of this turn by itself, not inside an earlier one's."""
        return any(message.handled for message in self.messages.values())

    @property
    def can(self) -> tuple[str, ...]:
        """What a phone may ask of this run."""
        if self.key is None:
            return ()
        if self.ours:
            return ("cancel", "pause", "resume", "send")
        return ("cancel",) if self._host.can(self.boot, "cancel_foreign") else ()

    @property
    def ask_running_at(self) -> float | None:
        """When to ask whether this turn still runs: a foreign one may end without a fact, and
        the end of one of ours may be lost."""
        if not self.run.begun or not self.live or self.key is None:
            return None
        if self.ours:
            return self.last_at + OWN_SILENT_S
        return self.last_at if self.work.failure else self.last_at + RUNNING_EVERY_S

    @property
    def span(self) -> tuple[float, float]:
        """When the first of its hooks was called and when the newest, on Hermes' clock."""
        return self.start.t, self.start.t if self.cause is None else self.cause[0]

    def stopped(self, keys: list[str], at: float) -> bool:
        """Whether it is over, as those are the keys whose agents run."""
        if not self.live or not self.run.begun or self.key is None or self.key in keys:
            return False
        if self.ours and self.work.failure is None:
            return at - self.last_at >= OWN_SILENT_S
        return at - self.seen_at >= STARTED_RACE_S

    @property
    def due(self) -> float | None:
        """When this turn wants to be woken."""
        if not self.live:
            return self._linger_until
        if not self.run.begun:
            known = self.start.known_at
            return self.seen_at + NEVER_STARTED_S if known is None else known + DRAIN_S
        times = (self.run.due, self._script.drained_at(), self._silent_until())
        return min((t for t in times if t is not None), default=None)

    @property
    def view(self) -> RunView:
        """Its run as commands see it."""
        return RunView(
            run_id=self.run.run_id,
            task_id=self.run.task_id,
            turn_id=self.turn_id,
            session_key=self.key,
            surface=self.start.platform,
            can=self.can if self.live else (),
            active=self.live,
        )

    def said(self, text: str) -> bool:
        """Whether the run told this text already, or the beginning of it."""
        text = text.strip()
        told = (iteration.text.text for iteration in self.run.iterations)
        return any(t and (t.startswith(text) or text.startswith(t)) for t in told)

    def owns_message(self, message_id: str) -> bool:
        """Whether that message of the gateway shows this run's text (0.19)."""
        return any(i.message == message_id for i in self.run.iterations)

    # ── facts with this turn's id ──

    def take(self, out: Folding, fact: object) -> None:
        """One of TURN_FACTS."""
        out.touched.add(self.turn_id)
        if self.run.due is not None and out.at >= self.run.due:
            self.run.flush(out)
        self.last_at = out.at
        self.cause = out.cause
        self._take(out, fact)
        self._go(out)
        if type(fact) is wire.Delta:
            self._merge(out)
        elif type(fact) is Deltas:
            self.run.outgoing.resume(kind_of(fact), fact.next_at)

    def _take(self, out: Folding, fact: object) -> None:
        if isinstance(fact, wire.TurnStarted):
            self._turn_started(out, fact)
        elif isinstance(fact, wire.TurnEnded):
            self.end(out, self.work.ending(fact))
        else:
            self.work.take(out, fact)

    def _merge(self, out: Folding) -> None:
        """After a delta: have it stored as one with those before it, where that may be."""
        out.merge = self.segment.add(out.arrival, self.work.attempts.last, self.run.outgoing)
        if out.merge is not None:
            out.released += self._host.retention.drop(self.turn_id, self.segment.take_ticks())

    def _turn_started(self, out: Folding, fact: wire.TurnStarted) -> None:
        if not self.start.turn_started(fact, out):
            self._host.dropped["duplicate"] += 1
        elif self.ours and self.key is not None:
            message = self._host.inbox.for_turn(self.key, fact.text)
            if message is not None:
                self.start.origin = self._adopt(message)
                if message.origin.attachments:  # before it Hermes writes what it makes of them
                    self.start.text = message.text

    # ── what concerns the turn without carrying its id ──

    def wake(self, out: Folding) -> None:
        """An alarm of this turn is due."""
        out.touched.add(self.turn_id)
        if self.run.due is not None and out.at >= self.run.due:
            self.run.flush(out)
        silent = self._silent_until()
        if self.run.begun and silent is not None and out.at >= silent:
            self.end(out, self.work.conclusion)
        self._go(out)

    def input(self, out: Folding, text: str, origin: Origin) -> None:
        """A phone's message was folded into this running turn."""
        out.touched.add(self.turn_id)
        self._script.after(out, None, lambda then: self.run.input(then, text, origin))
        self._go(out)

    def asks(self, out: Folding, name: str, event: Act, *, pending: bool) -> None:
        """An approval or question of this turn was asked or decided; `event` tells of it."""
        out.touched.add(self.turn_id)

        def tell(then: Folding) -> None:
            self.run.flush(then)
            event(then)
            self.run.waits(then, name, pending=pending)

        if self.live and self.run.begun:
            self._script.after(out, None, tell)
            self._go(out)
        else:
            tell(out)
            if self._linger_until is None and self.run.ended_at is not None:
                self._linger(out)

    def file(self, out: Folding, message_id: str, event: Act | None) -> None:
        """A file of this turn is being taken in; or that is over, and `event` tells of it."""
        out.touched.add(self.turn_id)
        if event is None:
            self._files.add(message_id)
        else:
            self._files.discard(message_id)
            self._tell_file(out, event)
        if not self.live:
            self._linger(out)

    def _tell_file(self, out: Folding, event: Act) -> None:
        def tell(then: Folding) -> None:
            self.run.flush(then)
            event(then)

        if self.live:
            self._script.after(out, None, tell)
            self._go(out)
        else:
            event(out)

    def preview(self, out: Folding, message_id: str, text: str, *, final: bool) -> bool:
        """A message of the gateway that shows this run's text (0.19); False: it does not."""
        known = (i for i in self.run.iterations if i.message == message_id)
        iteration = next(known, None) or self.run.iteration_of(text)
        if iteration is None:
            return False
        out.touched.add(self.turn_id)
        self.last_at = out.at
        iteration.message = message_id
        if not iteration.certain:
            self.run.show(out, iteration, "text", iteration.text.preview(text, final=final))
        if final and self.ending is not None:
            self.work.conclude(out)
        self._go(out)
        return True

    def unheard(self, out: Folding) -> None:
        """Nobody has listened until now: its silence begins here."""
        if not self.live:
            return
        out.touched.add(self.turn_id)
        if self.run.begun:
            self.last_at = out.at
        else:
            self.seen_at = out.at

    def handler_done(self, out: Folding) -> None:
        """Hermes is done with the message that this turn answers."""
        out.touched.add(self.turn_id)
        if self.work.failure is not None:
            self.end(out, failed(self.work.failure))
        elif self._handled_at is None:
            self._handled_at = out.at

    def end(self, out: Folding, ending: Ending) -> None:
        """The turn is over; the run ends when all that came before was told."""
        out.touched.add(self.turn_id)
        if self.ending is None and self.live:
            self.ending = ending
            self._script.finish(out, self._tell_end)
            self._go(out)

    def abandon(self, out: Folding, error: str) -> None:
        """The gateway's process is gone: nothing more will come."""
        out.touched.add(self.turn_id)
        if self.ending is None:
            self.ending = Ending("failed", error=error)
            self._script.finish(out, self._tell_end)
        self._go(out, force=True)

    # ── telling ──

    def _go(self, out: Folding, *, force: bool = False) -> None:
        """Tell what can be told now."""
        if self.live and (self.run.begun or self._begin(out, force=force)):
            self._script.go(out, force=force)

    def _begin(self, out: Folding, *, force: bool) -> bool:
        """Start the run, once enough is known or nothing more need be waited for."""
        known = self.start.known_at
        if known is None:
            return False
        if self.start.complete or self.ending is not None or force or out.at >= known + DRAIN_S:
            self.run.begin(out, self.start, self.can)
        return self.run.begun

    def _redirected(self, out: Folding, _before: Attempt, _attempt: Attempt) -> None:
        """The same call asked again without an error: a message was folded in."""
        if self.ours and self.key is not None:
            message = self._host.inbox.for_redirect(self.key)
            if message is not None:
                self.run.input(out, message.text, self._adopt(message))

    def _tell_end(self, out: Folding) -> None:
        self.run.end(out, self.ending or self.work.conclusion, self.work.answer)
        self._script.clear()
        self._linger(out)

    def _linger(self, out: Folding) -> None:
        """Remember the turn a while longer, and as long as it has an approval or file pending."""
        pending = self.run.waiting_for or self._files
        self._linger_until = None if pending else out.at + LINGER_S

    def _adopt(self, message: Message) -> Origin:
        """The message is part of this turn now, and kept as long as the turn is."""
        self.messages[message.message_id] = message
        self._host.retention.adopt(self.turn_id, message.owner)
        return message.origin

    def _silent_until(self) -> float | None:
        """When a turn that Hermes says nothing more of counts as over; None: that is asked."""
        if self.ending is not None:
            return None
        if self._handled_at is not None:
            return max(self._handled_at, self.last_at) + HANDLER_GRACE_S
        if self.key is None and self.work.failure is not None:
            return self.last_at + KEYLESS_FAILED_S
        return self.last_at + SILENT_S if self.key is None else None


TURN_FACTS = WORK_FACTS | {wire.TurnStarted, wire.TurnEnded}
