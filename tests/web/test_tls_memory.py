"""What strangers cost: while TLS is agreed on, and once they are gone."""

from __future__ import annotations

import asyncio
import gc
import ssl
from asyncio import sslproto
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from loomid.phone import Phone
from loomid.reception import TLS_BYTES, Reception, Stranger
from tests.support import certificates, flood
from tests.support.hub import serving
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

STRANGERS = 4
HEAVY = (Stranger, Phone, sslproto.SSLProtocol)


async def test_a_handshake_has_a_small_buffer():
    Reception(asyncio.Protocol, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Counter())
    assert sslproto.SSLProtocol.max_size == TLS_BYTES


def held() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, HEAVY))


async def come_and_go(port: int, first: bytes, *, tls: bool, leave: bool) -> None:
    """A few more than there are places; those that do not leave are made to."""
    writers = []
    for _ in range(2 * STRANGERS):
        context = flood.TLS if tls else None
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(first)
        writers.append(writer)
        if leave:
            writer.transport.abort()
        await asyncio.sleep(0.01)  # so that most of them get to the end of their part
    for writer in writers:
        writer.transport.abort()


@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize("kind", ["plain", "begun", *flood.FIRST])
async def test_who_is_gone_is_freed_at_once(tmp_path: Path, kind: str, leave: bool):
    """Not by a collection of garbage: a flood has ended thousands before there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.make(tmp_path) / "cert.pem", tmp_path / "key.pem")
    first = {"plain": b"no TLS", "begun": flood.handshake()}.get(kind) or flood.FIRST[kind]
    async with serving(tmp_path, ssl_context=context, strangers=STRANGERS) as server:
        gc.collect()
        before = held()
        gc.disable()
        try:
            await come_and_go(server.port, first, tls=kind in flood.FIRST, leave=leave)
            await until(lambda: held() <= before)
        finally:
            gc.enable()
