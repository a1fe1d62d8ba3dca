"""A large file up and down over a link that is cut, as a phone on a train would."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.support.cutting import cutting
from tests.support.daemon import Daemon
from tests.support.phone import Phone
from tests.support.samples import Carrier

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
SIZE = 20 * MIB
BUDGETS = [3 * MIB, 100_000, 5 * MIB + 17, 700, 4 * MIB]
"""Bytes between two cuts; 700 is within a head."""


async def up(carrier: Carrier, data: bytes) -> dict[str, object]:
    """What docs/protocol.md tells a phone to do."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                status, told = await carrier.begin(data, name="film.bin")
                if "attachment" not in told:
                    assert status in (200, 201), told
                    offset = told["offset"]
                    status, told = await carrier.append(told["upload_id"], offset, data[offset:])
                if "attachment" in told:
                    return dict(told["attachment"])
                assert status in (200, 409), told


async def down(carrier: Carrier, attachment_id: str, size: int) -> bytes:
    got = b""
    url = f"{carrier.base}/files/{attachment_id}"
    async with asyncio.timeout(60):
        while len(got) < size:
            headers = {**carrier.auth, "Range": f"bytes={len(got)}-"}
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                async with carrier.session.get(url, headers=headers) as answer:
                    assert answer.status == 206
                    async for piece in answer.content.iter_any():
                        got += piece
    return got


async def test_20_mb_up_and_down_over_a_link_that_is_cut_five_times(tmp_path: Path):
    data = random.Random(4).randbytes(SIZE)
    with Daemon(tmp_path) as daemon:
        phone = Phone(daemon.url)
        async with phone.connect(daemon.pair()["qr"]["token"]) as connection:
            limits = connection.hello_ok.payload["limits"]
            assert limits["max_file_bytes"] >= SIZE
        before = daemon.rss_mib()
        async with aiohttp.ClientSession() as session:
            carrier = Carrier(phone, session)
            async with cutting(daemon.port, list(BUDGETS)) as link:
                carrier.base = f"http://127.0.0.1:{link.port}"
                ref = await up(carrier, data)
                assert link.cuts == 5
            assert (ref["bytes"], ref["name"]) == (SIZE, "film.bin")
            async with cutting(daemon.port, list(BUDGETS)) as link:
                carrier.base = f"http://127.0.0.1:{link.port}"
                assert await down(carrier, str(ref["attachment_id"]), SIZE) == data
                assert link.cuts == 5
        assert daemon.rss_mib() - before < 30
        assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()


@pytest.mark.parametrize("when", [0, 1_000_000])
async def test_an_upload_survives_loomid(tmp_path: Path, when: int):
    data = random.Random(5).randbytes(2 * MIB)
    with Daemon(tmp_path) as daemon:
        phone = Phone(daemon.url)
        async with phone.connect(daemon.pair()["qr"]["token"]):
            pass
        async with aiohttp.ClientSession() as session:
            carrier = Carrier(phone, session)
            _, begun = await carrier.begin(data)
            await carrier.append(begun["upload_id"], 0, data[:when])
            daemon.kill()
            await asyncio.to_thread(daemon.start)
            assert (await carrier.begin(data))[1]["offset"] == when
            ref = await up(carrier, data)
            assert await down(carrier, str(ref["attachment_id"]), len(data)) == data
