"""A client of the admin socket: HTTP over a unix socket, standard library alone."""

from __future__ import annotations

import contextlib
import json
import socket
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

from loomid.config import ADMIN_SOCKET
from loomid.errors import LoomiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from http.client import HTTPResponse
    from pathlib import Path

CALL_S = 10.0
VERSION_HEADER = "Loomid-Version"


class NotRunning(LoomiError):
    """No daemon answers, or it went away while it was asked."""


class NotAllowed(LoomiError):
    """The socket is there but belongs to another account."""


class Refused(LoomiError):
    """The daemon said no; the message is for people."""


class AdminClient:
    """Calls of one daemon."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speaks: str | None = None
        """The version of the daemon, once it has answered."""

    def call(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        timeout: float = CALL_S,
    ) -> Any:  # noqa: ANN401 - JSON
        """One request; its answer, decoded where it is JSON, else as text."""
        with self._answer(method, target, body, timeout) as answer:
            with self._explained():
                text = answer.read()
            plain = answer.headers.get_content_type() == "text/plain"
            return text.decode() if plain else json.loads(text)

    @contextlib.contextmanager
    def lines(
        self, method: str, target: str, body: Mapping[str, Any], timeout: float
    ) -> Iterator[Iterator[Any]]:
        """One request whose answer comes in lines of JSON, each within `timeout` seconds.

        To ask for one more than come raises NotRunning. The daemon sees when this is left.
        """
        with self._answer(method, target, body, timeout) as answer:
            yield self._lines(answer)

    def _lines(self, answer: HTTPResponse) -> Iterator[Any]:
        while True:
            with self._explained():
                line = answer.readline()
                if not line:
                    raise ConnectionResetError("it stopped")
            yield json.loads(line)

    @contextlib.contextmanager
    def _answer(
        self, method: str, target: str, body: Mapping[str, Any] | None, timeout: float
    ) -> Iterator[HTTPResponse]:
        connection = _UnixConnection(self.path, timeout)
        try:
            with self._explained():
                data = None if body is None else json.dumps(body).encode()
                headers = {"Content-Type": "application/json"} if data is not None else {}
                connection.request(method, target, data, headers)
                answer = connection.getresponse()
                self.speaks = answer.headers.get(VERSION_HEADER, "unknown")
                refusal = None if answer.status == 200 else answer.read()
            if refusal is not None:
                raise Refused(_said(refusal, answer.status))
            yield answer
        finally:
            connection.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            raise NotAllowed(
                f"{self.path} refuses this account; run loomictl as the account of loomid"
            ) from None
        except (OSError, HTTPException) as error:
            raise NotRunning(f"loomid does not answer at {self.path} ({_reason(error)})") from None


def find(places: Sequence[Path]) -> AdminClient:
    """The daemon at the first runtime directory where one accepts connections."""
    for place in places:
        path = place / ADMIN_SOCKET
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(CALL_S)
            try:
                probe.connect(str(path))
            except PermissionError:
                raise NotAllowed(
                    f"{path} refuses this account; run loomictl as the account of loomid"
                ) from None
            except OSError:
                continue
            return AdminClient(path)
    tried = ", ".join(str(place) for place in places)
    raise NotRunning(
        f"loomid is not running (looked in {tried}); start it with"
        " 'systemctl --user start loomid', 'systemctl start loomid' or 'loomid'"
    )


def _said(text: bytes, status: int) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"loomid answered {status}"


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
