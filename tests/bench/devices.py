"""Paired devices by the thousand, written into a database before loomid opens it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from loomid.lmp import pairing
from loomid.store import Store
from loomid.vault import ADD_DEVICE, Device, device_row

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 2048
"""A phone that missed 512 events can resume although more come while it connects."""


async def pair(path: Path, count: int) -> list[tuple[str, str]]:
    """Devices that have come back once; what each says first, and with its place in the log."""
    words, rows = [], []
    for i in range(count):
        device_id, credential = f"dev_{i:016x}", f"{i:043d}"
        device = Device(
            device_id, "phone", pairing.digest(credential), 0, time.time(), confirmed=True
        )
        rows.append(device_row(device))
        hello = {
            "protocol_version": 1,
            "device_id": device_id,
            "credential": credential,
            "device_info": {"model": "Pixel", "os": "Android 16", "app_version": "1.0"},
        }
        first = json.dumps({"v": 1, "type": "hello", "payload": hello})
        words.append((first, first.replace('"device_info"', '"last_seq": ?, "device_info"')))
    async with await Store.open(path, time.time) as store:
        await store.safe.write(lambda line: line.executemany(ADD_DEVICE, rows))
    return words
