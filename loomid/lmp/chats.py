"""Tasks beside their messages: titles, and the answers about new ones (docs/protocol.md)."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from loomid.errors import BadFrame, TooLarge
from loomid.lmp import ids, requests
from loomid.lmp.control_frames import TaskBranched, TaskNewResult, TaskRenameResult
from loomid.lmp.payload import given

if TYPE_CHECKING:
    from loomid.lmp.requests import Asked

TITLE_CHARS = 100
"""Hermes takes no longer one."""


def title(text: str) -> str:
    """A title as it goes to Hermes. Raises BadFrame or TooLarge."""
    text = text.strip()
    if not text:
        raise BadFrame("The title is empty.")
    if len(text) > TITLE_CHARS:
        raise TooLarge(max_title_chars=TITLE_CHARS)
    if any(unicodedata.category(char) == "Cc" for char in text):
        raise BadFrame("The title has control characters.")
    return text


class _Named(Struct):
    """Value of op `rename`."""

    title: str


class _Opened(Struct):
    """Value of op `open`."""

    session_key: str
    title: str | None = None


class _Branched(Struct):
    """Value of op `branch`."""

    session_key: str
    shared: bool
    title: str | None = None


# Each makes an answer, and raises GatewayError when `value` is odd.


def renamed(_: bytes, asked: Asked, value: dict[str, Any]) -> TaskRenameResult:
    """The answer to task.rename."""
    (task_id,) = requests.about(asked.command_id)
    now = requests.convert(value, _Named)
    return TaskRenameResult(request_id=asked.request_id or "", task_id=task_id, title=now.title)


def opened(key: bytes, asked: Asked, value: dict[str, Any]) -> TaskNewResult:
    """The answer to task.new."""
    new = requests.convert(value, _Opened)
    return TaskNewResult(
        request_id=asked.request_id or "",
        gateway_id=asked.gateway_id,
        task_id=ids.task_id(key, asked.gateway_id, new.session_key),
        title=given(new.title),
    )


def branched(key: bytes, asked: Asked, value: dict[str, Any]) -> TaskBranched:
    """The answer to task.fork and task.continue."""
    (origin,) = requests.about(asked.command_id)
    new = requests.convert(value, _Branched)
    return TaskBranched(
        request_id=asked.request_id or "",
        gateway_id=asked.gateway_id,
        task_id=ids.task_id(key, asked.gateway_id, new.session_key),
        origin_task_id=origin,
        title=new.title or "",
        shared=new.shared,
    )
