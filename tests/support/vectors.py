"""The golden frames of tests/vectors, and what can be asked of their payload types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent / "vectors"
DOCS = Path(__file__).parent.parent.parent / "docs"


def load(side: str) -> dict[str, dict[str, Any]]:
    """File stem → frame, of `server`, `client` or `invalid`."""
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / side).glob("*.json"))
    }


def paths(payload: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every object inside a payload, its own included."""
    if isinstance(payload, dict):
        yield at
        for name, value in payload.items():
            yield from paths(value, (*at, name))
    elif isinstance(payload, list):
        for index, value in enumerate(payload):
            yield from paths(value, (*at, index))


def reach(payload: Any, path: tuple[str | int, ...]) -> Any:
    """The object at a path of `paths`."""
    for step in path:
        payload = payload[step]
    return payload


def struct_at(cls: Any, path: tuple[str | int, ...]) -> type[msgspec.Struct] | None:
    """The struct type that a payload type has at a path; None for free-form objects."""
    found = msgspec.inspect.type_info(cls)
    for step in path:
        found = _step(found, step)
    return found.cls if isinstance(found, msgspec.inspect.StructType) else None


def _step(info: msgspec.inspect.Type, step: str | int) -> msgspec.inspect.Type:
    if isinstance(info, msgspec.inspect.StructType):
        field = next(f for f in info.fields if f.encode_name == step)
        return _plain(field.type)
    if isinstance(info, msgspec.inspect.ListType):
        return _plain(info.item_type)
    return msgspec.inspect.AnyType()


def _plain(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The type without `| None` and without its constraints."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _plain(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        rest = [t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)]
        return _plain(rest[0]) if len(rest) == 1 else info
    return info


def text_fields(cls: Any) -> Iterator[tuple[str, ...]]:
    """The path of every free text in a payload type; the last step of a list is `*`."""
    yield from _texts(msgspec.inspect.type_info(cls), ())


def _texts(info: msgspec.inspect.Type, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(info, msgspec.inspect.StrType):
        yield at
    elif isinstance(info, msgspec.inspect.ListType):
        yield from _texts(_plain(info.item_type), (*at, "*"))
    elif isinstance(info, msgspec.inspect.StructType):
        for field in info.fields:
            yield from _texts(_plain(field.type), (*at, field.encode_name))
