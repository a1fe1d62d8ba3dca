"""Real stores and logs on real files, and the events that tests put into them."""

from __future__ import annotations

import shutil
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from loomid.lmp import envelope, facts, frames
from loomid.lmp.frames import Event
from loomid.log import Batch, Entry, Log
from loomid.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

WINDOW = 512


def delta(text: str, run_id: str = "run_1", iteration: int = 1, kind: Any = "text") -> Event:
    payload = frames.RunDelta(run_id=run_id, text=text, kind=kind, iteration=iteration)
    return Event(payload, time.time(), "task_1", run_id)


def started(run_id: str = "run_1", task_id: str = "task_1") -> Event:
    payload = frames.RunStarted(
        run_id=run_id,
        task_id=task_id,
        session_id="s",
        surface="loomi",
        model="m",
        provider="p",
        started_at=1.0,
        title="",
    )
    return Event(payload, time.time(), task_id, run_id)


def completed(run_id: str = "run_1", ts: float | None = None) -> Event:
    payload = frames.RunCompleted(
        run_id=run_id, status="completed", text="done", error=None, finished=True
    )
    return Event(payload, ts or time.time(), "task_1", run_id)


def tool_started(call_id: str, run_id: str = "run_1", iteration: int = 1) -> Event:
    payload = frames.RunToolStarted(
        run_id=run_id, iteration=iteration, tool="terminal", preview="", index=0, call_id=call_id
    )
    return Event(payload, time.time(), "task_1", run_id)


def tool_finished(call_id: str, run_id: str = "run_1", iteration: int = 1) -> Event:
    payload = frames.RunToolFinished(
        run_id=run_id,
        iteration=iteration,
        tool="terminal",
        ok=True,
        index=0,
        call_id=call_id,
        duration=0.1,
    )
    return Event(payload, time.time(), "task_1", run_id)


def asked(approval_id: str, task_id: str = "task_1") -> Event:
    payload = frames.ApprovalRequired(
        approval_id=approval_id,
        run_id="run_1",
        task_id=task_id,
        command="rm -rf /",
        description="",
        choices=[],
        smart_denied=False,
        session_key_ref="skr_1",
        deadline_ts=None,
    )
    return Event(payload, time.time(), task_id, "run_1")


def resolved(approval_id: str) -> Event:
    payload = frames.ApprovalResolved(approval_id=approval_id, choice="once", decided_by="remote")
    return Event(payload, time.time(), "task_1", "run_1")


def gateway(gateway_id: str, *, online: bool = True, ts: float | None = None) -> Event:
    payload = frames.GatewayStatus(
        gateway_id=gateway_id,
        name=gateway_id,
        online=online,
        hermes_version="1",
        shim_version="1",
        since=1.0,
    )
    return Event(payload, ts or time.time())


def arrival(n: int, gateway_id: str = "gw", boot: str = "b", text: str = "x") -> facts.Arrival:
    fact = facts.parse("delta", {"turn_id": "t", "iteration": 1, "text": text, "channel": "text"})
    return facts.Arrival(gateway_id, boot, n, 1.0, 2.0, fact)


def text_of(entry: Entry) -> str:
    """The text of a delta as a phone gets it."""
    _, payload = envelope.decode_server(envelope.render(entry.position, entry.parts))
    assert isinstance(payload, frames.RunDelta)
    return payload.text


async def push(log: Log, *texts: str) -> None:
    await log.commit(Batch(events=[delta(text) for text in texts]))


@asynccontextmanager
async def open_log(
    path: Path, *, boot_id: str = "kernel", clean: bool = True, **settings: Any
) -> AsyncIterator[Log]:
    """A log on a database; not `clean`: as after kill -9, without a record of the stop."""
    settings = {"window": WINDOW, "clock": time.time, **settings}
    async with await Store.open(path, settings["clock"]) as store:
        log = await Log.open(store, boot_id=boot_id, **settings)
        yield log
        if clean:
            await log.close()


def replace_by_copy(backup: Path, path: Path) -> None:
    """Restore a database as people do: the file is another one afterwards."""
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    # The replaced file stays, so that the new one cannot get its inode.
    path.rename(path.with_suffix(f".{path.stat().st_ino}"))
    fresh = path.with_suffix(".fresh")
    shutil.copyfile(backup, fresh)
    fresh.replace(path)
