"""Ids that phones see: opaque keyed hashes, the same after every restart (LMP §2).

`key` is the server's own 32-byte secret (store `meta`), so that an id tells nothing
of the session key or turn id it was made from.
"""

from __future__ import annotations

from hashlib import blake2b


def _ref(key: bytes, kind: str, *parts: str) -> str:
    text = "\x1f".join((kind, *parts))
    return blake2b(text.encode("utf-8", "replace"), key=key, digest_size=9).hexdigest()


def task_id(key: bytes, gateway_id: str, session: str) -> str:
    """`session`: the session key, or the root session id of sessions without one."""
    return f"task_{_ref(key, 'task', gateway_id, session)}"


def run_id(key: bytes, gateway_id: str, turn_id: str) -> str:
    """One run is one Hermes turn."""
    return f"run_{_ref(key, 'run', gateway_id, turn_id)}"


def approval_id(key: bytes, gateway_id: str, boot: str, shim_id: str) -> str:
    """`shim_id` is unique in its boot only."""
    return f"apr_{_ref(key, 'approval', gateway_id, boot, shim_id)}"


def question_id(key: bytes, gateway_id: str, boot: str, shim_id: str) -> str:
    """`shim_id` is unique in its boot only."""
    return f"qst_{_ref(key, 'question', gateway_id, boot, shim_id)}"


def attachment_part(key: bytes, gateway_id: str, boot: str, shim_id: str) -> str:
    """Which part of its run a file is that the agent sent (see parts)."""
    return f"attachment:{_ref(key, 'attachment', gateway_id, boot, shim_id)}"


def turn_id(key: bytes, gateway_id: str, session_id: str, first: int) -> str:
    """A turn in history, by its session and the number of its first message."""
    return f"turn_{_ref(key, 'turn', gateway_id, session_id, str(first))}"


def seal(key: bytes, purpose: str, text: str) -> str:
    """What shows that a text was made here for that purpose (lmp/cursors)."""
    return _ref(key, "seal", purpose, text)


def session_key_ref(key: bytes, gateway_id: str, session_key: str) -> str:
    """What `approval.required.session_key_ref` shows."""
    return f"skr_{_ref(key, 'session_key', gateway_id, session_key)}"
