"""Tasks as phones see them: the list, where a message to one goes, the home channel.

Hermes' own list is asked for first and remembered, so that there is one to show when
no gateway is connected.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET

from loomid import wire
from loomid.errors import BadFrame, GatewayOffline, NotPermitted, OutcomeUnknown, UnknownTask
from loomid.gateway import CommandFailed
from loomid.lmp import conversations, frames, ids, requests
from loomid.lmp.payload import given
from loomid.vault import TaskRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from loomid.gateway import Gateways, GatewayState
    from loomid.lmp.conversations import Conversation
    from loomid.lmp.projection import Projection
    from loomid.lmp.runs import Runs
    from loomid.vault import Device, Vault

log = logging.getLogger("loomid.commands")

LOOKUP = 500
"""Conversations looked through for a task that is not remembered here."""
ROWS = 100
"""Of Hermes' session list, read at once."""
YOUNG_S = 120.0
"""Hermes lists a session after its first turn has begun; until then we vouch for it."""

Position = tuple[
    conversations.Time,
    Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]*\Z", max_length=64)],
]
"""A place in the list: updated_at and task id of the row before it."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a message goes."""

    gateway_id: str
    chat_id: str


class _Sessions(msgspec.Struct):
    """Value of op `sessions`."""

    sessions: list[conversations.Session]


@dataclass(frozen=True, slots=True)
class _Listed:
    """What one gateway has before a position."""

    conversations: list[Conversation]
    more: bool


@dataclass(slots=True)
class _News:
    """What the connected gateways listed before a position."""

    answered: bool = False
    listed: dict[str, TaskRow] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    """Gateways that have no more than they listed."""
    floor: float = -math.inf
    """Some gateway has more below this time."""


class Tasks:
    """The tasks of all gateways."""

    def __init__(
        self,
        vault: Vault,
        gateways: Gateways,
        runs: Mapping[str, Runs],
        alive: Projection,
        key: bytes,
        clock: Callable[[], float],
    ) -> None:
        self._vault = vault
        self._gateways = gateways
        self._runs = runs
        self._alive = alive
        self._key = key
        self._clock = clock

    # ── where messages go ───────────────────────────────────────────────────

    def home(self) -> str | None:
        """The task of the home channel; that of a connected gateway comes first."""
        states = sorted(self._gateways.states(), key=lambda state: not state.online)
        found = (self._home_of(state) for state in states)
        return next((task_id for task_id in found if task_id is not None), None)

    def _home_of(self, state: GatewayState) -> str | None:
        if state.home_key is None:
            return None
        return ids.task_id(self._key, state.gateway_id, state.home_key)

    async def place(self, task_id: str | None) -> Destination:
        """Where a message to a task goes, or to a new one.

        Raises UnknownTask, NotPermitted (of another platform) or GatewayOffline.
        """
        if task_id is None:
            return self.new_place(None)
        for state in self._gateways.states():
            if self._home_of(state) == task_id:
                return Destination(state.gateway_id, wire.HOME_CHAT)
        row = await self.row(task_id)
        chat_id = _chat(row.session_key)
        if chat_id is None or row.surface != wire.PLATFORM:
            raise NotPermitted(reason="other_surface", surface=row.surface)
        return Destination(row.gateway_id, chat_id)

    async def row(self, task_id: str) -> TaskRow:
        """What is known of a task. Raises UnknownTask."""
        row = await self._vault.task(task_id)
        if row is None:
            row = (await self._ask(None, LOOKUP)).listed.get(task_id)
        if row is None:
            raise UnknownTask
        return row

    async def rows(self, task_ids: Collection[str]) -> list[TaskRow]:
        """The same of those that are remembered here."""
        return await self._vault.tasks(len(task_ids), only=task_ids) if task_ids else []

    def new_place(self, gateway_id: str | None) -> Destination:
        """Where a new task goes: to that gateway, or to the first. Raises GatewayOffline."""
        online = [state.gateway_id for state in self._gateways.states() if state.online]
        online = [name for name in online if gateway_id in (None, name)]
        if not online:
            raise GatewayOffline
        # One chat a task (Hermes derives its session from it); nobody can guess another's.
        return Destination(online[0], secrets.token_hex(8))

    async def begun(self, gateway_id: str, value: dict[str, Any]) -> str:
        """A message was injected: remember its task, which Hermes may not list yet."""
        session_key = requests.session_key(value)
        task_id = ids.task_id(self._key, gateway_id, session_key)
        if await self._vault.task(task_id) is None:
            now = self._clock()
            row = TaskRow(
                task_id, gateway_id, session_key, "", "", wire.PLATFORM, None, now, now, 0, ""
            )
            await self._vault.upsert_tasks([row])
        return task_id

    # ── the list ────────────────────────────────────────────────────────────

    async def list(self, _: Device, asked: frames.TaskList) -> frames.TaskListResult:
        """One page of tasks, newest first. Raises BadFrame for a cursor that is not ours.

        A page may be shorter than asked for and still have a `next_cursor`.
        """
        before = None if asked.cursor is None else read_cursor(asked.cursor)
        news = await self._ask(before, asked.limit + 1)
        only, exclude = self._having(asked.status_filter)
        rows = await self._vault.tasks(
            asked.limit + 1, before, only=only, exclude=exclude, fresh=[*news.listed.values()]
        )
        page, after = _page(rows, asked.limit, news.floor if only is None else -math.inf)
        return frames.TaskListResult(
            tasks=[self._task(row) for row in page if not self._gone(row, news)],
            request_id=given(asked.request_id),
            next_cursor=UNSET if after is None else make_cursor(after),
            stale=UNSET if news.answered else True,
        )

    def _live(self) -> set[str]:
        """Tasks that run or wait."""
        waiting = {placed.event.task_id for placed in self._alive.pending()}
        running = {view.task_id for runs in self._runs.values() for view in runs.live()}
        return {task for task in waiting | running if task is not None}

    def _having(self, status: frames.TaskStatus | None) -> tuple[set[str] | None, set[str]]:
        """Which tasks alone may be listed (None: any), and which may not."""
        if status is None:
            return None, set()
        live = self._live()
        if status == "idle":
            return None, {task for task in live if self._alive.status(task) != "idle"}
        return {task for task in live if self._alive.status(task) == status}, set()

    def _task(self, row: TaskRow) -> frames.Task:
        run_id = self._alive.run_of(row.task_id)
        return frames.Task(
            task_id=row.task_id,
            title=row.title,
            status=self._alive.status(row.task_id),
            surface=row.surface,
            model=row.model,
            created_at=row.created_at,
            updated_at=row.updated_at,
            message_count=row.message_count,
            preview=row.preview,
            gateway_id=row.gateway_id,
            run_id=given(run_id),
        )

    def _gone(self, row: TaskRow, news: _News) -> bool:
        """Whether Hermes would have listed the task if it still had it."""
        return (
            row.gateway_id in news.whole
            and row.task_id not in news.listed
            and row.updated_at < self._clock() - YOUNG_S
            and self._alive.status(row.task_id) == "idle"
        )

    # ── what gateways list ──────────────────────────────────────────────────

    async def _ask(self, before: Position | None, limit: int) -> _News:
        """Ask every connected gateway for its newest conversations before a position."""
        # The position is exclusive, and others may have the very same time.
        upto = math.inf if before is None else math.nextafter(before[0], math.inf)
        online = [state.gateway_id for state in self._gateways.states() if state.online]
        said = await asyncio.gather(*(self._listed(name, upto, limit) for name in online))
        news = _News()
        for gateway_id, listed in zip(online, said, strict=True):
            if listed is None:
                continue
            news.answered = True
            rows = (self._row(gateway_id, each) for each in listed.conversations)
            news.listed.update((row.task_id, row) for row in rows)
            if not listed.more:
                news.whole.add(gateway_id)
            elif listed.conversations:
                news.floor = max(news.floor, listed.conversations[-1].updated_at)
        return news

    async def _listed(self, gateway_id: str, upto: float, limit: int) -> _Listed | None:
        """What one gateway lists; None when it cannot be had: the last known will do."""
        try:
            return await self._read(gateway_id, upto, limit)
        except (GatewayOffline, OutcomeUnknown):
            return None
        except CommandFailed as failed:
            log.warning("gateway %.16s cannot list its sessions: %s", gateway_id, failed.code)
        except msgspec.ValidationError as error:
            log.warning("gateway %.16s lists sessions oddly: %s", gateway_id, error)
        return None

    async def _read(self, gateway_id: str, upto: float, limit: int) -> _Listed:
        """Read Hermes' list from its top: an older session belongs to a newer conversation."""
        rows: list[conversations.Session] = []
        while True:
            args = {"limit": ROWS, "offset": len(rows)}
            value = await self._gateways.command(
                gateway_id, "sessions", args, command_id=secrets.token_hex(12)
            )
            page = msgspec.convert(value, _Sessions).sessions
            rows += page
            found = [each for each in conversations.merge(rows) if each.updated_at < upto]
            more = len(page) == ROWS
            if not more or len(found) > limit:
                return _Listed(found[:limit], more or len(found) > limit)

    def _row(self, gateway_id: str, each: Conversation) -> TaskRow:
        return TaskRow(
            ids.task_id(self._key, gateway_id, each.name),
            gateway_id,
            each.session_key,
            each.session_id,
            each.title,
            each.platform,
            each.model,
            each.created_at,
            each.updated_at,
            each.message_count,
            each.preview,
        )


def _page(rows: list[TaskRow], limit: int, floor: float) -> tuple[list[TaskRow], Position | None]:
    """The rows to show, and the position to go on from.

    Below `floor` rows may be missing that a gateway has yet to list, so the page ends there.
    """
    page = [row for row in rows[:limit] if row.updated_at >= floor]
    if len(page) < min(len(rows), limit) or (len(rows) <= limit and floor > -math.inf):
        return page, (page[-1].updated_at, page[-1].task_id) if page else (floor, "")
    if len(rows) > limit:
        return page, (page[-1].updated_at, page[-1].task_id)
    return page, None


def _chat(session_key: str | None) -> str | None:
    """The chat id in the session key of a direct chat of ours: agent:<profile>:loomi:dm:<chat>."""
    match (session_key or "").split(":"):
        case ["agent", _, wire.PLATFORM, "dm", chat] if chat:
            return chat
    return None


def make_cursor(position: Position) -> str:
    """An opaque `next_cursor`."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


def read_cursor(cursor: str) -> Position:
    """The position in a cursor. Raises BadFrame when it is not one of ours."""
    try:
        return msgspec.json.decode(base64.b64decode(cursor, b"-_", validate=True), type=Position)
    except (ValueError, msgspec.DecodeError):
        raise BadFrame("That cursor is not of this server.") from None
