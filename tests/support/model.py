"""A scripted model server (OpenAI chat completions) on loopback, for real gateways.

What it answers is chosen by the last line of the user's message that begins with one of
these words:

    say N [MS]        N words "w0 w1 …", MS milliseconds apart
    tool              one harmless terminal call, then a final answer
    tools             two harmless terminal calls in one reply, then a final answer
    tooltext N        N words, then the harmless call, then a final answer
    danger [CMD]      a terminal call that needs an approval
    dangers [C & …]   such calls in one reply, of these commands or of two
    clarify [HOW]     a question with two choices; HOW: open (no choices), multi (three, of which
                      several), or batch (all of these at once; one where a call asks only one)
    think [N]         N reasoning deltas, then a short answer
    slow [S]          five words a second for S seconds
    fail [CODE]       an HTTP error
    drop [N]          N words, then the connection breaks
    look              which images it is shown: media type and SHA-256 of each
    hand PATH [& …]   a short answer that sends these files

Anything else is echoed. Hermes' review of a conversation is answered with words, a note and a
skill, both of their own for each message of the user. Requests without tools (titles and the
like) get a fixed answer.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "scripted"
DANGER = "rm -rf /tmp/loomid-test-nothing-here"
REVIEW = "Review the conversation above"
RESULT_CHARS = 600
QUESTIONS: dict[str, dict[str, Any]] = {
    "one": {"question": "Which colour?", "choices": ["red", "blue"]},
    "multi": {"question": "Which sizes?", "choices": ["S", "M", "L"], "multi_select": True},
    "open": {"question": "What for?"},
}
_WORDS = "say|tooltext|tools|tool|dangers|danger|clarify|think|slow|fail|drop|look|hand"
_LINE = re.compile(rf"^\W*({_WORDS})\b[ \t]*(.*)$", re.MULTILINE)

Action = tuple[str, Any]


def _numbers(text: str, *defaults: int) -> list[int]:
    found = [int(number) for number in re.findall(r"\d+", text)]
    return (found + list(defaults[len(found) :]))[: len(defaults)]


def _words(count: int, pause_ms: int = 0) -> Iterator[Action]:
    for index in range(count):
        if pause_ms and index:
            yield "pause", pause_ms / 1000
        yield "text", f"w{index} "


def _terminal(command: str) -> Action:
    return "call", ("terminal", {"command": command})


def _script(  # noqa: C901 - one arm a word
    word: str, rest: str, lists_questions: bool
) -> Iterator[Action]:
    match word:
        case "say":
            yield from _words(*_numbers(rest, 5, 0))
        case "slow":
            yield from _words(_numbers(rest, 10)[0] * 5, 200)
        case "tool":
            yield _terminal("echo hi")
        case "tools":
            yield _terminal("echo one")
            yield _terminal("echo two")
        case "tooltext":
            yield from _words(_numbers(rest, 20)[0])
            yield _terminal("echo hi")
        case "danger":
            yield _terminal(rest or DANGER)
        case "dangers":
            for command in rest.split(" & ") if rest else (DANGER + "-1", DANGER + "-2"):
                yield _terminal(command)
        case "clarify":
            asked = list(QUESTIONS.values()) if rest == "batch" else [QUESTIONS[rest or "one"]]
            yield "call", ("clarify", {"questions": asked} if lists_questions else asked[0])
        case "think":
            yield from (("reasoning", f"r{index} ") for index in range(_numbers(rest, 5)[0]))
            yield "text", "thought it through"
        case "fail":
            yield "error", _numbers(rest, 500)[0]
        case "drop":
            yield from _words(_numbers(rest, 10)[0])
            yield "break", None
        case "hand":
            yield "text", "\nMEDIA:".join(["Here it is.", *rest.split(" & ")])


def _review(number: int) -> Iterator[Action]:
    yield from _words(8, 50)
    yield "call", ("memory", {"action": "add", "target": "memory", "content": f"note {number}"})
    name = f"skill-{number}"
    skill = f"---\nname: {name}\ndescription: What came up in talk {number}\n---\n\nSay so.\n"
    yield "call", ("skill_manage", {"action": "create", "name": name, "content": skill})


def _shown(content: Any) -> Iterator[Action]:
    """What is in the images of a message."""
    parts = content if isinstance(content, list) else []
    urls = [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]
    yield "text", f"{len(urls)} images"
    for url in urls:
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        yield "text", f" {media_type} {hashlib.sha256(base64.b64decode(data)).hexdigest()}"


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def _plan(body: dict[str, Any]) -> Iterator[Action]:
    tools = body.get("tools")
    if not tools:
        return iter([("text", "A short title")])
    messages = body.get("messages") or []
    last = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    user = _text(messages[last].get("content")) if last >= 0 else ""
    results = [_text(m.get("content")) for m in messages[last + 1 :] if m.get("role") == "tool"]
    if results:
        return iter([("text", "done: "), ("text", " | ".join(r[:RESULT_CHARS] for r in results))])
    if REVIEW in user:
        return _review(sum(message.get("role") == "user" for message in messages))
    found = _LINE.findall(user)
    if found and found[-1][0] == "look":
        return _shown(messages[last].get("content"))
    if not found:
        return iter([("text", f"echo: {user[-200:]}")])
    lists = any(
        "questions" in tool.get("function", {}).get("parameters", {}).get("properties", {})
        for tool in tools
        if tool.get("function", {}).get("name") == "clarify"
    )
    return _script(found[-1][0], found[-1][1].strip(), lists)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Model

    def log_message(self, *_: Any) -> None:
        """No access log."""

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            names = ("m2", "m3") if "/second/" in self.path else (NAME,)
            entry = {"object": "model", "owned_by": "tests", "context_length": 200000}
            self._json(200, {"object": "list", "data": [{"id": name} | entry for name in names]})
        else:
            self._json(404, {"error": {"message": "not found"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.server.note(body)
        with suppress(BrokenPipeError, ConnectionResetError):
            (self._stream if body.get("stream") else self._whole)(_plan(body))

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _fail(self, code: int) -> None:
        self._json(code, {"error": {"message": f"scripted failure {code}", "type": "scripted"}})

    def _call(self, index: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
        call_id = f"call_{next(self.server.serial):05d}"
        function = {"name": name, "arguments": json.dumps(args)}
        return {"index": index, "id": call_id, "type": "function", "function": function}

    def _whole(self, actions: Iterator[Action]) -> None:
        text, calls = "", []
        for kind, value in actions:
            if kind == "error":
                return self._fail(value)
            if kind == "text":
                text += value
            elif kind == "call":
                calls.append(self._call(len(calls), *value))
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
        self._json(200, self._body("message", message, calls, "chat.completion"))
        return None

    def _body(
        self, part: str, value: dict[str, Any], calls: Any, kind: str, finish: bool = True
    ) -> dict[str, Any]:
        reason = ("tool_calls" if calls else "stop") if finish else None
        choice = {"index": 0, part: value, "finish_reason": reason}
        body = {"id": "c1", "object": kind, "created": 1, "model": NAME, "choices": [choice]}
        if finish:
            body["usage"] = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        return body

    def _event(self, delta: dict[str, Any], calls: int = 0, finish: bool = False) -> None:
        body = self._body("delta", delta, calls, "chat.completion.chunk", finish)
        self._chunk(f"data: {json.dumps(body)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _stream(self, actions: Iterator[Action]) -> None:
        begun, calls = False, 0
        for kind, value in actions:
            if kind == "error":
                return self._fail(value)
            if not begun:
                begun = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._event({"role": "assistant"})
            if kind == "pause":
                time.sleep(value)
            elif kind == "text":
                self._event({"content": value})
            elif kind == "reasoning":
                self._event({"reasoning_content": value})
            elif kind == "call":
                self._event({"tool_calls": [self._call(calls, *value)]})
                calls += 1
            elif kind == "break":
                self.close_connection = True
                self.connection.shutdown(2)
                return None
        self._event({}, calls, finish=True)
        self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        return None


class Model(ThreadingHTTPServer):
    """The server, running from construction until `close`; `seen` holds each request's messages."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.serial = itertools.count(1)
        self.seen: list[list[dict[str, Any]]] = []
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The base URL, as an OpenAI client wants it."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A gateway that hangs up, or is killed, is no error of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def note(self, body: dict[str, Any]) -> None:
        """Remember what was asked (conversations only)."""
        if body.get("tools"):
            self.seen.append(body.get("messages") or [])

    def asked(self, text: str) -> bool:
        """Whether a conversation held this user text."""
        return any(
            text in _text(m.get("content")) for ms in self.seen for m in ms if m["role"] == "user"
        )

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
