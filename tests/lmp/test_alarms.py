"""When owners are woken."""

from __future__ import annotations

from hypothesis import given, strategies as st

from loomid.lmp.folding import Alarms

OWNERS = st.sampled_from("abc")
TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.tuples(OWNERS, st.none() | TIMES) | TIMES))
def test_each_owner_has_its_last_alarm(steps):
    alarms, wanted = Alarms(), {}
    for step in steps:
        if isinstance(step, float):
            due = sorted((at, owner) for owner, at in wanted.items() if at <= step)
            assert alarms.due(step) == [owner for _, owner in due]
            wanted = {owner: at for owner, at in wanted.items() if at > step}
        else:
            owner, at = step
            alarms.set(owner, at)
            wanted[owner] = at
            wanted = {owner: at for owner, at in wanted.items() if at is not None}
        assert alarms.next == min(wanted.values(), default=None)


def test_alarms_that_are_moved_again_and_again_take_no_room():
    """Each delta moves the alarm of its turn, which is hours away."""
    alarms = Alarms()
    alarms.set("other", 5.0)
    for i in range(10_000):
        alarms.set("turn", 20_000.0 + i)
    assert len(alarms._heap) < 200
    assert alarms.due(1e9) == ["other", "turn"]
