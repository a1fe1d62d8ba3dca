"""A pairing code on a terminal: whole, or with a word."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loomid import admin, terminal
from tests.support.daemon import Daemon, clean_environ
from tests.support.loomictl import command

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("d"), LOOMI_NAME="box") as running:
        yield running


@pytest.mark.parametrize(
    ("size", "lines", "fits"),
    [((30, 100), 25, True), ((24, 80), 23, True), ((23, 80), 23, False), ((24, 44), 23, False)],
)
async def test_a_code_is_as_large_as_the_window_allows(
    daemon: Daemon, size: tuple[int, int], lines: int, fits: bool
) -> None:
    """Its top never scrolls away without a word."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    arguments = command(daemon.runtime_dir, "pair", "--url", "ws://10.0.0.1:8770")
    waiting = await asyncio.create_subprocess_exec(
        *arguments, stdout=slave, stderr=slave, env=clean_environ(Path("/nonexistent")), cwd="/"
    )
    os.close(slave)
    try:
        last = "and 24 lines" if not fits else rf"(\x1b\[97;40m.*\s+){{{lines}}}"
        text = await asyncio.to_thread(read_until, master, last)
    finally:
        waiting.send_signal(signal.SIGINT)
        await waiting.wait()
        os.close(master)
    drawn = re.findall(r"\x1b\[97;40m(.*?)\x1b", text)
    assert len(drawn) == lines
    assert ("too small" in text) == (not fits)
    if fits:
        assert len(drawn) < size[0]
        assert len(drawn[0]) <= size[1]
    assert text.index("Waiting") < text.index("\x1b[97")


def read_until(master: int, pattern: str) -> str:
    """What came up to the first match."""
    text = ""
    while not re.search(pattern, text):
        assert select.select([master], [], [], 20)[0], text
        text += os.read(master, 65536).decode("utf-8", "replace")
    return text


@pytest.mark.parametrize("text", ["x" * 20, "x" * 120, "x" * 200])
def test_half_of_the_border_is_left(text: str) -> None:
    """Two modules on each side: phones still find the code."""
    drawn = admin.draw(text).rstrip("\n").split("\n")
    small = terminal.fitted("\n".join(drawn), terminal.Size((80, len(drawn))))
    (code,) = (re.findall(r"40m(.*?)\x1b", one) for one in small)
    assert [line[2:-2] for line in drawn[1:-1]] == code
    light = set("█\xa0")
    assert len({*code[0], code[0][0]} & light) == 1  # a whole line of border
    assert {line[:2] for line in code[:-1]} == {code[0][0] * 2}
    assert {line[-2:] for line in code[:-1]} == {code[0][0] * 2}


@pytest.mark.parametrize(
    "said", ["", "yes", "80", "80x", "80x24x1", "-1x2", "99999x1", "8\u0660x2"]
)
def test_what_is_no_size(said: str) -> None:
    assert terminal.said_size(said) is None
    assert terminal.said_size("80x24") == (80, 24)


def test_a_window_that_does_not_say_its_size() -> None:
    drawn = admin.draw("x" * 200)
    assert terminal.fitted(drawn, terminal.Size((0, 0))) == [terminal.coloured(drawn)]
