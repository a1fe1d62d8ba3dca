"""What a file is, by its content."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, strategies as st

from loomid.errors import BadFile
from loomid.filetypes import EDGE_BYTES, MAX_PIXELS, Content, declared_type, examine
from tests.support import samples

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def look(data: bytes, declared: str | None = None, *, strict: bool = True) -> Content:
    return examine(io.BytesIO(data), declared_type(declared), strict=strict)


def refused(data: bytes, declared: str | None = None, *, strict: bool = True) -> str:
    with pytest.raises(BadFile) as caught:
        look(data, declared, strict=strict)
    return str(caught.value.params["reason"])


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (samples.png(), Content("image/png", 3, 2)),
        (samples.jpeg(), Content("image/jpeg", 5, 4)),
        (samples.gif(), Content("image/gif", 7, 6)),
        (samples.webp(), Content("image/webp", 9, 8)),
        (samples.PDF, Content("application/pdf")),
        (b"%PDF-1.4 in ASCII alone\n", Content("application/pdf")),
        (samples.OGG, Content("audio/ogg")),
        (samples.MP4, Content("video/mp4")),
        (samples.WAV, Content("audio/wav")),
        (samples.packed(a="b"), Content("application/zip")),
        (samples.docx(), Content(WORD)),
        ("Grüße, 你好\n".encode(), Content("text/plain")),
        (b"BMW is a car", Content("text/plain")),
        (b"x" * (EDGE_BYTES - 1) + "ä".encode() * EDGE_BYTES, Content("text/plain")),
        (bytes(range(256)), Content("application/octet-stream")),
        (b"text at first" + bytes(EDGE_BYTES), Content("application/octet-stream")),
    ],
)
def test_what_it_is(data: bytes, wanted: Content):
    assert look(data) == wanted


@pytest.mark.parametrize(
    ("data", "declared", "wanted"),
    [
        (samples.jpeg(), "image/jpg", "image/jpeg"),
        (samples.OGG, "audio/ogg; codecs=opus", "audio/ogg"),
        (samples.MP4, "audio/mp4", "audio/mp4"),
        (samples.MP4, "video/quicktime", "video/quicktime"),
        (samples.docx(), "application/zip", "application/zip"),
        (b"a,b\n1,2\n", "text/csv", "text/csv"),
        (b'{"a": 1}', "application/json", "application/json"),
        (b"# Title\n", "text/markdown", "text/markdown"),
        (b"<html><body>x", "text/plain", "text/plain"),
        (samples.png(), "application/octet-stream", "image/png"),
        (bytes(range(256)), "application/x-own", "application/octet-stream"),
    ],
)
def test_what_fits(data: bytes, declared: str, wanted: str):
    assert look(data, declared).media_type == wanted


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        (samples.png(), "image/jpeg"),
        (samples.png(), "text/plain"),
        (samples.png(), "application/pdf"),
        (samples.PDF, "image/png"),
        (samples.PDF, "text/plain"),
        (b"<script>alert(1)</script>", "image/png"),
        (b"just text", "audio/ogg"),
        (b"just text", "application/x-own"),
        (samples.packed(a="b"), "image/gif"),
        (samples.packed(a="b"), WORD),
        (samples.OGG, "video/mp4"),
        (bytes(range(256)), "text/plain"),
        (bytes(range(256)), "image/webp"),
    ],
)
def test_what_does_not(data: bytes, declared: str):
    assert refused(data, declared) == "mismatch"


def test_image_bombs():
    """30,000 squared: gigabytes unpacked, of a few hundred bytes."""
    for make in (samples.png, samples.jpeg, samples.gif):
        assert refused(make(30_000, 30_000)) == "too_many_pixels"
    assert refused(samples.webp(2**24, 2**24)) == "too_many_pixels"
    side = int(MAX_PIXELS**0.5)
    assert look(samples.png(side, side)).width == side


def test_broken_images():
    assert refused(samples.png()[:12]) == "broken_image"
    assert refused(samples.png(0, 5)) == "broken_image"
    assert refused(b"\xff\xd8\xff" + b"\xe0\0\2" * 400_000) == "broken_image"


def test_only_images_that_models_are_shown():
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40)
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
    assert refused(heic) == "unsupported"
    assert refused(svg, "image/svg+xml") == "unsupported"
    assert look(heic, strict=False).media_type.startswith("image/hei")
    assert look(svg, strict=False).media_type == "image/svg+xml"


def test_nothing_is_no_file():
    assert refused(b"") == "empty"


@pytest.mark.parametrize("said", ["image", "image/png/x", "a b/c", "x" * 300, "image/\r\nX: y"])
def test_odd_media_types(said: str):
    with pytest.raises(BadFile) as caught:
        declared_type(said)
    assert caught.value.params == {"reason": "media_type"}


@given(st.binary(max_size=300), st.sampled_from([None, "image/png", "text/plain", "audio/ogg"]))
def test_whatever_it_is_something_is_said_of_it(data: bytes, declared: str | None):
    for start in (b"", samples.png()[:20], b"\xff\xd8\xff", b"RIFF1234WEBP", b"PK\x03\x04"):
        for strict in (True, False):
            try:
                content = look(start + data, declared, strict=strict)
            except BadFile:
                continue
            assert "/" in content.media_type
