"""Deltas joined on their way out: bounds, order, nothing lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from loomid.lmp.coalesce import GAP_S, Coalescer, Kind

deltas = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.001, 0.013, 0.04, 0.1]),
        st.sampled_from(["text", "text", "text", "reasoning"]),
        st.sampled_from(["a", "bc"]),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(deltas)
def test_bounds(rows: list[tuple[float, Kind, str]]) -> None:
    coalescer = Coalescer("run")
    now, out, taken = 100.0, [], []
    for gap, kind, text in rows:
        if coalescer.due is not None and coalescer.due <= now + gap:
            at = max(coalescer.due, now)
            out += [(at, frame) for frame in coalescer.flush(at)]
        now += gap
        taken.append((now, kind, text))
        out += [(now, frame) for frame in coalescer.add(now, kind, 1, text)]
        if coalescer.due is not None:
            assert now <= coalescer.due <= now + GAP_S  # none is held longer
    out += [(now, frame) for frame in coalescer.flush(now)]
    for wanted in ("text", "reasoning"):
        assert "".join(f.text for _, f in out if f.kind == wanted) == "".join(
            text for _, kind, text in taken if kind == wanted
        )
    joined = [(f.kind, f.text) for _, f in out]
    for (before, first), (after, second), behind in zip(
        out, out[1:], [*out[2:], None], strict=False
    ):
        if first.kind == second.kind and after - before < GAP_S - 1e-9:
            assert behind is None or behind[1].kind != second.kind
    assert "".join(text for _, text in joined) == "".join(text for _, _, text in taken)


def test_first_at_once_then_25_a_second() -> None:
    coalescer = Coalescer("run")
    frames = 0
    for step in range(1_000):
        frames += len(coalescer.add(step / 1_000, "text", 1, "x"))
    assert frames == 25
    assert coalescer.due is not None


def test_iterations_are_kept_apart() -> None:
    coalescer = Coalescer("run")
    coalescer.add(1.0, "text", 1, "a")
    coalescer.add(1.0, "text", 1, "b")
    (frame,) = coalescer.add(1.0, "text", 2, "c")
    assert (frame.text, frame.iteration) == ("b", 1)
    assert [f.text for f in coalescer.flush(1.0)] == ["c"]
    assert coalescer.flush(1.0) == []
