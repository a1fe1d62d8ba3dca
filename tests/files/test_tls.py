"""The doors for files where loomid does TLS itself."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

import aiohttp

from tests.support import certificates
from tests.support.hub import serving
from tests.support.samples import Carrier

if TYPE_CHECKING:
    from pathlib import Path


async def test_up_and_down(tmp_path: Path):
    """A head and a body in one flight, far more than a stranger may send."""
    certificates.make(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    data = os.urandom(3_000_000)
    async with serving(tmp_path, ssl_context=context) as server:
        phone = server.phone()
        phone.ssl = trust
        async with phone.connect(await server.token()):
            pass
        connector = aiohttp.TCPConnector(ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            carrier = Carrier(phone, session)
            for piece in (data, data[:40_000]):
                ref = await carrier.upload(piece)
                path = f"/files/{ref['attachment_id']}"
                assert await carrier.call("GET", path) == (200, piece)
        assert server.hub.tally.refused == {}
