"""The text of one iteration: deltas, retries, previews and the truth."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from loomid.lmp.text import Change, Track, without_cursor

pieces = st.lists(st.text(alphabet="ab \n", max_size=4), max_size=8)


def shown(track: Track, changes: list[Change | None]) -> str:
    """What a phone has that followed the changes; it must be what the track believes."""
    text = ""
    for change in changes:
        if change is not None:
            text = change.text if change.restated else text + change.text
    assert text == track.text
    return text


@settings(max_examples=200)
@given(pieces)
def test_deltas_add_up_to_the_stripped_text(given_pieces: list[str]) -> None:
    track = Track()
    changes = [track.add(piece) for piece in given_pieces]
    assert shown(track, changes) == "".join(given_pieces).strip()
    assert track.settle("".join(given_pieces)) is None
    assert not any(c.restated for c in changes if c is not None)


@settings(max_examples=200)
@given(pieces, pieces, st.text(alphabet="ab \n", max_size=12), st.booleans())
def test_truth_always_wins(
    first: list[str], second: list[str], truth: str, continues: bool
) -> None:
    track = Track()
    changes = [track.add(piece) for piece in first]
    before = shown(track, changes)
    track.retry(continues=continues)
    changes += [track.add(piece) for piece in second]
    changes.append(track.settle(truth))
    text = shown(track, changes)
    if not continues:
        assert text == truth.strip()
    else:
        assert text.endswith(truth.strip()) or text.startswith(before)


@settings(max_examples=200)
@given(pieces, st.integers(0, 8))
def test_a_retry_that_repeats_is_told_once(given_pieces: list[str], cut: int) -> None:
    track = Track()
    changes = [track.add(piece) for piece in given_pieces[:cut]]
    track.retry(continues=False)
    changes += [track.add(piece) for piece in given_pieces]
    changes.append(track.settle("".join(given_pieces)))
    assert shown(track, changes) == "".join(given_pieces).strip()
    assert not any(c.restated for c in changes if c is not None)


def test_continuation_goes_on_where_the_text_stopped() -> None:
    track = Track()
    changes = [track.add("w0 w1 ")]
    track.retry(continues=True)
    changes += [track.add("w"), track.add("2"), track.settle("w2")]
    assert shown(track, changes) == "w0 w1 w2"
    track.retry(continues=True)
    changes += [track.settle("")]
    assert shown(track, changes) == "w0 w1 w2"


def test_reasoning_is_never_retracted() -> None:
    track = Track(retractable=False)
    changes = [track.add("so ")]
    track.retry(continues=True)
    changes += [track.add("hm")]
    assert shown(track, changes) == "so hm"


def test_preview_may_hold_what_came_before_a_retry() -> None:
    track = Track()
    changes = [track.preview("w0 w1", final=False)]
    track.retry(continues=True)
    changes += [track.preview("w0 w1 w2", final=True), track.settle("w2")]
    assert shown(track, changes) == "w0 w1 w2"


def test_preview_of_the_only_attempt_ends_as_its_text() -> None:
    track = Track()
    changes = [track.preview("ah ah ah", final=False), track.settle("ah ah")]
    assert shown(track, changes) == "ah ah"


def test_cursor() -> None:
    assert without_cursor("w0  ▉") == "w0 "
    assert without_cursor("w0▉") == "w0"
    assert without_cursor("w0 ") == "w0 "
