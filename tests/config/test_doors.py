"""The listening sockets, the certificate and the URL that phones get."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from loomid import config, doors
from loomid.errors import BusyError, ConfigError
from tests.support import certificates


@pytest.fixture
def settings():
    return config.load({"listen": "127.0.0.1:0"}, {"HOME": "/nowhere"})


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    folder = certificates.make(tmp_path_factory.mktemp("tls"))
    (folder / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----")
    return folder


def test_every_address_of_a_name_on_one_port(settings):
    sockets = doors.listen(replace(settings, listen_host="localhost"))
    try:
        assert len({one.getsockname()[1] for one in sockets}) == 1
        assert all(line.startswith(("127.0.0.1:", "[::1]:")) for line in doors.bound(sockets))
    finally:
        doors.close(sockets)


def test_port_in_use(settings):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BusyError, match=rf"127.0.0.1:{port}: the port .*--listen"):
            doors.listen(replace(settings, listen_port=port))


def test_addresses_that_are_not_ours(settings):
    with pytest.raises(BusyError, match="does not have that address"):
        doors.listen(replace(settings, listen_host="192.0.2.1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_a_port_that_this_account_may_not_have(settings):
    barrier = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if not barrier:
        pytest.skip("every account may have every port here")
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match=r"ports below 1024.*CAP_NET_BIND_SERVICE"):
            doors.listen(replace(settings, listen_port=min(barrier, 1024) - 1))
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_every_account_can_read(settings, pems, caplog, mode, told):
    key = pems / "key.pem"
    before = key.stat().st_mode
    key.chmod(mode)
    try:
        doors.tls_context(replace(settings, tls_cert=pems / "cert.pem", tls_key=key))
    finally:
        key.chmod(before)
    assert ("can be read by every account" in caplog.text) == told


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_bind_beyond_this_host_is_refused(settings, host):
    beyond = replace(settings, listen_host=host)
    try:
        doors.close(doors.listen(beyond))
    except (BusyError, ConfigError):
        pytest.skip("no such address family here")
    with pytest.raises(ConfigError, match="LOOMI_ALLOW_INSECURE_BIND") as caught:
        doors.open_door(beyond, [])
    assert caught.value.exit_code == 78
    doors.open_door(replace(beyond, allow_insecure_bind=True), []).close()


def test_sockets_that_were_handed_over_are_held_to_the_same_rule(settings, pems):
    (one,) = doors.listen(replace(settings, listen_host="0.0.0.0"))
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0 without TLS"):
        doors.open_door(settings, [one])
    assert one.fileno() == -1
    (one,) = doors.listen(replace(settings, listen_host="0.0.0.0"))
    tls = replace(settings, tls_cert=pems / "cert.pem", tls_key=pems / "key.pem")
    doors.open_door(tls, [one]).close()


def test_the_fingerprint_is_that_of_the_served_certificate(settings, pems):
    tls = replace(settings, tls_cert=pems / "cert.pem", tls_key=pems / "key.pem")
    context, fingerprint = doors.tls_context(tls)
    assert context is not None
    one, two = socket.socketpair()
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    server_side = context.wrap_bio(incoming[0], outgoing[0], server_side=True)
    client_side = client.wrap_bio(outgoing[0], incoming[0])
    one.close()
    two.close()
    for _ in range(4):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    served = client_side.getpeercert(binary_form=True)
    assert served is not None
    assert fingerprint == hashlib.sha256(served).hexdigest()


def test_no_tls(settings):
    assert doors.tls_context(settings) == (None, "")


@pytest.mark.parametrize(
    ("certificate", "key"),
    [
        ("none.pem", "key.pem"),
        ("cert.pem", "none.pem"),
        ("key.pem", "key.pem"),
        ("cert.pem", "cert.pem"),
        ("cert.pem", "other.pem"),
        ("cert.pem", "locked.pem"),
        ("broken.pem", "key.pem"),
        (".", "key.pem"),
    ],
)
def test_certificates_that_cannot_be_used(settings, pems, certificate, key):
    with pytest.raises(ConfigError, match="tls_"):
        doors.tls_context(replace(settings, tls_cert=pems / certificate, tls_key=pems / key))


def test_the_url_for_phones(settings, pems):
    for host, starts in (("127.0.0.1", "ws://127.0.0.1:"), ("0.0.0.0", "ws://")):
        sockets = doors.listen(replace(settings, listen_host=host))
        url = doors.default_url(settings, sockets)
        port = sockets[0].getsockname()[1]
        doors.close(sockets)
        assert url.startswith(starts)
        assert url.endswith(f":{port}/ws")
        assert "0.0.0.0" not in url
