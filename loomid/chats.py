"""Titles of tasks, and new tasks: empty, or with the history of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomid import wire
from loomid.errors import NotPermitted
from loomid.lmp import chats, control_frames as frames
from loomid.orders import Act
from loomid.plans import order

if TYPE_CHECKING:
    from loomid.gateway import Gateways
    from loomid.lmp.payload import Payload
    from loomid.orders import Order
    from loomid.tasks import Tasks
    from loomid.vault import Device, TaskRow


class Chats:
    """Orders for requests; each method raises the PhoneError that its request deserves."""

    def __init__(self, gateways: Gateways, tasks: Tasks) -> None:
        self._gateways = gateways
        self._tasks = tasks

    def acts(self) -> dict[type[Payload], Act]:
        """The requests that are planned here."""
        return {
            frames.TaskRename: Act(self.rename, chats.renamed),
            frames.TaskNew: Act(self.new, chats.opened, self._tasks.begun),
            frames.TaskFork: Act(self.fork, chats.branched, self._tasks.begun),
            frames.TaskContinue: Act(self.go_on, chats.branched, self._tasks.begun),
        }

    async def rename(self, _: Device, asked: frames.TaskRename) -> Order:
        """Another title for a task, of whatever surface."""
        args = {"title": chats.title(asked.title)}
        row = await self._tasks.row(asked.task_id)
        return order(self._gateways, row.gateway_id, "rename", args | _session(row), asked.task_id)

    async def new(self, _: Device, asked: frames.TaskNew) -> Order:
        """A task without messages."""
        place = self._tasks.new_place(asked.gateway_id)
        args: dict[str, Any] = {"chat_id": place.chat_id}
        if asked.title is not None:
            args["title"] = chats.title(asked.title)
        return order(self._gateways, place.gateway_id, "open", args)

    async def fork(self, _: Device, asked: frames.TaskFork) -> Order:
        """A task with a copy of another's history."""
        return self._branch(await self._tasks.row(asked.task_id), share=False)

    async def go_on(self, _: Device, asked: frames.TaskContinue) -> Order:
        """A task of the phones that goes on with what another surface began."""
        row = await self._tasks.row(asked.task_id)
        if row.surface == wire.PLATFORM:
            raise NotPermitted(reason="own_task")
        return self._branch(row, share=True)

    def _branch(self, row: TaskRow, *, share: bool) -> Order:
        place = self._tasks.new_place(row.gateway_id)
        args = {"chat_id": place.chat_id, "share": share} | _session(row)
        return order(self._gateways, row.gateway_id, "branch", args, row.task_id)


def _session(row: TaskRow) -> dict[str, str]:
    """How the shim finds the session of a task: by its chat, where it has one."""
    named = {"session_key": row.session_key, "session_id": row.session_id}
    return {name: value for name, value in named.items() if value}
