"""A phone in the terminal for `loomid --demo`: pairs and speaks LMP v1 over a real WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from loomid import __version__, demo_script
from loomid.lmp import envelope, frames
from loomid.lmp.file_frames import RunAttachment
from loomid.lmp.questions import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HELP = {
    "/once": "approve what the agent asks for",
    "/session": "approve it for the rest of the conversation",
    "/deny": "refuse it",
    "/answer X": "answer a question with an option, its number, or words of your own",
    "/stop": "cancel the run",
    "/new": "let the next message begin a new task",
    "/help": "show this again",
    "/quit": "end the demo",
}
HOW_TO_ANSWER = "/answer, and one of them or its number"


def words(*, keys: bool) -> str:
    """What can be written to the agent, and with `keys` what this phone understands itself."""
    table = {**demo_script.HELP, "(others)": "says it back", **(HELP if keys else {})}
    return "\n".join(f"  {word:10} {what}" for word, what in table.items())


@dataclass
class Phone:
    """One device; `show` gets what its screen would show, piece by piece."""

    code: Mapping[str, Any]
    """What the QR code holds."""
    show: Callable[[str], None]
    task_id: str | None = None
    run_id: str | None = None
    approvals: dict[str, str | None] = field(default_factory=dict)
    """Those that wait, the oldest first, and the task of each."""
    questions: dict[str, frames.QuestionRequired] = field(default_factory=dict)
    """Those that wait, the oldest first."""
    _request: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _shown: str | None = None
    """The kind of text in whose middle the screen is."""
    _leaving: bool = False

    async def run(self, lines: asyncio.Queue[str | None]) -> None:
        """Pair; then send what is written and show what comes, until a None is written."""
        fp = str(self.code.get("fp") or "").replace(":", "")
        tls = aiohttp.Fingerprint(bytes.fromhex(fp)) if fp else True
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(self.code["url"], ssl=tls, max_msg_size=0) as socket,
            asyncio.TaskGroup() as group,
        ):
            hello = {
                "protocol_version": frames.PROTOCOL_VERSION,
                "token": self.code["token"],
                "device_info": {"model": "terminal", "os": "", "app_version": __version__},
            }
            await self._send(socket, "hello", **hello)
            group.create_task(self._listen(socket))
            while (line := await lines.get()) is not None:
                await self._write(socket, line.strip())
            self._leaving = True
            await socket.close()

    async def _send(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        type_: str,
        **payload: Any,  # noqa: ANN401 - JSON
    ) -> None:
        if not socket.closed:
            await socket.send_str(json.dumps({"v": 1, "type": type_, "payload": payload}))

    async def _write(self, socket: aiohttp.ClientWebSocketResponse, line: str) -> None:
        """What a person typed."""
        request_id = f"t{next(self._request)}"
        match line:
            case "":
                pass
            case "/help":
                self._line(f"Write:\n{words(keys=True)}")
            case "/once" | "/session" | "/deny" if self.approvals:
                answer = {"approval_id": next(iter(self.approvals)), "choice": line[1:]}
                await self._send(socket, "approval.resolve", request_id=request_id, **answer)
            case _ if line.split()[0] == "/answer" and self.questions:
                await self._answer(socket, request_id, line.removeprefix("/answer").strip())
            case "/stop" if self.run_id is not None:
                await self._send(socket, "run.cancel", request_id=request_id, run_id=self.run_id)
            case "/new":
                self.task_id = None
                self._line("The next message begins a new task.")
            case _ if line.startswith("/"):
                known = line.split()[0] in {word.split()[0] for word in HELP}
                what = "There is nothing to answer or to stop." if known else "It is no button."
                self._line(f"{what} /help shows what can be written.")
            case _:
                to = {"task_id": self.task_id} if self.task_id else {}
                if to and self.task_id in self.approvals.values():
                    self._line("queued; to answer write /once, /session or /deny")
                await self._send(socket, "session.send", request_id=request_id, text=line, **to)

    async def _answer(
        self, socket: aiohttp.ClientWebSocketResponse, request_id: str, text: str
    ) -> None:
        """One answer, to each of the questions that wait longest."""
        asked = next(iter(self.questions.values()))
        if not text:
            self._line(HOW_TO_ANSWER)
            return
        try:
            answers = [msgspec.to_builtins(typed(one, text)) for one in asked.questions]
        except ValueError as error:
            self._line(str(error))
            return
        body = {"question_id": asked.question_id, "answers": answers}
        await self._send(socket, "question.answer", request_id=request_id, **body)

    async def _listen(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                try:
                    frame, payload = envelope.decode_server(message.data)
                except (msgspec.DecodeError, KeyError):
                    continue  # a type of a newer server: to be ignored
                if isinstance(payload, frames.Ping):
                    await self._send(socket, "pong")
                else:
                    self._take(frame, payload)
        if not self._leaving:
            self._line(f"The connection was closed ({socket.close_code}).")

    # ── the screen ──────────────────────────────────────────────────────────

    def _take(self, frame: envelope.Frame, payload: frames.Payload) -> None:
        match payload:
            case frames.HelloOk():
                self._line(f"Paired with {payload.server_name} as {payload.device_id}.")
                for gateway in payload.gateways or ():
                    self._gateway(gateway)
            case frames.SendResult():
                self.task_id = payload.task_id
            case frames.ErrorPayload():
                self._line(f"error {payload.code}: {payload.message}")
            case frames.GatewayStatus():
                self._gateway(payload)
            case frames.Notification():
                self._line(f"NOTIFICATION {payload.text}")
            case _:
                self._take_asked(frame, payload)

    def _take_asked(self, frame: envelope.Frame, payload: frames.Payload) -> None:
        match payload:
            case frames.ApprovalRequired():
                self.approvals[payload.approval_id] = payload.task_id
                offered = ", ".join(f"/{choice.choice}" for choice in payload.choices)
                self._line(f"APPROVE? {payload.command} ({payload.description}): {offered}")
            case frames.ApprovalResolved():
                self.approvals.pop(payload.approval_id, None)
                self._line(f"decided: {payload.choice}")
            case frames.QuestionRequired():
                self.questions[payload.question_id] = payload
                for one in payload.questions:
                    named = (f"{n}. {option.label}" for n, option in enumerate(one.options, 1))
                    self._line(f"QUESTION {one.question} ({', '.join(named)}): {HOW_TO_ANSWER}")
            case frames.QuestionResolved():
                self.questions.pop(payload.question_id, None)
                self._line(f"question {payload.outcome}")
            case _:
                self._take_run(frame, payload)

    def _take_run(self, frame: envelope.Frame, payload: frames.Payload) -> None:
        match payload:
            case frames.RunStarted():
                self.run_id = frame.run_id
                self._line(f"run {payload.run_id} started")
            case frames.RunDelta():
                self._text(payload.kind, payload.text)
            case frames.RunToolStarted():
                self._line(f"tool {payload.tool}: {payload.preview}")
            case frames.RunToolFinished():
                word = "done" if payload.ok else "did not run"
                self._line(f"tool {payload.tool} {word} after {payload.duration:.1f} s")
            case RunAttachment():
                told = f"{payload.media_type}, {payload.bytes} bytes" if not payload.error else ""
                self._line(f"file {payload.name}: {told or payload.error}")
            case frames.RunCompleted():
                self.run_id = None
                self._line(f"run {payload.status}")
            case frames.RunFailed():
                self.run_id = None
                self._line(f"run failed: {payload.error}")
            case _:
                pass

    def _gateway(self, one: frames.GatewayInfo | frames.GatewayStatus) -> None:
        self._line(f"gateway {one.name}: {'online' if one.online else 'offline'}")

    def _text(self, kind: str, text: str) -> None:
        if kind != self._shown:
            begin = "\n" if self._shown else ""
            self.show(begin + ("  " if kind == "text" else f"  ({kind}) "))
            self._shown = kind
        self.show(text)

    def _line(self, text: str) -> None:
        self.show(f"{chr(10) if self._shown else ''}· {text}\n")
        self._shown = None
