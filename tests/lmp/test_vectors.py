"""The golden frames: what other clients of LMP are tested with holds here as well."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import msgspec
import pytest

from loomid.errors import PhoneError
from loomid.lmp import envelope, frames
from tests.support import vectors

SERVER = vectors.load("server")
CLIENT = vectors.load("client")
INVALID = vectors.load("invalid")
SCHEMA = envelope.schema()


def _read_client(frame: object) -> frames.Payload:
    payload = envelope.decode_client(json.dumps(frame)).payload
    assert payload is not None
    return payload


def _read_server(frame: object) -> frames.Payload:
    return envelope.decode_server(json.dumps(frame))[1]


def _validator(side: str, type_: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**SCHEMA, **SCHEMA[side][type_]})


@pytest.mark.parametrize(
    ("table", "files"), [(frames.SERVER, SERVER), (frames.CLIENT, CLIENT)], ids=["server", "client"]
)
def test_every_type_has_a_vector_of_its_name(table: dict[str, Any], files: dict[str, Any]) -> None:
    assert set(table) <= set(files)
    for stem, frame in files.items():
        assert stem.partition("@")[0] == frame["type"]
    shown: dict[type, set[str]] = {}
    for frame in files.values():
        shown.setdefault(table[frame["type"]], set()).update(frame.get("payload", {}))
    assert shown == {cls: {*cls.__struct_fields__} for cls in table.values()}


@pytest.mark.parametrize("stem", SERVER)
def test_server_frame_encodes_again_to_the_same(stem: str) -> None:
    golden = SERVER[stem]
    frame, payload = envelope.decode_server(json.dumps(golden))
    parts = envelope.frame_parts(
        frame.type,
        frame.ts,
        frame.task_id,
        frame.run_id,
        envelope.encode_payload(payload),
        replay=frame.replay,
    )
    again = envelope.render(frame.seq, parts)
    assert json.loads(again) == golden
    # Field order too: the file is what loomid sends, but for white space.
    assert json.dumps(json.loads(again)) == json.dumps(golden)
    _validator("server", frame.type).validate(json.loads(again)["payload"])


@pytest.mark.parametrize("stem", CLIENT)
def test_client_frame_encodes_again_to_the_same(stem: str) -> None:
    golden = CLIENT[stem]
    payload = _read_client(golden)
    again = json.loads(envelope.encode_payload(payload))
    body = golden.get("payload", {})
    assert {name: again[name] for name in body} == body
    if "@" not in stem:
        assert again == body
    assert _read_client({**golden, "payload": again}) == payload
    _validator("client", golden["type"]).validate(body)


@pytest.mark.parametrize("stem", INVALID)
def test_invalid_frame_is_refused_with_its_code(stem: str) -> None:
    vector = INVALID[stem]
    text = vector["text"] if "text" in vector else json.dumps(vector["frame"])
    try:
        frame = envelope.decode_client(text)
    except PhoneError as error:
        said = (error.code, getattr(error, "request_id", None))
        message = error.message
    else:
        said = ("unknown_type" if frame.payload is None else "accepted", frame.request_id)
        message = ""
    assert "shout" not in message  # a value of the client's never comes back
    assert said == (vector["error"], vector.get("request_id"))


def _cases() -> list[Any]:
    return [
        pytest.param(side, frame, path, id=f"{side}-{stem}-{'.'.join(map(str, path)) or 'payload'}")
        for side, files in (("server", SERVER), ("client", CLIENT))
        for stem, frame in files.items()
        for path in vectors.paths(frame.get("payload", {}))
    ]


@pytest.mark.parametrize(("side", "frame", "path"), _cases())
def test_unknown_fields_are_ignored_and_required_ones_missed(
    side: str, frame: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    read = _read_server if side == "server" else _read_client
    table = frames.SERVER if side == "server" else frames.CLIENT
    struct = vectors.struct_at(table[frame["type"]], path)
    if struct is None:
        return
    more = copy.deepcopy(frame)
    more["from_the_future"] = {"x": [1]}
    vectors.reach(more.setdefault("payload", {}), path)["from_the_future"] = {"x": [None]}
    assert read(more) == read(frame)

    for field in msgspec.structs.fields(struct):
        if not field.required:
            continue
        less = copy.deepcopy(frame)
        del vectors.reach(less["payload"], path)[field.encode_name]
        with pytest.raises((envelope.BadPayload, msgspec.ValidationError), match=field.encode_name):
            read(less)
        assert not _validator(side, frame["type"]).is_valid(less["payload"])


_TEXTS = [
    pytest.param(type_, path, id=f"{type_}-{'.'.join(path)}")
    for type_, cls in frames.CLIENT.items()
    for path in vectors.text_fields(cls)
]
_BROKEN = {
    r"\ud800": "\ufffd",
    r"\udc00\ud800": "\ufffd\ufffd",
    r"a\u0000b": "a\ufffdb",
    "\ud83d": "\ufffd",
    "\x00": "\ufffd",
    r"\ud83d\ude00": "\U0001f600",
    r"\\ud800": r"\ud800",
}


@pytest.mark.parametrize(("type_", "path"), _TEXTS)
@pytest.mark.parametrize("escaped", _BROKEN, ids=ascii)
def test_broken_text_becomes_the_replacement_character(
    type_: str, path: tuple[str, ...], escaped: str
) -> None:
    golden = copy.deepcopy(CLIENT[type_])
    *above, last = (0 if step == "*" else step for step in path)
    vectors.reach(golden["payload"], tuple(above))[last] = "MARK"
    text = json.dumps(golden).replace("MARK", escaped)
    payload = json.loads(envelope.encode_payload(_decode(text)))
    assert vectors.reach(payload, tuple(above))[last] == _BROKEN[escaped]


def _decode(text: str) -> frames.Payload:
    payload = envelope.decode_client(text).payload
    assert payload is not None
    return payload


def test_all_text_fields_are_tried() -> None:
    tried = {(case.values[0], case.values[1]) for case in _TEXTS}
    assert ("hello", ("device_info", "os")) in tried
    assert ("hello", ("capabilities", "*")) in tried
    assert ("session.send", ("request_id",)) in tried
    assert ("session.send", ("attachments", "*", "name")) in tried
    assert ("question.answer", ("answers", "*", "selected", "*")) in tried
    assert len(tried) == 78
