"""Tasks as phones see them: the list, where a message to one goes, the home channel.

Hermes' own list is asked for first and remembered, so that there is one to show when
no gateway is connected.
"""

from __future__ import annotations

import base64
import logging
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from hermes_shim import wire
from loomid.errors import (
    BadFrame,
    GatewayOffline,
    NotPermitted,
    OutcomeUnknown,
    UnknownTask,
)
from loomid.gateway import CommandFailed
from loomid.lmp import frames, ids, requests
from loomid.vault import TaskRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loomid.gateway import Gateways
    from loomid.lmp.projection import Projection
    from loomid.lmp.runs import Runs
    from loomid.vault import Vault

log = logging.getLogger("loomid.commands")

LOOKUP = 500
"""Sessions asked for to find a task that is not remembered here."""
YOUNG_S = 120.0
"""Hermes lists a session after its first turn has begun; until then we vouch for it."""

Position = tuple[float, str]
"""A place in the list: updated_at and task id of the row before it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes."""

    gateway_id: str
    chat_id: str


class _Session(msgspec.Struct):
    """One row of op `sessions`."""

    session_id: str
    platform: str
    updated_at: float
    session_key: str | None = None
    title: str | None = None
    model: str | None = None
    created_at: float | None = None
    message_count: int = 0
    preview: str | None = None


class _Sessions(msgspec.Struct):
    sessions: list[_Session]
    more: bool = False


@dataclass(slots=True)
class _Refreshed:
    """What gateways said of their newest sessions before a position."""

    listed: set[str]
    whole: set[str]
    """Gateways that have no older ones."""
    answered: bool = False
    floor: float = -math.inf
    """Below this time, some gateway knows more than it has said."""


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

    async def place(self, task_id: str | None) -> Place:
        """Where a message to a task goes, or to a new one.

        Raises UnknownTask, NotPermitted (of another platform) or GatewayOffline.
        """
        if task_id is None:
            return self._new_place()
        for state in self._gateways.states():
            if self._home_of(state) == task_id:
                return Place(state.gateway_id, state.home_chat)
        row = await self._vault.task(task_id)
        if row is None:
            await self._refresh(None, LOOKUP)
            row = await self._vault.task(task_id)
        if row is None:
            raise UnknownTask
        chat_id = _chat(row.session_key)
        if chat_id is None or row.surface != wire.PLATFORM:
            raise NotPermitted(reason="other_surface", surface=row.surface)
        return Place(row.gateway_id, chat_id)

    def _new_place(self) -> Place:
        online = [state.gateway_id for state in self._gateways.states() if state.online]
        if not online:
            raise GatewayOffline
        # One chat a task (Hermes derives its session from it); nobody can guess another's.
        return Place(online[0], secrets.token_hex(8))

    async def begun(self, gateway_id: str, value: dict[str, Any]) -> None:
        """A message was injected: remember its task, which Hermes may not list yet."""
        session_key = requests.session_key(value)
        task_id = ids.task_id(self._key, gateway_id, session_key)
        if await self._vault.task(task_id) is None:
            now = self._clock()
            row = TaskRow(
                task_id, gateway_id, session_key, "", "", wire.PLATFORM, None, now, now, 0, ""
            )
            await self._vault.upsert_tasks([row])

    # ── the list ────────────────────────────────────────────────────────────

    async def list(self, asked: frames.TaskList) -> frames.TaskListResult:
        """One page of tasks, newest first. Raises BadFrame for a cursor that is not ours."""
        before = None if asked.cursor is None else read_cursor(asked.cursor)
        news = await self._refresh(before, asked.limit + 1)
        only, exclude = self._filter(asked.status_filter)
        rows = await self._vault.tasks(asked.limit + 1, before, only=only, exclude=exclude)
        page = rows[: asked.limit]
        last = page[-1] if len(rows) > asked.limit else None
        cursor = None if last is None else (last.updated_at, last.task_id)
        if only is None and page and page[-1].updated_at < news.floor:
            pass
        return frames.TaskListResult(
            tasks=[self._task(row) for row in page if not self._gone(row, news)],
            request_id=UNSET if asked.request_id is None else asked.request_id,
            next_cursor=UNSET if cursor is None else make_cursor(cursor),
            stale=UNSET if news.answered else True,
        )
