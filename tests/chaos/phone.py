"""A phone: a device with a connection that comes and goes, and a user who taps at random."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from loomid.lmp import envelope
from tests.chaos import answers
from tests.chaos.asking import Asking
from tests.chaos.frame import Frame
from tests.support.view import asked_id

if TYPE_CHECKING:
    from collections import Counter
    from random import Random

    from tests.chaos.device import Device, Oracle
    from tests.chaos.trace import Violated

PATIENCE_S = 30.0
"""How long a stopped loomid may take to answer a hello."""
RECONNECT_S = (0.02, 0.2)
TASKS_KEPT = 4
QUESTIONS_KEPT = 12
NORMAL = {None, 1000, 1001, 1006}
INFO = {"model": "Pixel", "os": "Android 16", "app_version": "1.0"}


def decoded(text: str) -> Frame:
    """A frame of the server as it came; its types are checked."""
    frame, _ = envelope.decode_server(text)
    body = bytes(frame.payload)
    payload = msgspec.json.decode(body)
    replay = frame.replay is True
    return Frame(frame.seq, frame.type, replay, frame.ts, frame.run_id, body, payload)


class Phone:
    """`live` connects for as long as it is `wanted`; the other methods are what happens to it."""

    def __init__(
        self,
        device: Device,
        oracle: Oracle,
        http: aiohttp.ClientSession,
        url: str,
        rng: Random,
        counts: Counter[str],
        violated: Violated,
    ) -> None:
        self.device = device
        self.wanted = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.back = "right"
        self.snapshot = True
        self.tasks: list[str] = []
        """Those that it wrote to last."""
        self.questions: list[dict[str, Any]] = []
        """Those that it was asked last, over or not."""
        self.asking = Asking(device.name, oracle.judge.truth, violated)
        self.group: asyncio.TaskGroup
        self._oracle, self._http, self._url, self._rng = oracle, http, url, rng
        self._counts, self._violated = counts, violated
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._connections = 0  # hellos that were said
        self._expected = NORMAL
        self._spare: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """hello.ok has come on a connection that is there."""
        return self._ws is not None and not self._ws.closed

    # ── the connection ──────────────────────────────────────────────────────

    async def pair(self, token: str) -> None:
        """Be paired, and leave again."""
        async with self._http.ws_connect(self._url, max_msg_size=0) as ws:
            hello = {"protocol_version": 1, "token": token, "device_info": INFO}
            await ws.send_str(json.dumps({"v": 1, "type": "hello", "payload": hello}))
            frame = decoded((await ws.receive(PATIENCE_S)).data)
            self.device.greeted(frame, self._oracle.era, snapshot=False)
            self.asking.device_id = self.device.device_id

    async def live(self) -> None:
        """Be connected whenever wanted, until cancelled."""
        while True:
            await self.wanted.wait()
            if self._oracle.complete or self.device.witness:
                await self._connection()
                if self._spare is not None:
                    await asyncio.wait([self._spare])
                    self._spare = None
            await asyncio.sleep(self._rng.uniform(*RECONNECT_S))

    async def _connection(self) -> None:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            era = self._oracle.era
            async with asyncio.timeout(PATIENCE_S):
                ws = await self._http.ws_connect(self._url, max_msg_size=0, timeout=CLOSING)
            async with ws:
                if era == self._oracle.era:
                    await self._converse(ws, era)

    async def _converse(self, ws: aiohttp.ClientWebSocketResponse, era: int) -> None:
        self._connections += 1
        mine, how, snapshot = self._connections, self.back, self.snapshot
        self.back = "right"
        await self._say_hello(ws, how, snapshot=snapshot)
        greeted = False
        while True:
            await self.reading.wait()
            message = await ws.receive()
            if mine != self._connections:
                return  # another connection of this device took its place
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            frame = decoded(message.data)
            if not greeted:
                if not self._greeted(ws, frame, era, how, snapshot=snapshot):
                    return
                greeted = True
                await self._ask_again(ws)
            else:
                await self._take(ws, frame)
        self._hung_up(ws)

    async def _say_hello(
        self, ws: aiohttp.ClientWebSocketResponse, how: str, *, snapshot: bool
    ) -> None:
        device = self.device
        hello: dict[str, Any] = {"protocol_version": 1, "device_info": INFO}
        hello |= {"device_id": device.device_id, "credential": device.credential}
        last_seq = device.hello(how)
        if last_seq is not None:
            hello["last_seq"] = last_seq
        if snapshot:
            hello["capabilities"] = ["snapshot"]
        await ws.send_str(json.dumps({"v": 1, "type": "hello", "payload": hello}))

    def _greeted(
        self,
        ws: aiohttp.ClientWebSocketResponse,
        frame: Frame,
        era: int,
        how: str,
        *,
        snapshot: bool,
    ) -> bool:
        if frame.type != "hello.ok":
            refused = how == "absurd" and frame.payload["code"] == "bad_frame"
            if not refused:
                self._violated("hello refused", device=self.device.name, **frame.payload)
            return False
        if how == "absurd":
            self._violated("hello", what="an absurd last_seq was taken", device=self.device.name)
        self._counts["connections"] += 1
        self._counts["truncations"] += frame.payload["truncated"]
        self.device.greeted(frame, era, snapshot=snapshot)
        self._ws = ws
        return True

    async def _take(self, ws: aiohttp.ClientWebSocketResponse, frame: Frame) -> None:
        self.device.take(frame)
        if frame.type == "ping":
            await ws.send_str('{"v":1,"type":"pong","payload":{}}')
        elif frame.type == "question.required":
            self.questions = [*self.questions, frame.payload][-QUESTIONS_KEPT:]
        elif frame.type == "error" or frame.type.endswith(".result"):
            code = self.asking.answer(frame)
            self._counts[f"answers {code or 'ok'}"] += code is not None
            if code == "already_resolved":
                self._told_too_late(frame.payload)
            if frame.type == "session.send.result":
                self.tasks = [*self.tasks, frame.payload["task_id"]][-TASKS_KEPT:]
            if code is None and frame.payload.get("code") != "rate_limited":
                self._violated("an answer to nothing", **frame.payload)

    def _told_too_late(self, payload: dict[str, Any]) -> None:
        ask = self.asking.asks[payload["request_id"]]
        self._oracle.judge.told(asked_id(ask.payload), payload.get("params", {}))

    def _hung_up(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        if ws.close_code not in self._expected:
            self._violated("closed", device=self.device.name, code=ws.close_code)
        self._ws = None
        self._expected = NORMAL
        self.asking.hung_up()

    # ── what happens to it ──────────────────────────────────────────────────

    def vanish(self, *, abort: bool = True) -> None:
        """The connection breaks; without `abort`, in an orderly way."""
        ws = self._ws
        self.reading.set()
        if ws is None or ws.closed:
            return
        if abort:
            connection = ws._conn  # aiohttp has no public way to break one
            if connection is not None and connection.transport is not None:
                connection.transport.abort()
        else:
            self.group.create_task(self._close(ws))

    @staticmethod
    async def _close(ws: aiohttp.ClientWebSocketResponse) -> None:
        with suppress(aiohttp.ClientError, OSError):
            await ws.close()

    def stall(self) -> None:
        """Read nothing until `go_on`."""
        self.reading.clear()
        self._expected = NORMAL | {4005, 4006}

    def go_on(self) -> None:
        """Read again."""
        self.reading.set()

    def double(self) -> None:
        """Connect once more, beside the connection that is there."""
        if self._spare is None and self.connected and self._oracle.complete:
            self._spare = self.group.create_task(self._connection())

    # ── what its user does ──────────────────────────────────────────────────

    async def _ask_again(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        """Repeat what was not answered, as an app must."""
        for ask in [*self.asking.open()]:
            await self._send(ws, ask)

    async def _send(self, ws: aiohttp.ClientWebSocketResponse, ask: Any) -> None:
        ask.waits = True
        self._counts["requests made"] += 1
        with suppress(aiohttp.ClientError, OSError):
            await ws.send_str(ask.frame)

    async def ask(self, type_: str, /, **payload: Any) -> bool:
        """A new request; False without a connection."""
        if self._ws is None or self._ws.closed:
            return False
        self._counts["requests"] += 1
        await self._send(self._ws, self.asking.new(type_, **payload))
        return True

    async def repeat(self, choose: float) -> bool:
        """One of the last requests again, answered or not, on whatever connection is there."""
        recent = self.asking.recent()
        if self._ws is None or self._ws.closed or not recent:
            return False
        await self._send(self._ws, recent[int(choose * len(recent))])
        return True

    async def ask_open(self) -> None:
        """Repeat what no answer is on its way to."""
        for ask in [ask for ask in self.asking.open() if not ask.waits]:
            if self._ws is not None and not self._ws.closed:
                await self._send(self._ws, ask)

    async def approve(self, approval_id: str, choice: str) -> bool:
        """Answer an approval."""
        return await self.ask("approval.resolve", approval_id=approval_id, choice=choice)

    async def answer(self, asked: dict[str, Any], how: str, rng: Random) -> bool:
        """Answer a question: `right`, `wrong` or `cancel`."""
        about, questions = {"question_id": asked["question_id"]}, asked["questions"]
        if how == "cancel":
            return await self.ask("question.cancel", **about)
        if how == "wrong":
            said = answers.wrong(questions, rng)
            return await self.ask("question.answer", wrong=True, answers=said, **about)
        return await self.ask("question.answer", answers=answers.right(questions, rng), **about)


CLOSING = aiohttp.ClientWSTimeout(ws_close=1.0)
