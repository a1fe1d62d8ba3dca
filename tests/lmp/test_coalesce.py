"""Deltas joined on their way out: bounds, order, nothing lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings, strategies as st

from loomid.lmp.coalesce import GAP_S, SLACK_S, Coalescer, Kind

deltas = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.013, 0.04, 0.1]),
        st.sampled_from(["text", "text", "text", "reasoning"]),
        st.sampled_from(["a", "bc"]),
    ),
    max_size=40,
)


def play(
    rows: list[tuple[float, Kind, str]],
) -> tuple[list[tuple[float, str, str]], list[tuple[float, str, str]]]:
    """What was taken and what went out: (when, kind, text), ticks at their time."""
    dropped: Counter[str] = Counter()
    coalescer = Coalescer("run", dropped)
    now = 100.0
    out: list[tuple[float, str, str]] = []
    taken: list[tuple[float, str, str]] = []
    for gap, kind, text in rows:
        if coalescer.due is not None and coalescer.due <= now + gap:
            at = coalescer.due
            out += [(at, frame.kind, frame.text) for frame in coalescer.flush(at)]
        now += gap
        taken.append((now, kind, text))
        out += [(now, f.kind, f.text) for f in coalescer.add(now, kind, 1, "text:0", text)]
    if coalescer.due is not None:
        at = coalescer.due
        out += [(at, frame.kind, frame.text) for frame in coalescer.flush(at)]
    assert dropped.total() == dropped["joined"] == len(taken) - len(out)
    return taken, out


@settings(max_examples=200)
@given(deltas)
def test_nothing_is_lost_moved_or_held(rows: list[tuple[float, Kind, str]]) -> None:
    taken, out = play(rows)
    assert "".join(text for _, _, text in out) == "".join(text for _, _, text in taken)
    arrived = [(at, kind) for at, kind, text in taken for _ in text]
    left = [(at, kind) for at, kind, text in out for _ in text]
    for (came, kind), (went, same) in zip(arrived, left, strict=True):
        assert kind == same
        assert came <= went <= came + GAP_S + 1e-9


@settings(max_examples=200)
@given(st.lists(st.sampled_from([0.0, 0.001, 0.013, 0.019, 0.021, 0.03, 0.04]), max_size=120))
def test_the_rate_holds_over_any_time(gaps: list[float]) -> None:
    _, out = play([(gap, "text", "x") for gap in gaps])
    for first, (begun, _, _) in enumerate(out):
        for last, (ended, _, _) in enumerate(out[first + 1 :], 1):
            assert ended - begun >= last * GAP_S - SLACK_S - 1e-9


def test_first_at_once_then_25_a_second() -> None:
    _, out = play([(0.001, "text", "x")] * 10_000)
    assert out[0] == (100 + 0.001, "text", "x")
    assert 248 <= len(out) <= 252


def test_the_newest_text_of_a_frame_is_new() -> None:
    """Deltas every 20 ms, give or take: each frame leaves with the delta that just came."""
    taken, out = play([(0.019 + 0.002 * (i % 2), "text", "x") for i in range(100)])
    times = {at for at, _, _ in taken}
    assert sum(at in times for at, _, _ in out) > 0.9 * len(out)


def test_iterations_are_kept_apart() -> None:
    coalescer = Coalescer("run", Counter())
    coalescer.add(1.0, "text", 1, "text:0", "a")
    coalescer.add(1.0, "text", 1, "text:0", "b")
    (frame,) = coalescer.add(1.0, "text", 2, "text:1", "c")
    assert (frame.text, frame.iteration, frame.part) == ("b", 1, "text:0")
    assert [f.text for f in coalescer.flush(1.0)] == ["c"]
    assert coalescer.flush(1.0) == []
