"""Random histories of one log and its phones: crashes, power loss, restored backups.

A phone never gets two contents under one number, and has every event exactly once
unless it was told `truncated`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from loomid.log import Gone, Log
from loomid.store import Store
from tests.support.log import push, replace_by_copy, text_of


class Phone:
    """One device with base 0: what it got, by number."""

    def __init__(self, at: int) -> None:
        self.seen = at
        self.got: dict[int, str] = {}
        self.since: list[str] = []  # texts since it was last truncated

    def receive(self, position: int, text: str) -> None:
        assert position > self.seen
        assert self.got.setdefault(position, text) == text
        self.seen = position


class History(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.place = Path(tempfile.mkdtemp())
        self.path = self.place / "loomid.db"
        self.backup: tuple[Path, list[str]] | None = None
        self.kernel = 0
        self.later = 0.0
        self.count = 0
        self.phones: list[Phone] = []
        self.texts: list[str] = []  # what the log has shown, in this history
        self.start()
        self.pair()

    def clock(self) -> float:
        return time.time() + self.later

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def start(self) -> None:
        self.later += 2.0  # nobody restores a database within a second of a crash
        self.store = self.run(Store.open(self.path, self.clock))
        opening = Log.open(self.store, window=512, clock=self.clock, boot_id=str(self.kernel))
        self.log = self.run(opening)

    def stop(self, *, clean: bool) -> None:
        if clean:
            self.run(self.log.close())
        self.run(self.store.close())

    @rule()
    def pair(self) -> None:
        if len(self.phones) < 4:
            phone = Phone(self.log.visible)
            phone.since = list(self.texts)
            self.phones.append(phone)

    @rule(count=st.integers(1, 5), controls=st.integers(0, 3))
    def push(self, count: int, controls: int) -> None:
        self.connect(0, 0)
        texts = [f"{self.count + i}" for i in range(count)]
        self.count += count

        async def both() -> list[int]:
            async with asyncio.TaskGroup() as group:
                group.create_task(push(self.log, *texts))
                await asyncio.sleep(0)
                return [self.log.take_position() for _ in range(controls)]

        for position in self.run(both()):
            self.live(self.phones[0])
            self.phones[0].receive(position, "control")
        self.texts += texts

    @rule(many=st.integers(500, 520))
    def push_many(self, many: int) -> None:
        self.push(many, 0)

    def live(self, phone: Phone) -> None:
        """It is connected and gets what is new."""
        for entry in self.log.read(phone.seen, 99_999):
            phone.receive(entry.position, text_of(entry))
            phone.since.append(text_of(entry))

    @rule(which=st.integers(0, 3), controls=st.integers(0, 2))
    def connect(self, which: int, controls: int) -> None:
        phone = self.phones[which % len(self.phones)]
        if self.log.resumable(phone.seen):
            self.live(phone)
            assert phone.since == self.texts
        else:
            # Truncated: it begins anew at the present position, its base moved so that
            # its numbers go on; here the numbers it forgets are those beyond.
            phone.got = {}
            phone.seen = self.log.visible
            phone.since = list(self.texts)
        for _ in range(controls):
            phone.receive(self.log.take_position(), "control")

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.stop(clean=clean)
        self.start()

    @rule()
    def reserve(self) -> None:
        self.run(self.log._taken.reserve())

    @rule()
    def lose_power(self) -> None:
        """What the disk kept may be older than what phones have seen."""
        self.stop(clean=False)
        self.kernel += 1
        self.start()

    @rule()
    def back_up(self) -> None:
        copy = self.place / "backup.db"
        copy.unlink(missing_ok=True)
        name = str(copy)
        self.run(self.store.safe.run(lambda line: line.execute("VACUUM INTO ?", (name,))))
        self.backup = copy, list(self.texts)

    @rule()
    def restore(self) -> None:
        if self.backup is not None:
            self.stop(clean=True)
            copy, self.texts = self.backup[0], list(self.backup[1])
            replace_by_copy(copy, self.path)
            self.start()

    @invariant()
    def shows_what_it_stored(self) -> None:
        try:
            shown = [text_of(entry) for entry in self.log.read(self.log._ring.window_floor, 9999)]
        except Gone:
            raise AssertionError from None
        assert shown == self.texts[-512:]

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.stop(clean=True)
            self.loop.close()
            shutil.rmtree(self.place)


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=10,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)
