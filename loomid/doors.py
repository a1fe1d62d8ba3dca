"""The phones' door: its listening sockets, its certificate, and the URL it is reached at."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import secrets
import socket
import ssl
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from loomid.errors import BusyError, ConfigError, StateError
from loomid.lmp.pairing import Secret
from loomid.values import address_text, is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from loomid.config import Config

log = logging.getLogger("loomid.doors")

TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file
BACKLOG = 4096
"""A thousand phones come back at once; the kernel cuts this to net.core.somaxconn."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Door:
    """Where phones come in: bound sockets, perhaps TLS, and what a pairing code says of it."""

    sockets: list[socket.socket]
    tls: ssl.SSLContext | None
    fingerprint: str
    url: str

    @property
    def addresses(self) -> list[str]:
        """The addresses really listened on."""
        return bound(self.sockets)

    def close(self) -> None:
        """Stop listening."""
        close(self.sockets)


def open_door(config: Config, inherited: list[socket.socket]) -> Door:
    """Load the certificate, then bind, unless the service manager has done that."""
    sockets = inherited
    try:
        context, fingerprint = tls_context(config)
        sockets = inherited or listen(config)
        check_bind(sockets, tls=config.tls, allow=config.allow_insecure_bind)
    except BaseException:
        close(sockets)
        raise
    url = config.public_url or default_url(config, sockets)
    return Door(sockets, context, fingerprint, url)


def check_bind(sockets: Sequence[socket.socket], *, tls: bool, allow: bool) -> None:
    """Refuse to listen beyond this host without TLS (LMP §3); looks at what is really bound."""
    if tls or allow:
        return
    for one in sockets:
        host = str(one.getsockname()[0])
        if not is_loopback(host):
            raise ConfigError(
                f"listening on {host} without TLS: set LOOMI_TLS_CERT and LOOMI_TLS_KEY, "
                "or LOOMI_ALLOW_INSECURE_BIND=true"
            )


def listen(config: Config) -> list[socket.socket]:
    """Bind every address of the configured host, all on one port; listening begins later."""
    sockets: list[socket.socket] = []
    port = config.listen_port
    try:
        for family, host in _addresses(config):
            sockets.append(_bind(family, host, port))
            port = sockets[-1].getsockname()[1]
    except BaseException:
        close(sockets)
        raise
    return sockets


def close(sockets: Sequence[socket.socket]) -> None:
    """Close them all."""
    for one in sockets:
        one.close()


def _addresses(config: Config) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(
            config.listen_host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        kind = BusyError if error.errno == socket.EAI_AGAIN else ConfigError
        raise kind(f"listen {config.listen}: {error.strerror}") from None
    return list(dict.fromkeys((int(family), str(to[0])) for family, _, _, _, to in found))


def _bind(family: int, host: str, port: int) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind((host, port))
        one.listen(BACKLOG)  # bind alone would not notice every other listener
        one.setblocking(False)
    except OSError as error:
        one.close()
        _refuse(address_text(host, port), error)
    return one


def _refuse(address: str, error: OSError) -> NoReturn:
    if error.errno == errno.EADDRINUSE:
        raise BusyError(
            f"listen {address}: the port is in use by another program; choose another with"
            " --listen, LOOMI_LISTEN or listen in loomid.toml"
        ) from None
    if error.errno == errno.EACCES:
        raise ConfigError(
            f"listen {address}: {error.strerror}; ports below 1024 are not for every account:"
            " choose a higher one, or AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit"
        ) from None
    if error.errno == errno.EADDRNOTAVAIL:  # the network may still be coming up
        raise BusyError(f"listen {address}: this host does not have that address") from None
    raise ConfigError(f"listen {address}: {error.strerror}") from None


def bound(sockets: Sequence[socket.socket]) -> list[str]:
    """The addresses really listened on."""
    return [address_text(*one.getsockname()[:2]) for one in sockets]


def tls_context(config: Config) -> tuple[ssl.SSLContext | None, str]:
    """The server's TLS and the SHA-256 of the certificate it serves; ("" without TLS)."""
    if config.tls_cert is None or config.tls_key is None:
        return None, ""
    fingerprint = _fingerprint(config.tls_cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        with config.tls_key.open("rb") as key:
            if os.fstat(key.fileno()).st_mode & stat.S_IROTH:
                log.warning(
                    "tls_key %s can be read by every account; chmod it to 600", config.tls_key
                )
            context.load_cert_chain(config.tls_cert, config.tls_key, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"tls_cert {config.tls_cert} and tls_key {config.tls_key} cannot be used together:"
            f" {error.reason or 'not a certificate and its key'}"
        ) from None
    except OSError as error:
        raise ConfigError(f"tls_key {config.tls_key}: {error.strerror}") from None
    return context, fingerprint


def _fingerprint(path: Path) -> str:
    try:
        found = _CERTIFICATE.search(path.read_text(encoding="ascii", errors="replace"))
        if found is None:
            raise ConfigError(f"tls_cert {path}: there is no PEM certificate in it")
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(found[0])).hexdigest()
    except OSError as error:
        raise ConfigError(f"tls_cert {path}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"tls_cert {path}: the PEM certificate is damaged") from None


def _no_password() -> NoReturn:
    """Without this, OpenSSL would ask for one on the terminal."""
    raise ConfigError("tls_key: the key is encrypted; loomid needs one without a password")


def default_url(config: Config, sockets: Sequence[socket.socket]) -> str:
    """The URL for phones when neither public_url nor --url gives one."""
    host, port = sockets[0].getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = _own_address(sockets[0].family)
    scheme = "wss" if config.tls else "ws"
    return f"{scheme}://{address_text(host, port)}/ws"


def _own_address(family: int) -> str:
    """The address this host would use toward others; connecting UDP sends nothing."""
    elsewhere = "2001:db8::1" if family == socket.AF_INET6 else "192.0.2.1"
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def admin_token(state_dir: Path) -> Secret:
    """The bearer token for scripts on this host; made once, readable by us alone."""
    path = state_dir / TOKEN_FILE
    try:
        path.touch(mode=0o600)
        found = path.read_text(encoding="ascii", errors="replace").strip()
        if not found:
            found = secrets.token_urlsafe(32)
            path.write_text(found + "\n", encoding="ascii")
        path.chmod(0o600)
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None
    return Secret(found)
