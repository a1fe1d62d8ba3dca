"""What must survive a lost connection: facts not yet acknowledged, and results of commands.

No thread and no socket; the link thread alone uses it.
"""

import time
from collections import Counter, OrderedDict, deque

from .wire import UNSENT_RESULTS, Message, dump

# Some ten minutes of a fast stream, or hours of ordinary turns, and what a gateway of
# 100-200 MiB can spare. A fact takes so much beside its text.
MOST_BYTES, OVERHEAD = 32 << 20, 1_000
# As many as a thousand phones may have on their way when loomid is killed; what only reads
# may run again, and nobody asks what became of it.
RESULTS_KEPT, READS = 16_384, ("running", "sessions")

# What is dropped first when there is no room. What loomid needs to end runs and to keep
# promises goes last; all else is a preview: it makes a run nicer to watch, its loss shows at
# most as a missing line.
DELTA, PREVIEW, LASTING = range(3)
REASONS = ("overflow_delta", "overflow_preview", "overflow_lasting")
RANKS = {"delta": DELTA, "edited": DELTA}
RANKS |= dict.fromkeys(("approval.asked", "approval.done", "turn.answered", "turn.ended"), LASTING)
RANKS |= dict.fromkeys(("question.asked", "question.done"), LASTING)
RANKS |= dict.fromkeys(("stream.ended", "api.failed", "loop.stopped", "session.reset"), LASTING)
RANKS |= dict.fromkeys(("processing.ended", "sent", "file.sent", "inventory"), LASTING)


class Backlog:
    """Numbers facts 1, 2, … and keeps them until they are acknowledged or must go.

    Numbers rise strictly and are never given twice; only what was dropped leaves a gap.
    """

    def __init__(self, boot: str, most_bytes: int = MOST_BYTES) -> None:
        self.facts: OrderedDict[int, tuple[int, bytes]] = OrderedDict()  # n → rank, message
        self.unsent: deque[int] = deque()  # on this connection
        self.dropped: Counter[str] = Counter()
        self.bytes = self.last = 0
        self._boot, self._most_bytes = boot, most_bytes

    def add(self, kind: str, t: float, body: Message) -> None:
        """Take a fact in; what cannot be encoded, or finds no room, is counted."""
        fact = [self.last + 1, t, kind, body]
        data = dump({"m": "facts", "boot": self._boot, "facts": [fact]})
        if not data:
            self.dropped["unsendable"] += 1
            return
        self.last += 1
        self.facts[self.last] = RANKS.get(kind, PREVIEW), data
        self.unsent.append(self.last)
        self.bytes += OVERHEAD + len(data)
        if self.bytes > self._most_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Drop the lowest rank first, each oldest first: some at once, as they are sorted."""
        for n in sorted(self.facts, key=lambda n: self.facts[n][0]):
            if self.bytes <= self._most_bytes * 15 // 16:
                break
            self.dropped[REASONS[self.facts[n][0]]] += 1
            self._forget(n)
        self.unsent = deque(n for n in self.unsent if n in self.facts)

    def _forget(self, n: int) -> None:
        self.bytes -= OVERHEAD + len(self.facts.pop(n)[1])

    def ack(self, n: int) -> None:
        """Every fact up to n is on loomid's disk."""
        while self.facts and next(iter(self.facts)) <= n:
            self._forget(next(iter(self.facts)))
        while self.unsent and self.unsent[0] <= n:
            self.unsent.popleft()

    def rewind(self) -> None:
        """A new connection: what is not acknowledged is to be sent again."""
        self.unsent = deque(self.facts)


class Orders:
    """Commands of loomid: each id runs at most once, and its result can be asked for again."""

    def __init__(self, boot: str) -> None:
        self.results: deque[bytes] = deque(maxlen=UNSENT_RESULTS)  # still to be sent
        self._boot = boot
        self._known: OrderedDict[str, bytes] = OrderedDict()  # id → result; empty: it still runs

    def take(self, order: Message) -> bool:
        """Whether a command is to run: it did not come before, is for this process and in time.

        What a recall asks for and never ran is remembered: should it come after all (from a
        connection that broke), it does not run.
        """
        known = self._known.get(order["id"])
        if known is not None:
            self.results.extend([known] if known else [])
            return False
        self._known[order["id"]] = b""
        if len(self._known) > RESULTS_KEPT:
            self._known.popitem(last=False)
        if order["m"] == "recall":
            self.settle({"id": order["id"], "error": "unknown_command"})
        elif order["boot"] != self._boot or order["deadline"] < time.time():
            self.settle({"id": order["id"], "error": "stale"})
        fresh = not self._known[order["id"]]
        if order.get("op") in READS:  # forgotten before it runs
            del self._known[order["id"]]
        return fresh

    def settle(self, result: Message) -> None:
        """The first result of an id counts."""
        if self._known.get(result["id"]):
            return
        failed = {"m": "result", "id": result["id"], "error": "failed", "detail": "unsendable"}
        self.results.append(dump({"m": "result", **result}) or dump(failed))
        if result["id"] in self._known:
            self._known[result["id"]] = self.results[-1]
