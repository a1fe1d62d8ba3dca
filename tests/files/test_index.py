"""How much the index looks at, however many files it has."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from loomid.fileindex import FileIndex, Use
from loomid.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FEW, MANY = 10, 2000


async def steps(folder: Path, files: int, work: Callable[[FileIndex], Awaitable[Any]]) -> int:
    """How many steps SQLite makes for something, with so many files in the index."""
    path = folder / f"{files}.db"
    async with await Store.open(path, time.time) as store:
        with closing(sqlite3.connect(path)) as other, other:
            names = [(f"{n:064}",) for n in range(files)]
            other.executemany("INSERT INTO file VALUES (?, '', 1, NULL, NULL, 0)", names)
            other.executemany(
                "INSERT INTO file_use (sha256, name, task_id, at) VALUES (?, '', 'task_1', 0)",
                names,
            )
        index = FileIndex(store)
        await index.use(names[0][0], Use("", message_id="m1"), 0.0)
        made = 0

        def made_one() -> int:
            nonlocal made
            made += 1
            return 0

        await store.safe.run(lambda line: line.set_progress_handler(made_one, 1))
        await work(index)
        return made


async def test_a_message_that_never_ran(tmp_path: Path):
    few, many = [
        await steps(tmp_path, files, lambda index: index.release("m1")) for files in (FEW, MANY)
    ]
    assert many < few + MANY


async def test_where_there_is_room(tmp_path: Path):
    """Their sizes are added up, and that is all."""
    few, many = [
        await steps(tmp_path, files, lambda index: index.make_room(1, 2 * MANY, 0.0))
        for files in (FEW, MANY)
    ]
    assert many < few + 10 * MANY
