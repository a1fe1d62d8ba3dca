"""The same over TLS, as the daemon gives it a context."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.hub import delta, serving


@pytest.fixture
def contexts(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "both.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
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
