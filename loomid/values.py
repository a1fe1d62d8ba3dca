"""Values of settings: each parser takes a string or a TOML value and raises ValueError."""

from __future__ import annotations

import ipaddress
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a string is needed")
    if not value.strip():
        raise ValueError("it is empty")
    if not value.isprintable():
        raise ValueError("it has characters that cannot be printed")
    return value.strip()


def parse_name(value: object) -> str:
    """A name for people: of this host, or of a device."""
    name = _text(value)
    if len(name) > 64:
        raise ValueError("at most 64 characters")
    return name


def parse_listen(value: object) -> tuple[str, int]:
    """`host:port`; every interface must be asked for by name, a bare port is refused."""
    text = _text(value)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise ValueError("host:port is needed, as 127.0.0.1:8770 or [::1]:8770")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), int(port)
    if not host:
        raise ValueError(f"the host is missing; for every interface write 0.0.0.0:{port}")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise ValueError("host:port is needed, an IPv6 address in brackets: [::1]:8770")
    return host, int(port)


def path(value: object) -> Path:
    text = _text(value)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("~ cannot be resolved: no home directory") from None


def phone_url(value: object) -> str:
    """The URL a phone connects to. Without a path it gets /ws."""
    text = _text(value)
    if len(text.encode()) > 1000:
        raise ValueError("at most 1000 bytes, so that it fits into a QR code")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not a URL") from None
    if parts.scheme not in {"ws", "wss"} or not parts.hostname or port == 0:
        raise ValueError("a URL of the form wss://host/ws or ws://host:port/ws is needed")
    if parts.username is not None or parts.query or parts.fragment or " " in text:
        raise ValueError("only scheme, host, port and path may be in the URL")
    path = "/ws" if parts.path in {"", "/"} else parts.path
    return f"{parts.scheme}://{parts.netloc}{path}"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_duration(value: object) -> float:
    """Seconds, or a number with one of the units s, m, h, d, w."""
    return seconds(value, 3650 * 86400, "ten years")


def seconds(value: object, most: float, in_words: str) -> float:
    """The same, for times between one second and another end."""
    found: float
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", value.strip(), re.ASCII)
        if match is None:
            raise ValueError('a time such as "7d", "12h", "30m" or a number of seconds is needed')
        found = float(match[1]) * _UNITS.get(match[2], 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    else:
        raise ValueError('a time such as "7d", "12h", "30m" or a number of seconds is needed')
    if not math.isfinite(found) or not 1 <= found <= most:
        raise ValueError(f"between one second and {in_words}")
    return found


_SIZES = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
MIN_DB_BYTES = 64 * 2**20
"""The write-ahead log and what phones may still resume from need their room."""


def size(low: int, high: int) -> Callable[[object], int]:
    """Bytes, or a number with one of the units KiB, MiB, GiB, TiB."""

    def parse(value: object) -> int:
        match = re.fullmatch(r"(\d{1,15})\s*((?:[KMGT]IB)?)", str(value).strip().upper(), re.ASCII)
        if match is None or isinstance(value, bool):
            raise ValueError('a size such as "1GiB", "512MiB" or a number of bytes is needed')
        found = int(match[1]) * _SIZES[match[2]]
        if not low <= found <= high:
            raise ValueError(f"between {size_text(low)} and {size_text(high)}")
        return found

    return parse


def size_text(count: int) -> str:
    """A number of bytes in its largest whole unit, as `size` reads it."""
    unit = max((u for u, length in _SIZES.items() if count % length == 0), key=_SIZES.__getitem__)
    return f"{count // _SIZES[unit]}{unit.replace('I', 'i')}"


def whole(low: int, high: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\d{1,12}", value.strip(), re.ASCII):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("a whole number is needed")
        if not low <= value <= high:
            raise ValueError(f"between {low} and {high}")
        return value

    return parse


def yes_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if not isinstance(value, str) or value.strip().lower() not in words:
        raise ValueError("true or false is needed")
    return words[value.strip().lower()]


def address_text(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Only this machine can reach that host name or address."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


_NAMES_AT_HOME = (".local", ".lan", ".internal", ".home.arpa", ".localhost")


def is_public(host: str) -> bool:
    """That host name or address is one of the open internet, as far as it shows."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_global
    except ValueError:
        name = host.rstrip(".").lower()
        return "." in name and not name.endswith(_NAMES_AT_HOME)
