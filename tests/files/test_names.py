"""Names of files are for people; whatever they say, nothing is stored there."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from loomid.lmp.filenames import MOST_CHARS, clean_name


@pytest.mark.parametrize(
    ("said", "media_type", "wanted"),
    [
        ("IMG_1024.JPG", "image/jpeg", "IMG_1024.JPG"),
        ("photo.jpeg", "image/jpeg", "photo.jpeg"),
        ("photo.png", "image/jpeg", "photo.jpg"),
        ("../../etc/passwd", "text/plain", "passwd.txt"),
        ("..\\..\\boot.ini", "text/plain", "boot.ini"),
        ("/etc/cron.d/", "text/plain", "file.txt"),
        ("..", "application/pdf", "file.pdf"),
        (".bashrc", "text/plain", "bashrc.txt"),
        ("", "application/octet-stream", "file.bin"),
        (None, "image/webp", "file.webp"),
        ("a\0b\x1b[31m.txt", "text/plain", "ab[31m.txt"),
        ("cod\u202egpj.exe", "application/octet-stream", "codgpj.exe"),
        ("a\r\nSet-Cookie: b.txt", "text/plain", "a Set-Cookie b.txt"),
        ("Grüße 你好.pdf", "application/pdf", "Grüße 你好.pdf"),
        ("x" * 500 + ".pdf", "application/pdf", "x" * (MOST_CHARS - 4) + ".pdf"),
        ('a"b<c>|d?.txt', "text/plain", "a b c d.txt"),
    ],
)
def test_names(said: str | None, media_type: str, wanted: str):
    assert clean_name(said, media_type) == wanted


@given(st.text(max_size=400), st.sampled_from(["image/png", "text/plain", "", "x/y"]))
def test_every_name_is_one_harmless_component(said: str, media_type: str):
    name = clean_name(said, media_type)
    assert 0 < len(name) <= MOST_CHARS
    assert not set('/\\\0\r\n<>:"|?*') & set(name)
    assert name.strip(" .") == name or media_type == "image/png"
    assert name not in (".", "..")
    assert clean_name(name, media_type) == name
