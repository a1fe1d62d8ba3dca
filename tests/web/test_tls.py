"""The same over TLS, as the daemon gives it a context."""

import ssl

import pytest

from tests.support import certificates
from tests.support.hub import delta, serving


@pytest.fixture
def contexts(tmp_path):
    certificates.make(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return server, client


async def test_a_phone_over_tls(tmp_path, contexts):
    server_context, client_context = contexts
    async with serving(tmp_path, ssl_context=server_context) as server:
        phone = server.phone()
        phone.ssl = client_context
        async with phone.connect(await server.token()) as c:
            for n in range(10):
                await server.publish(*(delta(f"{n}".ljust(1000)) for _ in range(100)))
            await c.wait_type("run.delta", 1000)
            await server.hub.revoke(phone.device_id)
            assert await c.wait_closed() == 4003
