"""Rows of Hermes' session list as conversations."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, strategies as st

from loomid.lmp.conversations import Session, merge


def rows(*given: dict[str, Any]) -> list[Session]:
    base = {"source": "loomi", "started_at": 1.0}
    return msgspec.convert([base | row for row in given], list[Session])


def row(sid: str, key: str | None, started: float, active: float, **more: Any) -> dict[str, Any]:
    seen = {"id": sid, "session_key": key, "started_at": started, "last_active": active}
    return {**seen, "message_count": 2, "preview": f"of {sid}", **more}


def test_one_a_session_key_latest_first():
    found = merge(
        rows(
            row("s3", "k1", 300, 302, model="m2"),  # after /new
            row("s2", "k2", 200, 201, title="Second"),
            row("s1", "k1", 100, 102, title="First", model="m1"),
        )
    )
    assert [each.name for each in found] == ["k1", "k2"]
    first = found[0]
    assert (first.session_key, first.session_id, first.title) == ("k1", "s3", "First")
    assert (first.created_at, first.updated_at, first.message_count) == (100, 302, 4)
    assert (first.model, first.preview, first.platform) == ("m2", "of s3", "loomi")


def test_without_a_key_it_is_named_by_its_root_and_shows_the_last_of_its_chain():
    """A compression gives such a conversation another id: its task must stay the same."""
    before = merge(rows(row("root", None, 100, 150, source="cli")))
    after = merge(rows(row("tip", None, 100, 250, source="cli", _lineage_root_id="root")))
    assert [each.name for each in before + after] == ["root", "root"]
    assert [each.session_id for each in before + after] == ["root", "tip"]
    assert after[0].session_key is None


def test_what_hermes_may_leave_out():
    (only,) = merge(rows({"id": "s", "last_active": None, "title": None, "message_count": None}))
    assert (only.updated_at, only.title, only.preview, only.message_count) == (1.0, "", "", 0)


listed = st.lists(
    st.builds(
        row,
        st.sampled_from("abcdef"),
        st.sampled_from([None, "k1", "k2"]),
        st.floats(0, 10),
        st.floats(10, 20),
    )
).map(lambda found: sorted(found, key=lambda each: -each["last_active"]))


@given(listed, st.integers(0, 10))
def test_reading_on_changes_no_place_in_the_list(given_rows, cut):
    """A page more may only add conversations, and older things to those that are there."""
    some, more = merge(rows(*given_rows[:cut])), merge(rows(*given_rows))
    head = more[: len(some)]
    assert [(e.name, e.updated_at) for e in head] == [(e.name, e.updated_at) for e in some]
    assert all(e.message_count >= s.message_count for e, s in zip(head, some, strict=True))
    assert len({each.name for each in more}) == len(more)
