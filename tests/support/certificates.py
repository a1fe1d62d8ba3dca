"""Certificates and keys made for one test run."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_PEM, _PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


def make(folder: Path) -> Path:
    """Write cert.pem, its key.pem, that key locked.pem with a password, and other.pem."""
    key, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loomi.test")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    locked = serialization.BestAvailableEncryption(b"secret")
    (folder / "cert.pem").write_bytes(b"# a comment\n" + certificate.public_bytes(_PEM))
    (folder / "key.pem").write_bytes(key.private_bytes(_PEM, _PKCS8, plain))
    (folder / "locked.pem").write_bytes(key.private_bytes(_PEM, _PKCS8, locked))
    (folder / "other.pem").write_bytes(other.private_bytes(_PEM, _PKCS8, plain))
    return folder
