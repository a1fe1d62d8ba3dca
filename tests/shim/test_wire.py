"""What the shim says is what loomid's types mean, field by field."""

from __future__ import annotations

import ast
import json
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hermes_shim import facts as shim, wire as shim_wire
from hermes_shim.facts import HOOKS, observer, plain
from loomid import hermes_words, wire
from loomid.lmp import facts
from loomid.lmp.preview import cut
from loomid.lmp.stored import calls_of

ADAPTER = Path(__file__).parents[2] / "hermes_shim" / "adapter.py"
# What a fact gets from a look-up beside what its hook says.
LOOKED_UP = {
    "turn.started": {"session_key"},
    "approval.asked": {"approval_id", "command", "choices", "smart_denied", "timeout_s"},
    "approval.done": {"approval_id", "choice", "command_id"},
}
# Facts that no hook gives: the file and the function that tell them.
QUESTIONS = {
    "question.asked": ("questions.py", "_ask"),
    "question.done": ("facts.py", "ended"),
}
# What loomid makes of other fields.
MADE = {
    "file.sent": {"job_id": "metadata"},
    "tool.started": {"preview": "args", "call": "api_request_id"},
    "approval.asked": {"answerable": "choices"},
    "sent": dict.fromkeys(("notify", "expect_edits", "interim", "job_id"), "metadata"),
}


def check(kind: str, names: set[str], spare: set[str] = frozenset()) -> None:
    types = {f.name: f.default is MISSING for f in fields(wire.FACTS[kind])}
    made = {name: source for name, source in MADE.get(kind, {}).items() if source in names}
    have = {hermes_words._OURS.get(name, name) for name in names} | made.keys()
    assert have - spare <= types.keys() | set(made.values()), "loomid would not see this"
    assert {name for name, needed in types.items() if needed} <= have, "loomid needs this"


@pytest.mark.parametrize("hook", HOOKS)
def test_hooks(hook: str) -> None:
    kind, names = HOOKS[hook]
    ids = {"turn_id", "session_id"}
    looked_up = LOOKED_UP.get(kind, set())
    check(kind, {*names.split(), *ids, *looked_up}, spare=ids)


TOLD = {"sent", "edited", "processing.started", "processing.ended", "injected", "file.sent"}


def test_the_adapter() -> None:
    """Every fact that is told by its name in the adapter, with the names it is told with."""
    files = ADAPTER.with_name("files.py")
    tree = ast.parse(ADAPTER.read_text() + files.read_text())
    told: dict[str, set[str]] = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        dicts = {
            target.id: {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(function):  # name["key"] = …
            match node:
                case ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))]
                ):
                    dicts[name].add(key)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "_tell":
                names = {"session_key", "message_id"}
                for keyword in call.keywords:
                    name = getattr(keyword.value, "id", "")
                    names |= {keyword.arg} if keyword.arg else dicts.get(name, set())
                told[call.args[0].value] = names
    assert set(told) == TOLD
    for kind, names in told.items():
        check(kind, names, spare={"session_key"})


@pytest.mark.parametrize("kind", QUESTIONS)
def test_questions(kind: str) -> None:
    """What the function says whose fact it is, by the words in it."""
    file, function = QUESTIONS[kind]
    tree = ast.parse(ADAPTER.with_name(file).read_text())
    (made,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == function
    ]
    constants = {n.value for n in ast.walk(made) if isinstance(n, ast.Constant)}
    words = {word for word in constants if isinstance(word, str)}
    names = {f.name for f in fields(wire.FACTS[kind])}
    told = {hermes_words._OURS.get(word, word) for word in words if word.isidentifier()}
    assert names <= told
    assert told - names <= {"clarify", "q"}


def test_every_fact_is_told_by_someone() -> None:
    hooked = {kind for kind, _ in HOOKS.values()}
    asked = {"running", "inventory"}
    assert hooked | asked | TOLD | QUESTIONS.keys() == set(wire.FACTS)
    assert hooked - {"approval.done"} >= set(LOOKED_UP) - {"approval.done"}


def test_constants_are_the_same() -> None:
    for name in ("WIRE_VERSION", "BEAT_S", "BEATS_MISSED", "HOME_CHAT", "PREVIEW_CHARS"):
        assert getattr(wire, name) == getattr(shim_wire, name)


class Queue:
    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []

    def emit(self, kind: str, body: dict[str, Any]) -> None:
        self.facts.append((kind, json.loads(json.dumps(body))))


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    it = Queue()
    monkeypatch.setattr(shim.state, "link", it)
    return it


def typed(queue: Queue) -> Any:
    ((kind, body),) = queue.facts
    return facts.parse(kind, hermes_words.body_of(kind, body))


def test_a_tool_call(queue: Queue) -> None:
    args = {"command": "ls", "deep": {"a": 1}, "n": 3, "long": "x" * 9_000}
    ids = {"turn_id": "s:s:1", "session_id": "s", "api_request_id": "s:s:1:api:2"}
    observer("pre_tool_call")(tool_call_id="c1", tool_name="terminal", args=args, **ids)
    ((_, body),) = queue.facts
    assert len(body["args"]["long"]) == wire.PREVIEW_CHARS + 1
    assert "deep" not in body["args"]
    preview = ("ls\nn: 3\nlong: " + "x" * 9_000)[: wire.PREVIEW_CHARS + 1]
    assert typed(queue) == wire.ToolStarted("s:s:1", "s", 2, "c1", "terminal", preview)


ASKS = [{"question": "Which?", "choices": ["a", "b"]}, {"question": "For whom?"}]


@pytest.mark.parametrize(
    ("args", "preview"),
    [
        ({"question": "Which?", "choices": ["a", "b"]}, "Which?"),
        ({"questions": ASKS}, "Which?\nFor whom?"),
        ({"questions": ASKS, "command": "ls", "n": 1}, "Which?\nFor whom?\nls\nn: 1"),
        ({"questions": ["x", 1, {"what": "x"}, {"question": ""}, *ASKS]}, "Which?\nFor whom?"),
        ({"questions": [{"question": ["x"]}, {"text": "a", "question": "b"}]}, "['x']\na"),
        ({"questions": [{"question": "x" * 1_500}] * 9}, f"{'x' * 1_500}\n{'x' * 499}"),
        ({"questions": "which?"}, "which?"),
        ({"questions": {"questions": [{"question": "x"}]}}, ""),
    ],
)
def test_what_a_tool_asks_is_told_as_history_tells_it(
    queue: Queue, args: dict[str, Any], preview: str
) -> None:
    call = {"tool_call_id": "c1", "tool_name": "other", "args": args}
    observer("pre_tool_call")(turn_id="s:s:1", session_id="s", **call)
    function = {"name": "other", "arguments": json.dumps(args)}
    (kept,) = calls_of([{"id": "c1", "function": function}])
    assert cut(typed(queue).preview) == kept.preview
    assert kept.preview.text == preview


def test_what_hermes_leaves_out_is_empty(queue: Queue) -> None:
    """0.19 gives no `failed` and no reason."""
    observer("on_session_end")(turn_id="t", session_id="s", completed=True, interrupted=None)
    assert typed(queue) == wire.TurnEnded("t", "s", True, False, False, "")


def test_objects_become_text(queue: Queue) -> None:
    message = SimpleNamespace(content=[{"type": "text", "text": "a"}, {"type": "image"}])
    observer("post_api_request")(turn_id="t", api_call_count=1, assistant_message=message)
    assert typed(queue) == wire.ApiEnded("t", 1, "", "a")
    assert plain(["x", {"text": "y"}]) == "y"
    assert len(plain(object)) < 100
    assert plain(b"x" * 9_000) == str(b"x" * 9_000)[: wire.PREVIEW_CHARS + 1]


def test_an_error_is_its_message(queue: Queue) -> None:
    error = {"type": "APIError", "message": "no " * 2_000}
    observer("api_request_error")(
        turn_id="t", session_id="s", api_call_count=1, reason=None, error=error
    )
    fact = typed(queue)
    assert fact.error == ("no " * 2_000)[: wire.PREVIEW_CHARS + 1]
    assert (fact.status_code, fact.reason, fact.retryable) == (None, "", False)


def test_a_sent_text() -> None:
    body = {"chat_id": "c", "session_key": "k", "message_id": "m", "text": "hi", "reply_to": None}
    meta = {"notify": True, "_interim_send": 0, "job_id": "j", "thread_id": "x"}
    fact = facts.parse("sent", hermes_words.body_of("sent", {**body, "metadata": meta}))
    assert (fact.notify, fact.expect_edits, fact.interim, fact.job_id) == (True, False, False, "j")
    fact = facts.parse("sent", hermes_words.body_of("sent", {**body, "metadata": None}))
    assert (fact.notify, fact.job_id) == (False, None)


def test_what_is_typed_already_stays() -> None:
    fact = wire.ToolStarted("t", "s", 1, "c", "terminal", "ls")
    body = asdict(fact)
    assert facts.parse("tool.started", hermes_words.body_of("tool.started", body)) == fact


def test_what_does_not_fit_is_refused() -> None:
    for body in ({"turn_id": "t"}, {"turn_id": ["t"], "text": "x"}):
        with pytest.raises(msgspec.ValidationError):
            facts.parse("turn.answered", hermes_words.body_of("turn.answered", body))
