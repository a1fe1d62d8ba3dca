"""The doors for files on the public port: POST and PATCH /upload, GET /files (docs/protocol.md).

Who knocks says its credential first; until then it is a stranger like any other, and nothing
is read of what it wants to send.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO
from urllib.parse import quote

import msgspec
from aiohttp import web

from loomid import errors
from loomid.errors import (
    BadFrame,
    BadRange,
    PhoneError,
    RateLimited,
    StorageFailing,
    TooLarge,
    Unauthorized,
)
from loomid.files import on_disk
from loomid.lmp import scopes
from loomid.lmp.ranges import part_of
from loomid.reception import Stranger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from aiohttp.abc import AbstractStreamWriter

    from loomid.files import Files, Kept
    from loomid.hub import Hub
    from loomid.lmp.scopes import Scope, Scopes
    from loomid.uploads import Progress, Uploads
    from loomid.vault import Device

    Handler = Callable[["FileDoors", web.Request, Device], Awaitable[web.StreamResponse]]
    _Enter = Callable[["FileDoors", web.Request], Awaitable[web.StreamResponse]]

AT_ONCE = 8
"""Transfers of one device."""
IDLE_S = 30.0
"""A transfer in which nothing moves for so long ends."""
GOODBYE_S = 1.0
PIECE = 256 * 1024
STATUS: dict[type[PhoneError], int] = {
    errors.BadFrame: 400,
    errors.Unauthorized: 401,
    errors.NotPermitted: 403,
    errors.UnknownFile: 404,
    errors.TooLarge: 413,
    errors.BadRange: 416,
    errors.BadFile: 422,
    errors.RateLimited: 429,
    errors.StorageFailing: 503,
}
_WRONG_OFFSET = 409
_HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Accept-Ranges": "bytes",
}


class _Asked(msgspec.Struct, frozen=True):
    """Body of POST /upload."""

    bytes: Annotated[int, msgspec.Meta(ge=1, le=2**50)]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    media_type: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    name: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


def _door(name: str, needs: Scope) -> Callable[[Handler], _Enter]:
    """Lets a device with a scope in, and makes an answer of what it is refused for."""

    def door(handler: Handler) -> _Enter:
        @wraps(handler)
        async def enter(self: FileDoors, request: web.Request) -> web.StreamResponse:
            try:
                device = await self._device(request)
                scopes.permit(device.scopes, needs)
                with self._counted(device, request, needs):
                    return await handler(self, request, device)
            except PhoneError as error:
                self._tally.transfers[name, str(error.params.get("reason", error.code))] += 1
                return await _refused(request, _refusal(error, request.method))
            except ConnectionError:  # the phone has gone, or was sent away: nobody hears more
                self._tally.transfers[name, "broken_off"] += 1
                _abort(request)
                return web.Response()

        return enter

    return door


async def _refused(request: web.Request, response: web.Response) -> web.Response:
    """What a refused phone goes on sending stays unread: aiohttp would read it for a second.

    That second it has to hear why; closing at once would have the kernel drop the answer.
    """
    transport = request.transport
    if transport is not None and not request.content.at_eof():
        transport.pause_reading()
        await response.prepare(request)
        await response.write_eof()
        await asyncio.sleep(GOODBYE_S)
        transport.abort()
    return response


class FileDoors:
    """What `web` serves of files."""

    def __init__(self, hub: Hub, files: Files, uploads: Uploads) -> None:
        self._hub = hub
        self._files = files
        self._uploads = uploads
        self._tally = hub.tally
        self._busy: dict[str, list[tuple[web.Request, Scope]]] = {}
        """The transfers of each device, and the scope that each of them needs."""
        hub.watch_devices(self._end_forbidden)

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Open the doors."""
        router.add_post("/upload", self._begin)
        patch = router.add_resource("/upload/{upload_id}")
        patch.add_route("PATCH", self._append, expect_handler=_not_yet)
        router.add_get("/files/{attachment_id}", self._give)

    @_door("upload", "send")
    async def _begin(self, request: web.Request, device: Device) -> web.StreamResponse:
        try:
            asked = msgspec.json.decode(await _body(request), type=_Asked)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise BadFrame("The upload is not described as it must be.") from None
        progress = await self._uploads.begin(
            device.device_id, asked.bytes, asked.sha256, asked.media_type, asked.name
        )
        begun = "resumed" if progress.offset else "begun"
        self._tally.transfers["upload", "finished" if progress.done else begun] += 1
        return _told(progress, 200 if progress.done else 201)

    @_door("upload", "send")
    async def _append(self, request: web.Request, device: Device) -> web.StreamResponse:
        upload_id = request.match_info["upload_id"]
        size = self._uploads.size(device.device_id, upload_id)
        offset = request.headers.get("Upload-Offset", "")
        if not (offset.isascii() and offset.isdecimal() and len(offset) < 16):
            raise BadFrame("The header Upload-Offset says where the bytes belong.")
        if int(offset) + (request.content_length or 0) > size:
            raise TooLarge(max_bytes=size)
        await _go_on(request)
        progress = await self._uploads.append(
            *(device.device_id, upload_id, int(offset)),
            self._pieces(request),
            partial(_abort, request),
        )
        self._tally.transfers["upload", "finished" if progress.done else "partial"] += 1
        return _told(progress, 200)

    async def _pieces(self, request: web.Request) -> AsyncIterator[bytes]:
        """What a phone sends; ends early when its connection does."""
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    piece = await request.content.readany()
            except (OSError, web.RequestPayloadError):  # a timeout is one, too
                return
            if not piece:
                return
            self._tally.file_bytes["in"] += len(piece)
            yield piece

    @_door("files", "view")
    async def _give(self, request: web.Request, device: Device) -> web.StreamResponse:
        kept = await self._files.find(
            request.match_info["attachment_id"], device.device_id, request.query.get("task_id")
        )
        tag = f'"{kept.row.sha256}"'
        if tag in request.headers.get("If-None-Match", ""):
            self._tally.transfers["files", "unchanged"] += 1
            return web.Response(status=304, headers={"ETag": tag, **_cached()})
        wanted = request.headers.get("Range")
        if request.headers.get("If-Range", tag) != tag:
            wanted = None
        first, end = part_of(wanted, kept.row.bytes)
        response = web.StreamResponse(status=200 if wanted is None else 206)
        response.headers.update(_HARMLESS | _cached() | _described(kept))
        response.headers["ETag"] = tag
        response.content_length = end - first
        if wanted is not None:
            response.headers["Content-Range"] = f"bytes {first}-{end - 1}/{kept.row.bytes}"
        file = await self._files.read(kept)
        try:
            await on_disk(file.seek, first)
            await response.prepare(request)
            whole = request.method == "HEAD" or await self._poured(response, file, end - first)
        finally:
            await on_disk(file.close)
        self._tally.transfers["files", "given" if whole else "broken_off"] += 1
        if not whole:
            _abort(request)  # an error told now would be taken for the file's bytes
        return response

    async def _poured(self, response: web.StreamResponse, file: BinaryIO, left: int) -> bool:
        """Write so many bytes of a file; False when it, or what the phone takes, ends before."""
        try:
            while left:
                piece = await on_disk(file.read, min(PIECE, left))
                if not piece:
                    return False
                left -= len(piece)
                async with asyncio.timeout(IDLE_S):
                    await response.write(piece)
                self._tally.file_bytes["out"] += len(piece)
        except (OSError, StorageFailing):  # a timeout is one, too
            return False
        return True

    # ── who asks ────────────────────────────────────────────────────────────

    async def _device(self, request: web.Request) -> Device:
        """The device whose credential comes with a request. Raises Unauthorized."""
        scheme, _, value = request.headers.get("Authorization", "").partition(" ")
        device_id, _, credential = value.strip().partition(".")
        if scheme.lower() != "bearer" or not credential:
            raise Unauthorized
        device = await self._hub.recognise(device_id, credential)
        stranger = None if request.transport is None else request.transport.get_protocol()
        if isinstance(stranger, Stranger):
            stranger.leave()
        return device

    @contextmanager
    def _counted(self, device: Device, request: web.Request, needs: Scope) -> Iterator[None]:
        mine = self._busy.setdefault(device.device_id, [])
        if len(mine) >= AT_ONCE:
            raise RateLimited(transfers=AT_ONCE)
        mine.append((request, needs))
        try:
            yield
        finally:
            mine.remove((request, needs))
            if not mine:
                del self._busy[device.device_id]

    def _end_forbidden(self, device_id: str, held: Scopes) -> None:
        """A device has these scopes from now on: what it may do no more ends at once."""
        for request, needs in self._busy.get(device_id, ()):
            if needs not in held:
                _abort(request)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(IDLE_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge from None
    except (web.RequestPayloadError, OSError):  # a timeout is one, too
        raise BadFrame from None


async def _not_yet(_: web.Request) -> None:
    """A phone that waits before it sends is told to go on once it was looked at: `_go_on`."""


async def _go_on(request: web.Request) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        writer: AbstractStreamWriter = request.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.output_size = 0


def _told(progress: Progress, status: int) -> web.Response:
    if progress.done is not None:
        body: dict[str, Any] = {"attachment": msgspec.to_builtins(progress.done.ref())}
    else:
        body = {"upload_id": progress.upload_id, "offset": progress.offset}
    return _json(body, status)


def _refusal(error: PhoneError, method: str) -> web.Response:
    """As an `error` frame says it, with a status for those that know HTTP alone."""
    status = STATUS.get(type(error), 500)
    if isinstance(error, BadRange) and method == "PATCH":
        status = _WRONG_OFFSET
    body = {"code": error.code, "message": error.message, "params": error.params}
    response = _json(body, status)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, BadRange) and method != "PATCH":
        response.headers["Content-Range"] = f"bytes */{error.params['bytes']}"
    return response


def _json(body: dict[str, Any], status: int) -> web.Response:
    return web.Response(
        body=json.dumps(body).encode(),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _cached() -> dict[str, str]:
    """The same id has the same bytes for ever; they are nobody's but this device's."""
    return {"Cache-Control": "private, max-age=31536000, immutable"}


def _described(kept: Kept) -> dict[str, str]:
    """Type and name; never shown in place, whatever it is."""
    media_type = kept.row.media_type
    charset = "; charset=utf-8" if media_type.startswith("text/") else ""
    return {
        "Content-Type": media_type + charset,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(kept.name, safe='')}",
    }
