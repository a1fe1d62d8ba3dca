"""Small edits of a YAML file's text that leave every other byte as it is.

The file is parsed only for the places of its nodes and to prove the result: what is
written parses to exactly the data that was asked for. Knows nothing of Hermes.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from loomid.errors import LoomiError

_TOO_HARD = "its layout is beyond a safe automatic change"
_NULL = "tag:yaml.org,2002:null"
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


class EditError(LoomiError):
    """The file cannot be read as YAML, or not be changed without risk."""


@dataclass(frozen=True, slots=True)
class Set:
    """Give the key at `path` this value; the mapping that holds it must exist."""

    path: tuple[str, ...]
    value: Any


@dataclass(frozen=True, slots=True)
class Append:
    """Add an item to the list at `path`."""

    path: tuple[str, ...]
    item: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Take every occurrence of an item out of the list at `path`."""

    path: tuple[str, ...]
    item: str


@dataclass(frozen=True, slots=True)
class Unset:
    """Take the key at `path` away; `value` is what it has, for whoever tells of it."""

    path: tuple[str, ...]
    value: Any


Change = Set | Append | Remove | Unset


def load(text: str) -> dict[str, Any]:
    """The file's data ({} for an empty file), as a reader of YAML 1.1 sees it."""
    try:
        data = _yaml().load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise EditError(_say(error)) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise EditError("the top level is not a mapping")
    return data


def change(data: dict[str, Any], step: Change) -> dict[str, Any]:
    """The same change on plain data; returns a new object."""
    data = json_like(data)
    parent = data
    for key in step.path[:-1]:
        parent = parent[key]
    last = step.path[-1]
    match step:
        case Set():
            parent[last] = copy.deepcopy(step.value)
        case Append():
            parent[last].append(step.item)
        case Remove():
            parent[last] = [item for item in parent[last] if item != step.item]
        case Unset():
            del parent[last]
    return data


def json_like(data: Any) -> Any:  # noqa: ANN401 - any YAML value
    """A copy without shared parts: what an alias stands for is its own there."""
    if isinstance(data, dict):
        return {key: json_like(value) for key, value in data.items()}
    if isinstance(data, list):
        return [json_like(item) for item in data]
    return data


def edit(text: str, steps: list[Change]) -> str:
    """The text with all changes made, one by one.

    Raises EditError when the outcome would not be the data asked for; an alias that
    would change two places, for instance.
    """
    wanted = json_like(load(text))
    for step in steps:
        wanted = change(wanted, step)
        text = _apply(text, step)
    try:
        outcome = json_like(load(text))
    except EditError:
        outcome = None
    if outcome != wanted:
        raise EditError(_TOO_HARD)
    return text


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)  # what Hermes' reader speaks
    return yaml


def _say(error: Exception) -> str:
    """One line: the problem and its place, without the file's own text."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    problem = str(problem).splitlines()[0].split(" with value")[0]
    return f"line {mark.line + 1}: {problem}" if mark is not None else problem


# ── text surgery ────────────────────────────────────────────────────────────


def _apply(text: str, step: Change) -> str:
    try:
        root = _yaml().compose(text)
    except YAMLError as error:  # an earlier step did not fit this file's layout
        raise EditError(_TOO_HARD) from error
    if isinstance(step, Set) and (root is None or _is_null(root)):
        return _newline_at_end(text) + _block({step.path[0]: step.value}, 0, 2)
    parent = root
    for key in step.path[:-1]:
        parent = _value(parent, key)
    if not isinstance(parent, MappingNode):  # so did one here
        raise EditError(_TOO_HARD)
    match step:
        case Set() if (old := _value(parent, step.path[-1])) is not None:
            return _replace(text, parent, old, step.value, _indent(root))
        case Set():
            return _insert(text, parent, {step.path[-1]: step.value}, _indent(root))
        case Append():
            return _append(text, parent, _value(parent, step.path[-1]), step.item)
        case Remove():
            return _remove(text, _value(parent, step.path[-1]), step.item)
        case Unset():
            return _unset(text, parent, step.path[-1])


def _value(node: Node | None, key: str) -> Any:  # noqa: ANN401 - ruamel's nodes are untyped
    if isinstance(node, MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == key:
                return value_node
    return None


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == _NULL


def _indent(root: Node) -> int:
    """How far the file indents a mapping inside a mapping."""
    for key, value in root.value if isinstance(root, MappingNode) else ():
        if isinstance(value, MappingNode) and value.value and not value.flow_style:
            step = value.value[0][0].start_mark.column - key.start_mark.column
            if 1 <= step <= 8:
                return int(step)
    return 2


def _end(node: Node, floor: int) -> int:
    """Where a node's last visible character ends. An alias, whose node lies before
    `floor`, ends somewhere on the line of `floor`."""
    if node.start_mark.index < floor:
        return floor
    if not isinstance(node, CollectionNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    if isinstance(node, MappingNode):
        return _end(last[1], last[0].end_mark.index)
    return _end(last, node.start_mark.index)


def _line_end(text: str, at: int) -> int:
    """The start of the line after the one that holds the character before `at`."""
    if at and text[at - 1] == "\n":  # a block scalar ends with its line
        return at
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _newline_at_end(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _insert_line(text: str, at: int, lines: str) -> str:
    head = _newline_at_end(text[:at])
    return head + lines + text[at:]


def _insert(text: str, parent: CollectionNode, new: dict[str, Any], indent: int) -> str:
    """Put new keys behind the last one of a mapping that has at least one, or is `{}`."""
    if parent.flow_style:
        inner = flow(new)[1:-1]
        if not parent.value:
            at = parent.start_mark.index + 1
            return text[:at] + inner + text[at:]
        key, value = parent.value[-1]
        at = _end(value, key.end_mark.index)
        return f"{text[:at]}, {inner}{text[at:]}"
    key, value = parent.value[-1]
    at = _line_end(text, _end(value, key.end_mark.index))
    return _insert_line(text, at, _block(new, parent.value[0][0].start_mark.column, indent))


def _replace(text: str, parent: CollectionNode, old: Node, value: Any, indent: int) -> str:  # noqa: ANN401
    """Give an existing key another value: for scalars, null and `{}`."""
    start, end = old.start_mark.index, old.end_mark.index
    key = next(key for key, node in parent.value if node is old)
    block = text[start : start + 1] in ("|", ">")  # where that ends is hard to say
    if start < key.end_mark.index or block:
        raise EditError(_TOO_HARD)
    if not isinstance(value, dict | list) or parent.flow_style:
        shown = flow(value)
        gap = "" if text[start - 1 : start].isspace() else " "
        return text[:start] + gap + shown + text[end:]
    column = key.start_mark.column + indent
    rest = text[:start].rstrip(" ") + text[end:]
    at = _line_end(rest, key.end_mark.index)
    return _insert_line(rest, at, _block(value, column, indent))


def _append(text: str, parent: CollectionNode, node: CollectionNode, item: str) -> str:
    if node.flow_style:
        at = node.start_mark.index + 1
        if node.value:
            at = _end(node.value[-1], at)
        return text[:at] + (", " if node.value else "") + _scalar(item) + text[at:]
    at = _line_end(text, _end(node, 0))
    return _insert_line(text, at, " " * node.start_mark.column + f"- {_scalar(item)}\n")


def _remove(text: str, node: CollectionNode, item: str) -> str:
    """Take an item out of a list; a comment beside it stays."""
    places = [i for i, child in enumerate(node.value) if child.value == item]
    if len(places) == len(node.value) and not node.flow_style:
        # An empty block list would read as null.
        key_end = text.rindex(":", 0, node.start_mark.index) + 1
        text = text[:key_end] + " []" + text[key_end:]
        shift = 3
    else:
        shift = 0
    for i in reversed(places):
        start, end = _item_span(text, node, i, shift)
        gone = text[start:end]
        if "#" in gone:
            raise EditError(_TOO_HARD)
        text = text[:start] + text[end:]
        if not node.flow_style:
            text = _drop_blank_line(text, start)
    return text


def _unset(text: str, parent: Any, key: str) -> str:  # noqa: ANN401 - ruamel's nodes are untyped
    """Take a key out of a mapping with the lines it has to itself; comments elsewhere stay."""
    pairs = parent.value if isinstance(parent, MappingNode) else ()
    i = next((i for i, (node, _) in enumerate(pairs) if node.value == key), None)
    if i is None:  # merged in from elsewhere
        raise EditError(_TOO_HARD)
    begin, end = pairs[i][0].start_mark.index, _pair_end(pairs[i])
    before = ""
    if not parent.flow_style:
        line = text.rfind("\n", 0, begin) + 1
        before, begin, end = text[line:begin], line, _line_end(text, end)
    elif i + 1 < len(pairs):
        end = pairs[i + 1][0].start_mark.index
    elif i:
        begin = _pair_end(pairs[i - 1])
    if before.strip() or "#" in text[begin:end]:
        raise EditError(_TOO_HARD)
    return text[:begin] + text[end:]


def _pair_end(pair: tuple[Node, Node]) -> int:
    return _end(pair[1], pair[0].end_mark.index)


def _item_span(text: str, node: CollectionNode, i: int, shift: int) -> tuple[int, int]:
    child = node.value[i]
    start, end = child.start_mark.index + shift, child.end_mark.index + shift
    if not node.flow_style:
        return text.rindex("-", 0, start), end
    if i + 1 < len(node.value):
        return start, node.value[i + 1].start_mark.index + shift
    return (node.value[i - 1].end_mark.index + shift if i else start), end


def _drop_blank_line(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    stop = _line_end(text, at)
    line = text[begin:stop]
    if not line.strip():
        return text[:begin] + text[stop:]
    return text[:at] + text[at:].lstrip(" ")


# ── writing values ──────────────────────────────────────────────────────────


def _scalar(value: Any) -> str:  # noqa: ANN401 - any scalar
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)  # a JSON scalar is a YAML scalar


def flow(value: Any) -> str:  # noqa: ANN401 - any YAML value
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _scalar(value)


def _block(value: dict[str, Any] | list[Any], column: int, indent: int) -> str:
    pad = " " * column
    if isinstance(value, list):
        return "".join(f"{pad}- {flow(item)}\n" for item in value)
    lines = []
    for key, inner in value.items():
        if isinstance(inner, dict | list) and inner:
            lines.append(f"{pad}{_scalar(key)}:\n{_block(inner, column + indent, indent)}")
        else:
            lines.append(f"{pad}{_scalar(key)}: {flow(inner)}\n")
    return "".join(lines)
