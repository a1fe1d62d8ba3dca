"""The schema: committed as generated, additive since 1.0, complete against LMP §4."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import msgspec
import pytest

from loomid.lmp import __main__ as schema_text, envelope, frames
from tests.support import vectors

COMMITTED = vectors.DOCS / "lmp.schema.json"
BASELINE = json.loads((vectors.ROOT / "lmp-1.0.schema.json").read_text(encoding="utf-8"))

# LMP v1 §4 as it was published: `?` marks what may be absent, `a.b` a field of an object in it.
SEED_SERVER = {
    "hello.ok": "device_id credential? server_name server_version protocol_version server_time"
    " truncated home_channel",
    "error": "code message fatal",
    "run.started": "run_id task_id session_id surface model provider started_at title",
    "run.delta": "run_id text kind iteration",
    "run.interim": "run_id text already_streamed",
    "run.tool_started": "run_id iteration tool preview index call_id",
    "run.tool_finished": "run_id iteration tool ok index call_id duration",
    "run.completed": "run_id status text error finished",
    "run.failed": "run_id error status",
    "approval.required": "approval_id run_id task_id command description choices choices.label"
    " choices.choice choices.style smart_denied session_key_ref deadline_ts",
    "approval.resolved": "approval_id choice decided_by",
    "notification": "category title text source requires_attention",
    "task.list.result": "tasks",
    "pong": "",
    "ping": "",
}
SEED_CLIENT = {
    "hello": "protocol_version token? device_id? credential? last_seq? device_info?"
    " device_info.model? device_info.os? device_info.app_version?",
    "pong": "",
    "ping": "",
    "session.send": "task_id? text request_id",
    "run.cancel": "run_id",
    "run.pause": "run_id",
    "run.resume": "run_id",
    "approval.resolve": "approval_id choice reason? request_id",
    "task.list": "request_id? limit? status_filter?",
}
SEED_WORDS = {
    ("run.delta", "kind"): {"text", "reasoning"},
    ("run.completed", "status"): {"completed", "failed", "cancelled"},
    ("run.failed", "status"): {"failed"},
    ("approval.resolved", "decided_by"): {"local", "remote", "timeout", "agent"},
    ("notification", "category"): {"result", "diagnostic"},
}


@pytest.mark.timeout(300)
def test_the_committed_schema_is_the_generated_one() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == schema_text.text(), (
        "regenerate it: python -m loomid.lmp > docs/lmp.schema.json"
    )
    for side in ("server", "client"):
        for ref in envelope.schema()[side].values():
            jsonschema.Draft202012Validator.check_schema({**envelope.schema(), **ref})


@pytest.mark.parametrize(
    ("table", "seed"),
    [(frames.SERVER, SEED_SERVER), (frames.CLIENT, SEED_CLIENT)],
    ids=["server", "client"],
)
def test_every_field_of_the_published_tables_is_there(
    table: dict[str, type[frames.Payload]], seed: dict[str, str]
) -> None:
    for type_, fields in seed.items():
        for entry in fields.split():
            name, may_be_absent = entry.rstrip("?"), entry.endswith("?")
            *above, last = name.split(".")
            struct = vectors.struct_at(table[type_], _into(above))
            assert struct is not None, (type_, name)
            field = {f.encode_name: f for f in msgspec.structs.fields(struct)}[last]
            always = field.required or field.default is not msgspec.UNSET
            assert always or may_be_absent, (type_, name)
            assert not (table is frames.CLIENT and may_be_absent and field.required), (type_, name)


def _into(above: list[str]) -> tuple[str | int, ...]:
    path: list[str | int] = []
    for step in above:
        path += [step, 0] if step == "choices" else [step]
    return tuple(path)


def test_a_client_need_send_no_more_than_the_published_fields() -> None:
    for type_, fields in SEED_CLIENT.items():
        known = set(fields.split())
        required = {
            f.encode_name for f in msgspec.structs.fields(frames.CLIENT[type_]) if f.required
        }
        assert required <= known, type_


def test_the_published_words_are_the_words() -> None:
    definitions = envelope.schema()["$defs"]
    for (type_, field), words in SEED_WORDS.items():
        shape = definitions[frames.SERVER[type_].__name__]["properties"][field]
        assert set(shape["enum"]) == words


def _broken(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What in `new` breaks a client written for `old` (LMP §6: additions only)."""
    found: list[str] = []
    for side in ("server", "client"):
        for type_, ref in old[side].items():
            if type_ not in new[side]:
                found.append(f"{side} {type_}: gone")
                continue
            _compare(side, type_, (ref, old["$defs"]), (new[side][type_], new["$defs"]), found)
    return found


_Shape = tuple[dict[str, Any], dict[str, Any]]


def _compare(side: str, at: str, old: _Shape, new: _Shape, found: list[str]) -> None:
    before, now = (
        shape[1][shape[0]["$ref"].rpartition("/")[2]] if "$ref" in shape[0] else shape[0]
        for shape in (old, new)
    )
    if before.get("type") == "object" and now.get("type") == "object":
        _compare_object(side, at, (before, old[1]), (now, new[1]), found)
    elif before.get("type") == "array" and now.get("type") == "array":
        _compare(side, f"{at}[]", (before["items"], old[1]), (now["items"], new[1]), found)
    elif "enum" in before and "enum" in now and side == "client":
        # A server may come to understand more words, never fewer.
        found += [f"{side} {at}: word {w}" for w in before["enum"] if w not in now["enum"]]
    elif before != now:
        found.append(f"{side} {at}: type")


def _compare_object(side: str, at: str, old: _Shape, new: _Shape, found: list[str]) -> None:
    (before, old_defs), (now, new_defs) = old, new
    for name, shape in before.get("properties", {}).items():
        if name not in now.get("properties", {}):
            found.append(f"{side} {at}.{name}: gone")
        else:
            pair = (shape, old_defs), (now["properties"][name], new_defs)
            _compare(side, f"{at}.{name}", *pair, found)
    was, is_ = set(before.get("required", [])), set(now.get("required", []))
    if side == "client":
        found += [f"{side} {at}.{name}: newly required" for name in sorted(is_ - was)]
    else:
        found += [f"{side} {at}.{name}: may now be absent" for name in sorted(was - is_)]


def test_only_additions_since_1_0() -> None:
    assert _broken(BASELINE, envelope.schema()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["server"].pop("run.delta"), "server run.delta: gone"),
        (lambda s: _of(s, "RunDelta").pop("text"), "server run.delta.text: gone"),
        (
            lambda s: _of(s, "RunDelta").update(text={"type": "integer"}),
            "server run.delta.text: type",
        ),
        (
            lambda s: _of(s, "Choice").update(label={"type": "integer"}),
            "server approval.required.choices[].label: type",
        ),
        (
            lambda s: s["$defs"]["RunDelta"]["required"].remove("text"),
            "server run.delta.text: may now be absent",
        ),
        (
            lambda s: s["$defs"]["SessionSend"]["required"].append("mode"),
            "client session.send.mode: newly required",
        ),
        (
            lambda s: _of(s, "SessionSend")["mode"]["enum"].remove("steer"),
            "client session.send.mode: word steer",
        ),
        (
            lambda s: _of(s, "RunDelta")["kind"]["enum"].append("audio"),
            "server run.delta.kind: type",
        ),
    ],
)
def test_what_is_no_addition_is_found(change: Any, said: str) -> None:
    changed = copy.deepcopy(BASELINE)
    change(changed)
    assert _broken(BASELINE, changed) == [said]


def _of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    properties: dict[str, Any] = schema["$defs"][name]["properties"]
    return properties


def test_additions_are_found_to_be_none() -> None:
    more = copy.deepcopy(BASELINE)
    more["server"]["run.sound"] = {"$ref": "#/$defs/Pong"}
    _of(more, "RunDelta")["lang"] = {"type": "string"}
    _of(more, "SessionSend")["mode"]["enum"].append("later")
    more["$defs"]["RunDelta"]["required"].append("lang")
    assert _broken(BASELINE, more) == []
