"""What one who only begins TLS costs."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections import Counter

from loomid.reception import TLS_BYTES, Reception


async def test_a_handshake_has_a_small_buffer():
    Reception(asyncio.Protocol, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Counter())
    assert sslproto.SSLProtocol.max_size == TLS_BYTES
