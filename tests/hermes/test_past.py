"""Hermes' own SessionDB writes, loomid reads: what no run of a gateway shows in short time."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

from loomid import hermesdb, lineage, pages
from loomid.lmp.folding import FileTold
from loomid.lmp.history_frames import Part
from loomid.pages import Page, Wanted
from tests.support.hermes_home import Home

if TYPE_CHECKING:
    from pathlib import Path

    from loomid.hermesdb import Reader
    from tests.support.hermes import Release


COMPRESS = """
import sys
from pathlib import Path
from hermes_state import SessionDB
db = SessionDB(db_path=Path(sys.argv[1]))
db.create_session(session_id="s1", source="loomi")
for number in range(6):
    db.append_message("s1", "user", f"q{number}")
    db.append_message("s1", "assistant", f"a{number}", finish_reason="stop")
for number in (6, 7):
    kept = db.get_messages_as_conversation("s1")
    summary = {"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] before"}
    db.archive_and_compact("s1", [*kept[:2], summary, *kept[-4:]])
    db.append_message("s1", "user", f"q{number}")
    db.append_message("s1", "assistant", f"a{number}", finish_reason="stop")
"""


def made_by(release: Release, home: Path, script: str) -> None:
    subprocess.run(
        [str(release.python()), "-c", script, str(home / hermesdb.FILE)],
        env={"HERMES_HOME": str(home), "HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )


def test_what_hermes_compresses_in_place_is_told_as_it_was(release: Release, folder: Path) -> None:
    made_by(release, folder, COMPRESS)

    def work(reader: Reader) -> Page:
        sessions = lineage.of_task(reader, None, "s1")
        answers = reader.rows(
            """SELECT content, min(timestamp) AS ts FROM messages WHERE content GLOB 'a[0-9]'
            GROUP BY content ORDER BY ts"""
        )
        sent = [
            FileTold("t", row["ts"], row["ts"], Part(part=row["content"], kind="attachment"))
            for row in answers
        ]
        wanted = Wanted(100, 10**6, full=False, handed=sent)
        return pages.read(reader, sessions, None, wanted, lambda s, n: f"{s}/{n}", None)

    turns = hermesdb.read(folder, work).turns
    assert [turn.prompt for turn in turns] == [f"q{number}" for number in range(8)]
    answers = [f"a{number}" for number in range(8)]
    assert [turn.parts[0].text for turn in turns] == answers
    assert [[part.part for part in turn.parts[1:]] for turn in turns] == [[one] for one in answers]


def test_the_schema_that_tests_use_is_the_releases_own(release: Release, folder: Path) -> None:
    (folder / "real").mkdir()
    made_by(release, folder / "real", COMPRESS)
    copy = Home(folder / "copy", release.name)
    for table in ("messages", "sessions", "messages_fts", "messages_fts_trigram"):
        columns = []
        for path in (folder / "real" / hermesdb.FILE, copy.path):
            with closing(sqlite3.connect(path)) as line:
                columns.append(line.execute(f"PRAGMA table_info({table})").fetchall())
        assert columns[0] == columns[1], table
