"""One table of errors: each code with the `params` it may have, as documented and as raised."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from loomid import wire
from loomid.errors import PhoneError
from loomid.lmp import requests

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
TABLE = re.search(r"^\| code \| `params` \|\n\|[-|]+\|\n((?:\|.*\n)+)", PROTOCOL, re.MULTILINE)


def documented() -> dict[str, str]:
    """Code → what the table tells of its params."""
    assert TABLE is not None
    rows = [line.strip("| ").split(" | ", 1) for line in TABLE[1].splitlines()]
    return {row[0].strip("`"): row[1] if len(row) > 1 else "" for row in rows}


def classes(cls: type[PhoneError] = PhoneError) -> dict[str, type[PhoneError]]:
    """Name → class, of all errors that a phone can be told."""
    found = {cls.__name__: cls}
    for one in cls.__subclasses__():
        found |= classes(one)
    return found


def raised() -> dict[str, set[str]]:
    """Code → the names of params with which it is made anywhere in loomid."""
    known = classes()
    found: dict[str, set[str]] = {}
    for path in (ROOT / "loomid").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in known and name != "PhoneError":
                names = {word.arg for word in node.keywords if word.arg is not None}
                assert len(names) == len(node.keywords), f"{path.name}: {name} with a **"
                found.setdefault(known[name].code, set()).update(names)
    return found


def test_every_code_is_in_the_table() -> None:
    assert list(documented()) == list(PhoneError.codes)


@pytest.mark.parametrize("code", PhoneError.codes)
def test_params_are_those_of_the_table(code: str) -> None:
    told = set(re.findall(r"`(\w+)`:", documented()[code]))
    assert told == set(PhoneError.codes[code].says)
    assert raised().get(code, set()) == told


def test_every_reason_is_told() -> None:
    """Those that loomid itself gives, and a plugin's words that are no `gateway_error`."""
    refusals = [requests.refusal(code) for code in wire.RESULT_ERRORS]
    refusals = [one for one in refusals if one.code != "gateway_error" and "reason" in one.params]
    reasons = {one.params["reason"] for one in refusals}
    for path in (ROOT / "loomid").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in classes():
                reasons |= {
                    word.value.value
                    for word in node.keywords
                    if word.arg == "reason" and isinstance(word.value, ast.Constant)
                }
    assert len(reasons) >= 4
    assert TABLE is not None
    assert sorted(reason for reason in reasons if f"`{reason}`" not in TABLE[1]) == []
