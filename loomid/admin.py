"""The admin socket: what loomictl and the shim's `hermes loomi` ask, over a unix socket.

Whoever reaches it owns the daemon; the directory (0700) and the socket (0600) keep it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from loomid import __version__, hermescli, paircode, values
from loomid.adminclient import VERSION_HEADER
from loomid.errors import PhoneError, StorageFailing
from loomid.farewell import StillOnline
from loomid.lmp import pairing, scopes
from loomid.paircode import Code
from loomid.status import device_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from loomid.hub import Hub
    from loomid.lmp.scopes import Scopes
    from loomid.owner import Owner
    from loomid.vault import Device

log = logging.getLogger("loomid.admin")

MAX_BODY = 16_384
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Admin:
    """Serves the admin socket; `url`, `name` and `fp` go into pairing codes."""

    def __init__(
        self,
        path: Path,
        hub: Hub,
        *,
        url: str,
        name: str,
        fp: str,
        status: Callable[[], dict[str, Any]],
        metrics: Callable[[], Awaitable[bytes]],
        trace: Callable[[str, str | None], dict[str, Any]],
        owner: Owner,
    ) -> None:
        self._path = path
        self._hub = hub
        self._url, self._name, self._fp = url, name, fp
        self._status = status
        self._metrics = metrics
        self._trace = trace
        self._owner = owner
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. The runtime directory is locked, so a socket file there is a dead one."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_answer_in_json])
        app.router.add_post("/pair", self._pair)
        app.router.add_get("/pair/{ref}/outcome", self._outcome)
        app.router.add_delete("/pair/{ref}", self._withdraw)
        app.router.add_get("/devices", self._devices)
        app.router.add_delete("/devices/{device_id}", self._revoke)
        app.router.add_patch("/devices/{device_id}", self._change)
        app.router.add_get("/gateways", self._list_gateways)
        app.router.add_delete("/gateways/{gateway_id}", self._forget)
        app.router.add_get("/status", self._get_status)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/trace/{event_id}", self._get_trace)
        app.router.add_get("/audit", self._audit)
        app.router.add_get("/approvals", self._approvals)
        app.router.add_post("/approvals/{approval_id}", self._approve)
        app.router.add_get("/questions", self._questions)
        app.router.add_post("/questions/{question_id}", self._answer)
        app.router.add_post("/hermes", self._hermes)
        app.on_response_prepare.append(_say_version)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        self._path.unlink(missing_ok=True)
        await web.UnixSite(self._runner, self._path).start()
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Close it; calls that wait are cut."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _pair(self, request: web.Request) -> web.StreamResponse:
        """With `wait`: a line with the code, and one with the outcome; if the caller goes
        before that, the code is withdrawn. Without, it is kept until it runs out."""
        asked = await _body(request, {"name", "url", "ttl", "scopes", "wait"})
        name = _field(asked, "name", values.parse_name)
        url = _field(asked, "url", values.phone_url)
        ttl = _field(asked, "ttl", paircode.parse_ttl)
        wait = _field(asked, "wait", values.yes_no)
        held = _field(asked, "scopes", scopes.parse_json) or scopes.DEFAULT
        code = await self._code(name, url, ttl, held)
        if wait:
            return await _streamed(request, self._awaited(code))
        return web.json_response(_code_json(code))

    async def _code(
        self, name: str | None, url: str | None, ttl: float | None, held: Scopes
    ) -> Code:
        ttl = ttl or pairing.TOKEN_TTL_S
        token, expires_at = await self._hub.desk.mint(name, ttl, held)
        qr = pairing.qr(url or self._url, token, self._name, self._fp)
        drawn = draw(json.dumps(qr, separators=(",", ":"), ensure_ascii=False))
        return Code(qr, drawn, token.hash, expires_at, ttl)

    async def _awaited(self, code: Code) -> AsyncGenerator[dict[str, Any], None]:
        async with paircode.held(self._hub.desk, code.token_hash):
            yield _code_json(code)
            yield _outcome_json(await self._hub.desk.outcome(code.token_hash))

    async def _outcome(self, request: web.Request) -> web.Response:
        try:
            device = await self._hub.desk.outcome(bytes.fromhex(request.match_info["ref"]))
        except (ValueError, KeyError):
            raise _no(404, "there is no such pairing code") from None
        return web.json_response(_outcome_json(device))

    async def _withdraw(self, request: web.Request) -> web.Response:
        try:
            withdrawn = await self._hub.desk.withdraw(bytes.fromhex(request.match_info["ref"]))
        except (ValueError, KeyError):
            raise _no(404, "there is no such pairing code") from None
        return web.json_response({"withdrawn": withdrawn})

    async def _devices(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {"devices": [device_json(one) for one in self._hub.desk.devices()]}
        )

    async def _revoke(self, request: web.Request) -> web.Response:
        if not await self._hub.desk.revoke(request.match_info["device_id"]):
            raise _no(404, "there is no such device")
        return web.json_response({})

    async def _change(self, request: web.Request) -> web.Response:
        asked = await _body(request, {"name", "scopes"})
        name = _field(asked, "name", values.parse_name)
        held = _field(asked, "scopes", scopes.parse_json)
        if name is None and held is None:
            raise _no(400, "name or scopes: both are missing")
        changes = {"name": name, "scopes": held}
        told = {field: value for field, value in changes.items() if value is not None}
        if not await self._hub.desk.change(request.match_info["device_id"], **told):
            raise _no(404, "there is no such device")
        return web.json_response({})

    async def _list_gateways(self, _request: web.Request) -> web.Response:
        return web.json_response({"gateways": self._status()["gateways"]})

    async def _forget(self, request: web.Request) -> web.Response:
        try:
            await self._owner.forget(request.match_info["gateway_id"])
        except KeyError:
            raise _no(404, "there is no such gateway") from None
        except StillOnline as error:
            raise _no(409, str(error)) from None
        return web.json_response({})

    async def _audit(self, request: web.Request) -> web.Response:
        """`?device=` with a device_id: of that device alone; `?since=`: not older."""
        try:
            since = float(request.query.get("since", 0.0))
        except ValueError:
            raise _no(400, "since: seconds since 1970 are needed") from None
        found = await self._owner.audit.latest(request.query.get("device"), since)
        return web.json_response({"audit": found})

    async def _approvals(self, _request: web.Request) -> web.Response:
        return web.json_response({"approvals": await self._owner.approvals()})

    async def _approve(self, request: web.Request) -> web.Response:
        asked = await _body(request, {"choice"})
        choice = _field(asked, "choice", str)
        if choice is None:
            raise _no(400, "choice: it is missing")
        try:
            entry = await self._owner.approve(request.match_info["approval_id"], choice)
        except PhoneError as error:
            raise _no(409, _said(error)) from None
        return web.json_response({"approval": entry})

    async def _questions(self, _request: web.Request) -> web.Response:
        return web.json_response({"questions": await self._owner.questions()})

    async def _answer(self, request: web.Request) -> web.Response:
        """`answers` as a phone gives them; without them the question is cancelled."""
        asked = await _body(request, {"answers"})
        try:
            entry = await self._owner.answer(
                request.match_info["question_id"], asked.get("answers")
            )
        except ValueError as error:
            raise _no(400, f"answers: {error}") from None
        except PhoneError as error:
            raise _no(409, _said(error)) from None
        return web.json_response({"question": entry})

    async def _hermes(self, request: web.Request) -> web.StreamResponse:
        """`hermes loomi …`: a line of JSON for each line to say, as it comes."""
        words = await _json(request)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise _no(400, "the body is a list of words")
        window = request.headers.get(hermescli.TERMINAL)
        told = hermescli.run(self._hub, self._code, words, window)
        return await _streamed(request, told)

    async def _get_status(self, _request: web.Request) -> web.Response:
        return web.json_response(self._status())

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._metrics(), headers=headers)

    async def _get_trace(self, request: web.Request) -> web.Response:
        """`?device=` with a device_id: of that device alone."""
        try:
            asked = request.match_info["event_id"], request.query.get("device")
            return web.json_response(self._trace(*asked))
        except ValueError:
            raise _no(400, "an event's id is e_ and its number from 1 on, as e_123") from None
        except KeyError:
            raise _no(404, "there is no such device") from None


async def _say_version(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """loomictl may be of another version, after an upgrade say."""
    response.headers[VERSION_HEADER] = __version__


async def _streamed(
    request: web.Request, lines: AsyncGenerator[dict[str, Any], None]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    async with contextlib.aclosing(lines):  # it notices when a write fails, or is cancelled
        await response.prepare(request)
        try:
            async for line in lines:
                await response.write(json.dumps(line).encode() + b"\n")
        except StorageFailing as error:
            await response.write(json.dumps({"error": error.message}).encode() + b"\n")
    return response


def _code_json(code: Code) -> dict[str, Any]:
    return {
        "qr": code.qr,
        "drawn": code.drawn,
        "token_ref": code.token_hash.hex(),
        "expires_at": code.expires_at,
        "expires_in": code.expires_in,
    }


def _outcome_json(device: Device | None) -> dict[str, Any]:
    named = None if device is None else {"device_id": device.device_id, "name": device.name}
    return {"paired": named}


def draw(text: str) -> str:
    """The QR code as text, two rows a line, for light characters on a dark ground."""
    import qrcode  # only here: a daemon that pairs nobody need not carry it

    code = qrcode.QRCode(error_correction=qrcode.ERROR_CORRECT_L, border=4)
    code.add_data(text)
    out = io.StringIO()
    code.print_ascii(out=out, invert=True)
    return out.getvalue()


def _said(error: PhoneError) -> str:
    """An error for a phone in words for the owner: `It was decided. (choice: once, …)`."""
    params = ", ".join(f"{name}: {_plainly(value)}" for name, value in error.params.items())
    return f"{error.message} ({params})" if params else error.message


def _plainly(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_plainly(one) for one in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _no(status: int, message: str) -> web.HTTPException:
    kinds: dict[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        404: web.HTTPNotFound,
        409: web.HTTPConflict,
    }
    return kinds[status](text=json.dumps({"error": message}), content_type="application/json")


async def _json(request: web.Request) -> object:
    raw = await request.read()
    try:
        return json.loads(raw or b"{}")
    except (ValueError, RecursionError):
        raise _no(400, "the body is not JSON") from None


async def _body(request: web.Request, known: set[str]) -> dict[str, Any]:
    asked = await _json(request)
    if not isinstance(asked, dict) or not asked.keys() <= known:
        raise _no(400, f"the body may have {', '.join(sorted(known))}, nothing else")
    return asked


def _field(asked: dict[str, Any], key: str, parse: Callable[[object], Any]) -> Any:  # noqa: ANN401
    if asked.get(key) is None:
        return None
    try:
        return parse(asked[key])
    except ValueError as error:
        raise _no(400, f"{key}: {error}") from None


@web.middleware
async def _answer_in_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every refusal has the same shape; what escapes a handler is a bug, and is logged."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.content_type != "application/json":
            error.text = json.dumps({"error": error.reason.lower()})
            error.content_type = "application/json"
        raise
    except asyncio.CancelledError:
        raise
    except StorageFailing as error:
        return web.json_response({"error": error.message}, status=503)
    except Exception:
        log.exception("an admin call failed")
        return web.json_response({"error": "loomid met an error; its log says more"}, status=500)
