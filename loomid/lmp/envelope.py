"""Whole frames: LMP's envelope around the payloads of frames.py, decoded and encoded.

Also the JSON Schema of all types, which is committed as docs/lmp.schema.json.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from loomid.errors import BadFrame, BadJson, UnsupportedVersion
from loomid.lmp.frames import CLIENT, PROTOCOL_VERSION, SERVER, Payload
from loomid.text import valid_json_text


class Frame(Struct, frozen=True):
    """A server frame as LMP §2 has it, payload still encoded. Used by clients and tests."""

    v: int
    seq: int
    ts: float
    type: str
    task_id: str | None
    run_id: str | None
    event_id: str
    payload: Raw
    replay: bool = False


class _ClientEnvelope(Struct, frozen=True):
    v: int
    type: str
    payload: Raw = Raw(b"{}")


class _Version(Struct, frozen=True):
    v: int


class _AnyRequestId(Struct, frozen=True):
    request_id: str | None = None


_encoder = msgspec.json.Encoder()
_envelope = msgspec.json.Decoder(_ClientEnvelope)
_version = msgspec.json.Decoder(_Version)
_request_id = msgspec.json.Decoder(_AnyRequestId)
_decoders = {name: msgspec.json.Decoder(cls) for name, cls in CLIENT.items()}


class ClientFrame(Struct, frozen=True):
    """A decoded client frame. `payload` is None when `type` is not known here."""

    type: str
    payload: Payload | None
    request_id: str | None
    """Whatever the payload gave as request_id, so that an error can name it."""
    body: bytes
    """The payload's JSON after cleaning; the fingerprint of a request is made of it."""


class BadPayload(BadFrame):
    """A frame of a known type with wrong fields; remembers its request_id."""

    def __init__(self, message: str, request_id: str | None) -> None:
        super().__init__(message)
        self.request_id = request_id


def decode_client(text: str) -> ClientFrame:
    """Decode one frame from a phone (LMP §2).

    Raises BadJson, BadFrame (BadPayload) or UnsupportedVersion; never anything else.
    The messages name fields and types, never values.
    """
    try:
        raw = valid_json_text(text).encode()
        version = _version.decode(raw)
    except msgspec.ValidationError as error:
        raise BadFrame(_say(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadJson from None
    if version.v != PROTOCOL_VERSION:
        raise UnsupportedVersion(speaks=[PROTOCOL_VERSION])
    try:
        envelope = _envelope.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadFrame(_say(error)) from None
    request_id = _request_id_of(envelope.payload)
    decoder = _decoders.get(envelope.type)
    if decoder is None:
        return ClientFrame(envelope.type, None, request_id, bytes(envelope.payload))
    try:
        payload = decoder.decode(envelope.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadPayload(_say(error), request_id) from None
    return ClientFrame(envelope.type, payload, request_id, bytes(envelope.payload))


def _request_id_of(payload: Raw) -> str | None:
    try:
        found = _request_id.decode(payload).request_id
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if found is None or len(found) <= 128 else None


def _say(error: Exception) -> str:
    """msgspec's complaint, which names types and paths; enum values are the client's."""
    said = str(error)
    return "Invalid value" + said[said.rfind(" - at") :] if "Invalid enum" in said else said


def encode_payload(payload: Payload) -> bytes:
    """The payload's JSON. Text in it must already be valid (see valid_json_text)."""
    return _encoder.encode(payload)


def frame_parts(
    type_: str,
    ts: float,
    task_id: str | None,
    run_id: str | None,
    payload: bytes,
    *,
    replay: bool = False,
) -> bytes:
    """What a frame holds behind its event_id: the part that is the same for all devices."""
    about = _about(type_, task_id, run_id, replay)
    return b"".join((b',"ts":', _encoder.encode(ts), about, payload, b"}"))


@lru_cache(256)
def _about(type_: str, task_id: str | None, run_id: str | None, replay: bool) -> bytes:
    """What the many frames of one run have in common."""
    encode = _encoder.encode
    head = (encode(type_), encode(task_id), encode(run_id), b',"replay":true' if replay else b"")
    return b',"type":%s,"task_id":%s,"run_id":%s%s,"payload":' % head


def render(seq: int, parts: bytes) -> bytes:
    """One whole frame for a device: its number, then the shared part."""
    number = b"%d" % seq
    return b'{"v":1,"seq":' + number + b',"event_id":"e_' + number + b'"' + parts


def decode_server(data: bytes | str) -> tuple[Frame, Payload]:
    """A server frame and its typed payload, for clients and tests.

    Raises msgspec.DecodeError (ValidationError) or KeyError for an unknown type.
    """
    frame = msgspec.json.decode(data, type=Frame)
    return frame, msgspec.json.decode(frame.payload, type=SERVER[frame.type])


def schema() -> dict[str, Any]:
    """JSON Schema of every type: committed as docs/lmp.schema.json and checked by a test."""
    names = {
        **{f"server:{k}": v for k, v in SERVER.items()},
        **{f"client:{k}": v for k, v in CLIENT.items()},
    }
    types = sorted({*names.values()}, key=lambda cls: cls.__name__)
    _, components = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Loomi Protocol v1 as loomid speaks it: payloads by type",
        "server": {k: {"$ref": f"#/$defs/{v.__name__}"} for k, v in SERVER.items()},
        "client": {k: {"$ref": f"#/$defs/{v.__name__}"} for k, v in CLIENT.items()},
        "$defs": components,
    }
