"""Which device, gateway or approval somebody means who need not write out its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loomid.errors import LoomiError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Unclear(LoomiError):
    """None or several fit; the message is for people."""


class Missing(Unclear):
    """None fits."""


def begins(name: str, wanted: str) -> bool:
    """Whether an id may be meant by its beginning, with or without its kind."""
    bare = name.partition("_")[2]
    return bool(wanted) and (name.startswith(wanted) or bare.startswith(wanted))


def one(listed: Sequence[dict[str, Any]], kind: str, wanted: str) -> dict[str, Any]:
    """The one device or gateway that an id, a name or the beginning of an id means.

    Raises Unclear.
    """
    key = f"{kind}_id"
    # A phone may call itself what another one's id begins with: then it is not clear.
    found = [d for d in listed if d[key] == wanted] or [
        d for d in listed if d["name"] == wanted or begins(d[key], wanted)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Missing(f"there is no {kind} {wanted!r}; loomictl {kind}s lists them")
    fits = ", ".join(f"{d[key]} ({d['name']})" for d in found)
    raise Unclear(f"{wanted!r} fits {len(found)} {kind}s: {fits}")
