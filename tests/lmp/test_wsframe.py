"""Frames as RFC 6455 has them."""

import pytest

from loomid.lmp import wsframe


@pytest.mark.parametrize(
    ("length", "header"),
    [
        (0, "8100"),
        (125, "817d"),
        (126, "817e007e"),
        (65535, "817effff"),
        (65536, "817f0000000000010000"),
    ],
)
def test_headers(length, header):
    assert wsframe.header(length).hex() == header


def test_close_frames():
    assert wsframe.close(4003, "no").hex() == "8804" + "0fa3" + b"no".hex()
    assert wsframe.close(1005, "none").hex() == "8800"
    assert len(wsframe.close(4000, "x" * 500)) == 127


def test_pong() -> None:
    assert wsframe.pong(b"hi").hex() == "8a02" + b"hi".hex()
