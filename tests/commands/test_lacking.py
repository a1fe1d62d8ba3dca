"""What takes a capability that a gateway lacks is refused alike, whatever the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from loomid.errors import PhoneError
from loomid.lmp import capabilities, frames
from tests.commands.test_controls import MODELS
from tests.support import vectors
from tests.support.answering import Host, Side, key_of
from tests.support.samples import b64
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

OPS = sorted(op for ops in capabilities.OPS.values() for op in ops)
TEXT = {"data": b64(b"hello")}


def requests(ours: str, other: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every type that a gateway may be asked for, by its golden frames."""
    about = {"task_id": ours, "gateway_id": "gw1"}
    for stem, frame in vectors.load("client").items():
        type_, payload = frame["type"], dict(frame.get("payload", {}))
        if type_ not in frames.REQUESTS:
            continue
        payload |= {name: value for name, value in about.items() if payload.get(name)}
        payload["request_id"] = stem
        if type_ == "task.continue":
            payload["task_id"] = other
        if type_ == "model.set":
            payload |= {"model": "b-1", "provider": "b", "confirm": True}
        if payload.get("attachments"):
            payload["attachments"] = [TEXT]
        yield type_, payload


@pytest.mark.parametrize("op", [op for op in OPS if op != "answer"])
async def test_every_request_that_needs_it_is_refused(side: Side, host: Host, op: str) -> None:
    keys = {"loomi": key_of("old"), "telegram": "agent:main:telegram:dm:7"}
    host.sessions = [
        {"id": source, "session_key": key, "source": source, "started_at": 1.0, "last_active": 5.0}
        for source, key in keys.items()
    ]
    host.values["models"] = MODELS | {"current": MODELS["default"]}
    host.values["modes"] = {"approvals": "manual", "efforts": ["low"], "yolo": False}
    host.values |= {name: {} for name in ("set_model", "set_mode", "rename", "open", "branch")}
    host.values["host"] = {}
    host.errors[op] = "unknown_op"
    for type_, payload in requests(*(side.task_id(key) for key in keys.values())):
        came = len(host.ops(op))
        try:
            await side.ask(type_, **payload)
            error = None
        except PhoneError as refused:
            error = refused
        if len(host.ops(op)) > came and not payload.get("command"):
            assert error is not None, type_
            told = error.code, error.params
            assert told == ("not_permitted", {"reason": "not_supported"}), type_
    assert host.ops(op), "no request needs it"


async def test_an_answer_that_it_cannot_take_comes_back(side: Side, host: Host) -> None:
    """It was accepted already: that it came to nothing is told as of any answer."""
    host.errors["answer"] = "unknown_op"
    host.question("q1")
    await until(lambda: bool(side.log.projection.waiting()))
    (name,) = side.log.projection.waiting()
    answers = [{"id": "q0", "selected": ["red"]}]
    await side.ask("question.answer", request_id="r1", question_id=name, answers=answers)
    await until(lambda: bool(side.reminded))
    assert [returned.reason for _, returned in side.reminded] == ["not_permitted"]
