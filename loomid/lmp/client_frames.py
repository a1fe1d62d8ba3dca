"""What phones send: the payload of every LMP v1 type, once (see frames)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from loomid.lmp.file_frames import MAX_ATTACHMENTS, SentAttachment
from loomid.lmp.payload import Payload, RequestId, Seq, TaskStatus


class DeviceInfo(Payload, frozen=True, kw_only=True):
    model: str = ""
    os: str = ""
    app_version: str = ""


class ClientHello(Payload, frozen=True, kw_only=True):
    protocol_version: int
    token: str | None = None
    device_id: str | None = None
    credential: str | None = None
    last_seq: Seq | None = None
    device_info: DeviceInfo = DeviceInfo()
    capabilities: list[str] = []  # noqa: RUF012 - msgspec copies it


class SessionSend(Payload, frozen=True, kw_only=True):
    text: str
    request_id: RequestId
    task_id: str | None = None
    mode: Literal["queue", "steer", "interrupt"] = "queue"
    command: bool = False
    confirm: bool = False
    attachments: Annotated[list[SentAttachment], Meta(max_length=MAX_ATTACHMENTS)] = []  # noqa: RUF012


class RunRequest(Payload, frozen=True, kw_only=True):
    run_id: str
    request_id: RequestId | None = None


class RunCancel(RunRequest, frozen=True, kw_only=True):
    pass


class RunPause(RunRequest, frozen=True, kw_only=True):
    pass


class RunResume(RunRequest, frozen=True, kw_only=True):
    pass


class ApprovalResolve(Payload, frozen=True, kw_only=True):
    approval_id: str
    choice: str
    request_id: RequestId
    reason: Annotated[str, Meta(max_length=2000)] | None = None


class TaskList(Payload, frozen=True, kw_only=True):
    request_id: RequestId | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    status_filter: TaskStatus | None = None
    cursor: str | None = None
