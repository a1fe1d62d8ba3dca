"""Rows about files: what a phone sends along, and what the agent sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.matrix.rows import scenario
from tests.support.samples import PDF, b64, png, sha256

if TYPE_CHECKING:
    from tests.matrix.world import Player


@scenario
async def image_to_the_agent(player: Player) -> None:
    picture = png(31, 17)
    inline = {"data": b64(picture), "media_type": "image/png", "name": "../holiday.png"}
    started, end = await player.play("look", attachments=[inline])
    assert end.payload["text"] == f"1 images image/png {sha256(picture)}", (
        end.payload,
        started.payload,
    )
    ref = {
        "attachment_id": f"att_{sha256(picture)}",
        "media_type": "image/png",
        "bytes": len(picture),
        "name": "holiday.png",
        "width": 31,
        "height": 17,
    }
    assert started.payload["origin"]["attachments"] == [ref]
    # Nothing but a document, and not a word.
    note = {"data": b64(b"a,b\n1,2\n"), "media_type": "text/csv", "name": "table.csv"}
    started, end = await player.play("", attachments=[note], task_id=started.payload["task_id"])
    assert "table.csv" in end.payload["text"], "the model is told where it lies"


@scenario
async def document_from_the_agent(player: Player) -> None:
    path = player.world.gateway.folder / "user" / "report of today.pdf"
    path.write_bytes(PDF)
    after = player.mark()
    started, end = await player.play(f"hand {path}")
    run_id = started.payload["run_id"]
    sent = await player.event("run.attachment", after=after, run_id=run_id)
    assert sent.payload == {
        "run_id": run_id,
        "task_id": started.payload["task_id"],
        "attachment_id": f"att_{sha256(PDF)}",
        "media_type": "application/pdf",
        "bytes": len(PDF),
        "name": "report of today.pdf",
    }
    assert end.payload["text"].startswith("Here it is.")
    got = await player.request("attachment.get", attachment_id=sent.payload["attachment_id"])
    assert got.payload["data"] == b64(PDF)
    other = await player.request(
        "attachment.get", attachment_id=sent.payload["attachment_id"], task_id="task_other"
    )
    assert other.payload["code"] == "unknown_file"
    inbox = player.world.daemon.state_dir / "inbox"
    assert not list(inbox.iterdir()), "its copy for us is gone"
    assert not (player.world.gateway.home / "loomi" / "files").exists()
