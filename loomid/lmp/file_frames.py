"""Files in LMP: those a phone sends with a message, and those the agent sends (docs/files.md)."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from loomid.lmp.payload import Payload, RequestId

MAX_ATTACHMENTS = 20
"""Of one message."""


class SentAttachment(Payload, frozen=True, kw_only=True):
    """One file of a message: uploaded before, or inline."""

    attachment_id: str | None = None
    data: str | None = None
    """Its bytes as Base64."""
    media_type: str | None = None
    """What the phone takes it for; must fit what is in it."""
    name: str | None = None
    voice: bool = False
    """Audio that was spoken for the agent: Hermes may write it down."""


class AttachmentRef(Payload, frozen=True, kw_only=True):
    """A file that is kept here."""

    attachment_id: str
    media_type: str
    bytes: int
    name: str
    width: int | UnsetType = UNSET
    height: int | UnsetType = UNSET


class RunAttachment(Payload, frozen=True, kw_only=True):
    """The agent sent a file, or a link to one; it may come after the end of its run."""

    task_id: str | None
    run_id: str | None
    attachment_id: str | None
    """None: there is nothing to fetch; then `url` or `error` is set."""
    media_type: str
    bytes: int
    name: str
    width: int | UnsetType = UNSET
    height: int | UnsetType = UNSET
    caption: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    """The caption was cut."""
    url: str | UnsetType = UNSET
    """A link that the agent gave in place of a file; nobody has looked behind it."""
    error: str | UnsetType = UNSET
    """Why the file could not be taken."""
    part: str | UnsetType = UNSET
    """Which part of its run it is."""


class AttachmentGet(Payload, frozen=True, kw_only=True):
    attachment_id: str
    task_id: str | None = None
    """Only if that task has it."""
    request_id: RequestId | None = None


class AttachmentGetResult(Payload, frozen=True, kw_only=True):
    attachment: AttachmentRef
    data: str
    """Its bytes as Base64."""
    request_id: str | UnsetType = UNSET


EVENTS: dict[str, type[Payload]] = {"run.attachment": RunAttachment}
CONTROLS: dict[str, type[Payload]] = {"attachment.get.result": AttachmentGetResult}
REQUESTS: dict[str, type[Payload]] = {"attachment.get": AttachmentGet}
