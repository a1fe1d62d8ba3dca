"""Small files of known types, and what a phone does to bring one up or down."""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import zipfile
import zlib
from typing import Any

import aiohttp

from tests.support.phone import Phone


def png(width: int = 3, height: int = 2) -> bytes:
    """A picture; as large as its header says only as long as nobody unpacks it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row = b"\0" + b"\x40\x80\xc0" * min(width, 100)
    data = zlib.compress(row * min(height, 100))
    chunks = [(b"IHDR", header), (b"IDAT", data), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def jpeg(width: int = 5, height: int = 4) -> bytes:
    """As much of one as tells its size."""
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"
    start = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\1\1\0\0\1\0\1\0\0"
    return start + b"\xff\xc0" + struct.pack(">H", 2 + len(frame)) + frame + b"\xff\xd9"


def gif(width: int = 7, height: int = 6) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def webp(width: int = 9, height: int = 8) -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0"
    body += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", len(body)) + body


def packed(**files: str) -> bytes:
    """A zip file; `_` in a name stands for a slash."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("_", "/"), text)
    return out.getvalue()


def docx() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<document/>")
    return out.getvalue()


PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n%%EOF\n"
OGG = b"OggS\0\2" + bytes(22) + b"\1\x13OpusHead\1\1" + bytes(60)
MP4 = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(60)
WAV = b"RIFF\x34\0\0\0WAVEfmt " + bytes(40)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Carrier:
    """A phone's HTTP side."""

    def __init__(self, phone: Phone, session: aiohttp.ClientSession) -> None:
        self.phone = phone
        self.session = session
        self.base = phone.url.replace("ws", "http", 1).removesuffix("/ws")

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.phone.device_id}.{self.phone.credential}"}

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """Status and body, JSON decoded."""
        headers = {**self.auth, **more.pop("headers", {})}
        async with self.session.request(
            method, self.base + path, headers=headers, **more
        ) as answer:
            if answer.content_type == "application/json":
                return answer.status, await answer.json()
            return answer.status, await answer.read()

    async def begin(self, data: bytes, **more: Any) -> tuple[int, Any]:
        asked = {"bytes": len(data), "sha256": sha256(data), **more}
        return await self.call("POST", "/upload", json=asked)

    async def append(self, upload_id: str, offset: int, data: Any) -> tuple[int, Any]:
        headers = {"Upload-Offset": str(offset)}
        if isinstance(data, bytes) and len(data) > 2**19:
            data = io.BytesIO(data)  # aiohttp's client asks for that
        return await self.call("PATCH", f"/upload/{upload_id}", data=data, headers=headers)

    async def upload(self, data: bytes, **more: Any) -> dict[str, Any]:
        """The whole file at once; its reference."""
        status, begun = await self.begin(data, **more)
        assert status == 201, begun
        status, done = await self.append(begun["upload_id"], 0, data)
        assert status == 200, done
        return done["attachment"]
