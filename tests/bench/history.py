"""`python -m tests.bench.history`: what a page of history costs in a session of 5,000 messages.

The session is made by Hermes' own SessionDB, of each release that is installed (see
tests/support/hermes.py). Told are medians: Hermes' own query for as many messages, our first
page with everything (sessions, parts, frame), a page in the middle; and how our memory grows
while all pages are read. Then, for messages of many megabytes, how long the event loop stands
still while a page with one is read: the least of some rounds, as other processes hold it up too.
`--messages N`, `--rounds N`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loomid import hermesdb, lineage, pages
from loomid.hermesdb import HermesDb
from loomid.lmp import ids
from loomid.lmp.history_frames import PAGE_BYTES, TaskHistoryResult
from loomid.pages import Before, Page, Wanted
from tests.support.hermes import RELEASES, Release, Unavailable
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomid.hermesdb import Reader

KEY = "agent:main:loomi:dm:bench"
MIB = 2**20
WANTED = Wanted(100, PAGE_BYTES, full=False)
MAKE = """
import json, sys, time
from pathlib import Path
from hermes_state import SessionDB
count, key = int(sys.argv[2]), sys.argv[3]
db = SessionDB(db_path=Path(sys.argv[1]))
db.create_session(session_id="s1", source="loomi")
db._conn.execute("UPDATE sessions SET session_key = ? WHERE id = 's1'", (key,))
db._conn.commit()
rows = []
for turn in range(count // 4):
    call = {"id": f"call_{turn}", "type": "function",
            "function": {"name": "terminal", "arguments": json.dumps({"command": f"ls {turn}"})}}
    rows.append({"role": "user", "content": f"question {turn} " + "q" * 200})
    rows.append({"role": "assistant", "content": "", "tool_calls": [call],
                 "reasoning": "r" * 300, "finish_reason": "tool_calls"})
    rows.append({"role": "tool", "content": json.dumps({"output": "o" * 6000, "error": None}),
                 "tool_call_id": f"call_{turn}", "tool_name": "terminal"})
    rows.append({"role": "assistant", "content": "answer " + "a" * 800, "finish_reason": "stop"})
db.replace_messages("s1", rows)
times = []
for _ in range(int(sys.argv[4])):
    begun = time.perf_counter()
    db.get_messages("s1", limit=100, offset=count - 100)
    times.append(time.perf_counter() - begun)
print(sorted(times)[len(times) // 2])
"""


def main() -> None:
    """Print the figures of every release that there is."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.history")
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    print("release  Hermes' query  first page  beyond it  middle page  all pages  peak memory")
    for release in RELEASES:
        try:
            release.python()
        except Unavailable as why:
            print(f"0.{release.name:7} left out: {why}")
            continue
        measure(release, options.messages, options.rounds)
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"resident at most {usage:.0f} MiB, interpreter included")
    stalls()


def measure(release: Release, messages: int, rounds: int) -> None:
    """One line."""
    with tempfile.TemporaryDirectory(prefix="lo-") as name:
        home = Path(name)
        hermes = made(release, home, messages, rounds)
        first = median(lambda: page(home, None), rounds)
        middle = halfway(home)
        later = median(lambda: page(home, middle), rounds)
        begun = time.perf_counter()
        tracemalloc.start()
        count = sum(1 for _ in every_page(home))
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        took = time.perf_counter() - begun
    print(
        f"0.{release.name:7}{hermes * 1e3:9.1f} ms {first * 1e3:9.1f} ms "
        f"{(first - hermes) * 1e3:7.1f} ms {later * 1e3:9.1f} ms "
        f"{count:4} in {took:.1f} s {peak:7.1f} MiB"
    )


def made(release: Release, home: Path, messages: int, rounds: int) -> float:
    """Make the session; the median of Hermes' own query, in seconds."""
    done = subprocess.run(
        [
            str(release.python()),
            "-c",
            MAKE,
            str(home / "state.db"),
            f"{messages}",
            KEY,
            f"{rounds}",
        ],
        env={"HERMES_HOME": str(home), "PATH": "/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def newest(reader: Reader, place: Before | None) -> Page:
    """The page before a place."""
    sessions = lineage.of_task(reader, KEY, "s1")
    name = partial(ids.turn_id, b"k" * 32, "gw")
    return pages.read(reader, sessions, place, WANTED, name, None)


def page(home: Path, place: Before | None) -> Page:
    """One page, encoded as it is sent."""
    found = hermesdb.read(home, partial(newest, place=place))
    msgspec.json.encode(TaskHistoryResult(task_id="task", turns=found.turns))
    return found


def stalls() -> None:
    """A line for each kind of large message."""
    print("message                          page        loop stands still at most")
    for what, message in LARGE.items():
        with tempfile.TemporaryDirectory(prefix="lo-") as name:
            home = Home(Path(name))
            home.session("s1", KEY)
            home.message("user", "before")
            home.message(**message())
            took, still = map(
                min, zip(*(asyncio.run(stall(home.folder)) for _ in range(7)), strict=True)
            )
        print(f"{what:28}{took * 1e3:6.0f} ms {still * 1e3:9.1f} ms")


async def stall(home: Path) -> tuple[float, float]:
    """Seconds that a page takes, and the longest in which the loop did nothing."""
    loop, still = asyncio.get_running_loop(), 0.0
    with closing(HermesDb()) as db:
        reading = loop.create_task(db.read(home, partial(newest, place=None)))
        begun = last = loop.time()
        while not reading.done():
            await asyncio.sleep(0.0005)
            still, last = max(still, loop.time() - last), loop.time()
    assert reading.result().turns
    return loop.time() - begun, still


def _picture(size: int) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{'QUJD' * (size // 4)}"
    return {"type": "image_url", "image_url": {"url": url}}


def _call(size: int) -> dict[str, Any]:
    arguments = json.dumps({"path": "a.txt", "content": "line\n" * (size // 6)})
    call = {"id": "c", "function": {"name": "write_file", "arguments": arguments}}
    return {"role": "assistant", "tool_calls": json.dumps([call])}


LARGE: dict[str, Callable[[], dict[str, Any]]] = {
    "text of 64 MiB": lambda: {"role": "user", "content": "text " * (64 * MIB // 5)},
    "picture of 7 MiB": lambda: {"role": "user", "content": [_picture(7 * MIB)]},
    "picture of 64 MiB": lambda: {"role": "user", "content": [_picture(64 * MIB)]},
    "7 MiB of Chinese as JSON": lambda: {
        "role": "user",
        "content": [{"type": "text", "text": "\u5927" * (7 * MIB // 6)}],
    },
    "tool result of 64 MiB": lambda: {
        "role": "tool",
        "content": json.dumps({"output": "text " * (64 * MIB // 5)}),
    },
    "arguments of 7 MiB": lambda: _call(7 * MIB),
}


def every_page(home: Path) -> Iterator[Page]:
    """All of them, one after the other."""
    place: Before | None = None
    while True:
        found = page(home, place)
        yield found
        place = found.following
        if place is None:
            return


def halfway(home: Path) -> Before | None:
    """Where the page in the middle begins."""
    places = [found.following for found in every_page(home)]
    return places[len(places) // 2]


def median(work: Callable[[], object], rounds: int) -> float:
    """Seconds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    main()
