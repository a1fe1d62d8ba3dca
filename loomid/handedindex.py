"""What agents sent, for the history of their runs: the table handed (lmp/recalled.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loomid.lmp.folding import FileTold
from loomid.lmp.history_frames import Part

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

MOST = 4_096
MOST_BYTES = 16 * 2**20
"""Of parts, captions and links in them; the newest are kept."""
_PART = msgspec.json.Decoder(Part)


def write(line: sqlite3.Connection, told: Iterable[FileTold]) -> None:
    """Note what was sent, inside of the transaction of the events that tell it.

    Another attempt at the same batch changes nothing.
    """
    rows = [
        (one.part.part, one.task_id, one.began, one.until, msgspec.json.encode(one.part).decode())
        for one in told
    ]
    if rows:
        line.executemany(
            """INSERT INTO handed (name, task_id, began, until, part) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT DO NOTHING""",
            rows,
        )
        line.execute(
            """DELETE FROM handed WHERE id IN (SELECT id FROM (SELECT id,
            row_number() OVER newest AS number, sum(length(CAST(part AS BLOB))) OVER newest AS held
            FROM handed WINDOW newest AS (ORDER BY id DESC)) WHERE number > ? OR held > ?)""",
            (MOST, MOST_BYTES),
        )


def of_task(line: sqlite3.Connection, task_id: str) -> list[FileTold]:
    """What was sent in a task, in the order in which it was told."""
    rows = line.execute(
        "SELECT began, until, part FROM handed WHERE task_id = ? ORDER BY id", (task_id,)
    )
    return [FileTold(task_id, began, until, _PART.decode(part)) for began, until, part in rows]
