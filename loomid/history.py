"""What phones ask of the past: a task's history and figures, messages that hold a word."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from loomid import lineage, pages, stats
from loomid.errors import GatewayError, NotPermitted
from loomid.hermesdb import BUSY, HermesDb
from loomid.lmp import cursors, ids, query, recalled
from loomid.lmp.frames import TaskList
from loomid.lmp.history_frames import (
    LEAST_BYTES,
    Hit,
    TaskHistory,
    TaskHistoryResult,
    TaskSearch,
    TaskSearchResult,
    TaskStats,
    TaskStatsResult,
)
from loomid.lmp.payload import given
from loomid.ownwords import openings, retold
from loomid.pages import Before, Page, Wanted
from loomid.search import merged, search

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loomid.commands import Query
    from loomid.controls import Controls
    from loomid.errors import PhoneError
    from loomid.gateway import Gateways
    from loomid.hermesdb import Reader
    from loomid.lmp.frames import Task, TaskListResult
    from loomid.lmp.payload import Payload
    from loomid.lmp.projection import Projection
    from loomid.lmp.recalled import Own
    from loomid.search import Found, Hits
    from loomid.sentindex import SentIndex
    from loomid.tasks import Tasks
    from loomid.vault import Device, TaskRow

K = TypeVar("K")
V = TypeVar("V")

log = logging.getLogger("loomid.history")

Rest = dict[str, int]
"""Gateway → before which message to look on."""
_BEFORE = msgspec.json.Decoder(Before)
_REST = msgspec.json.Decoder(Rest)
ENVELOPE_BYTES = 1_024
"""Around a payload, at most."""
HIT_BYTES = 4_096
"""Of one hit, at most."""
MODEL_S = 2.0
"""How long figures wait for what a gateway knows of its model."""


class History:
    """Answers from Hermes' own databases, on this machine."""

    def __init__(
        self,
        tasks: Tasks,
        gateways: Gateways,
        alive: Projection,
        key: bytes,
        max_frame_bytes: int,
        sent: SentIndex,
        controls: Controls,
    ) -> None:
        self._tasks = tasks
        self._gateways = gateways
        self._alive = alive
        self._key = key
        self._most = max(max_frame_bytes - ENVELOPE_BYTES, LEAST_BYTES)
        self._sent = sent
        self._controls = controls
        self._db = HermesDb()
        self._scanned: set[Path] = set()

    def close(self) -> None:
        """Answer no more."""
        self._db.close()

    def queries(self) -> dict[type[Payload], Query]:
        """For Commands."""
        return {
            TaskHistory: self.history,
            TaskList: self.list,
            TaskSearch: self.search,
            TaskStats: self.stats,
        }

    async def list(self, device: Device, asked: TaskList) -> TaskListResult:
        """Tasks.list, with the user's own words where a task begins with files."""
        told = await self._tasks.list(device, asked)
        sent = await self._sent.of_tasks([task.task_id for task in told.tasks])
        rows = await self._tasks.rows(sent)
        own: dict[str, Own] = {}
        for gateway in {row.gateway_id for row in rows}:
            tasks = {row.session_id: row.task_id for row in rows if row.gateway_id == gateway}
            found = await self._known(gateway, partial(openings, tasks=tasks, sent=sent))
            own |= {tasks[session]: words for session, words in found.items()}
        return replace(told, tasks=[_entry(task, own.get(task.task_id)) for task in told.tasks])

    async def _known(self, gateway: str, work: Callable[[Reader], dict[K, V]]) -> dict[K, V]:
        """What is known of messages; nothing while the database cannot be read."""
        try:
            return await self._db.read(self._home(gateway), work)
        except (GatewayError, NotPermitted):
            return {}

    async def history(self, _: Device, asked: TaskHistory) -> TaskHistoryResult:
        """One page. Raises UnknownTask, NotPermitted, BadCursor, StorageFailing or GatewayError."""
        purpose = f"task.history {asked.task_id}"
        place = None
        if asked.before is not None:
            place = cursors.read(self._key, purpose, asked.before, _BEFORE)
        task = await self._tasks.row(asked.task_id)
        most = min(asked.max_bytes, self._most)
        sent = await self._sent.of_task(asked.task_id)
        handed = await self._sent.handed(asked.task_id)
        wanted = Wanted(asked.max_messages, most, asked.view == "full", sent, handed)
        live = self._alive.run_of(asked.task_id)
        home = self._home(task.gateway_id)
        page = await self._db.read(home, partial(self._page, task, place, wanted, live))
        following = page.following
        return TaskHistoryResult(
            task_id=asked.task_id,
            turns=page.turns,
            request_id=given(asked.request_id),
            next_before=(
                UNSET if following is None else cursors.make(self._key, purpose, following)
            ),
        )

    def _page(
        self, task: TaskRow, place: Before | None, wanted: Wanted, live: str | None, reader: Reader
    ) -> Page:
        sessions = lineage.of_task(reader, task.session_key, task.session_id)
        name = partial(ids.turn_id, self._key, task.gateway_id)
        return pages.read(reader, sessions, place, wanted, name, live)

    async def search(self, _: Device, asked: TaskSearch) -> TaskSearchResult:
        """One page of what was found, the newest first. Raises BadQuery, BadCursor; GatewayError
        and NotPermitted when no gateway's database can be searched."""
        wanted = query.parse(asked.query)
        purpose = f"task.search {asked.query}"
        if asked.cursor is not None:
            places = cursors.read(self._key, purpose, asked.cursor, _REST)
        else:
            places = {state.gateway_id: lineage.END for state in self._gateways.states()}
        limit = min(asked.limit, self._most // HIT_BYTES)
        results, failed = await self._results(wanted, places, limit)
        hits, rest = merged(results, limit)
        rest |= {name: places[name] for name, error in failed.items() if _passes(error)}
        own = {name: await self._own(name, hits, wanted) for name in {name for name, _ in hits}}
        return TaskSearchResult(
            hits=[self._hit(gateway, own[gateway].get(found.id, found)) for gateway, found in hits],
            request_id=given(asked.request_id),
            next_cursor=cursors.make(self._key, purpose, rest) if rest else UNSET,
            incomplete=bool(failed) or UNSET,
        )

    async def _results(
        self, wanted: query.Query, places: Rest, limit: int
    ) -> tuple[dict[str, Hits], dict[str, GatewayError]]:
        """What each gateway's database has, and why one that is here cannot be read. Raises that
        when there is no other."""
        results: dict[str, Hits] = {}
        failed: dict[str, GatewayError] = {}
        elsewhere = NotPermitted(reason="no_gateway")
        for gateway, before in sorted(places.items()):
            look = partial(search, query=wanted, before=before, limit=limit)
            try:
                home = self._home(gateway)
                hits = results[gateway] = await self._db.read(home, look)
                self._note(home, hits.fault)
            except GatewayError as error:
                failed[gateway] = error
            except NotPermitted as error:
                elsewhere = error
        if not results:
            raise max(failed.values(), key=_passes, default=elsewhere)
        return results, failed

    async def _own(
        self, gateway: str, hits: Sequence[tuple[str, Found]], wanted: query.Query
    ) -> dict[int, Found]:
        """Hits in messages with files, or in what begins with one, in the user's own words."""
        tasks = [
            (found, ids.task_id(self._key, gateway, found.name))
            for name, found in hits
            if name == gateway
        ]
        sent = await self._sent.of_tasks([task_id for _, task_id in tasks])
        if not sent:
            return {}
        return await self._known(gateway, partial(retold, hits=tasks, sent=sent, wanted=wanted))

    def _note(self, home: Path, fault: str) -> None:
        if fault and home not in self._scanned:
            self._scanned.add(home)
            log.warning("no index to search in %s (%s): messages are read instead", home, fault)

    def _hit(self, gateway: str, found: Found) -> Hit:
        home = str(self._home(gateway))
        snippet, highlights = recalled.without_folders(found.snippet, found.highlights, home)
        return Hit(
            task_id=ids.task_id(self._key, gateway, found.name),
            session_id=found.session_id,
            title=found.title,
            role="user" if found.role == "user" else "assistant",
            ts=found.ts,
            snippet=snippet,
            highlights=highlights,
        )

    async def stats(self, _: Device, asked: TaskStats) -> TaskStatsResult:
        """A task's figures. Raises UnknownTask, NotPermitted or GatewayError.

        How much its context holds in all is the gateway's to tell, in a moment or not at all.
        """
        task = await self._tasks.row(asked.task_id)

        def work(reader: Reader) -> TaskStatsResult:
            sessions = lineage.of_task(reader, task.session_key, task.session_id)
            told = stats.of_sessions(reader, sessions, task.session_key)
            told = {"sessions": 0, "messages": 0, "started_at": task.created_at} | told
            return TaskStatsResult(
                task_id=asked.task_id,
                request_id=given(asked.request_id),
                **told,
            )

        answer = await self._db.read(self._home(task.gateway_id), work)
        if answer.context_tokens is UNSET:
            return answer
        model = await self._controls.model_of(asked.task_id, MODEL_S)
        if model is None or model.model != answer.model:
            return answer
        return replace(answer, context_window=given(model.context_length))

    def _home(self, gateway_id: str) -> Path:
        """Where that gateway's database lies. Raises NotPermitted when it is not here."""
        for state in self._gateways.states():
            if state.gateway_id == gateway_id and state.home is not None:
                return Path(state.home)
        raise NotPermitted(
            "That gateway's database is not within reach.",
            reason="no_database",
        )


def _entry(task: Task, own: Own | None) -> Task:
    if own is None:
        return task
    return replace(task, preview=own.preview, title=own.title(task.title))


def _passes(error: PhoneError) -> bool:
    """Whether the same may work when it is asked again."""
    return error.params == {"reason": BUSY}
