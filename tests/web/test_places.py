"""Places at the door: the oldest stranger yields; who takes too long about it is dropped."""

from collections import Counter

from loomid.places import Place, Places


def holder(door, name, told, *, polite=True):
    """One stranger, who tells what it was told."""
    place = Place(door, lambda: told.append(f"drop {name}"))
    if polite:
        place.yield_ = lambda: told.append(f"yield {name}")
    return place


def test_the_oldest_yields_to_a_new_one():
    refused = Counter()
    door, told = Places(8, refused), []
    places = [holder(door, str(n), told) for n in range(9)]
    assert told == ["yield 0"]
    places[1].leave()
    holder(door, "9", told)
    holder(door, "10", told)
    assert told == ["yield 0", "yield 2"]
    assert refused == {"yielded": 2}


def test_leaving_twice_frees_one_place():
    door, told = Places(2, Counter()), []
    first = holder(door, "a", told)
    holder(door, "b", told)
    first.leave()
    first.leave()
    holder(door, "c", told)
    assert told == []
    assert len(door) == 2


def test_who_cannot_be_told_is_dropped():
    door, told = Places(1, Counter()), []
    holder(door, "a", told, polite=False)
    holder(door, "b", told)
    assert told == ["drop a"]


def test_those_who_take_their_time_to_go_are_few():
    door, told = Places(8, Counter()), []
    for n in range(12):
        holder(door, str(n), told)
    assert told == ["yield 0", "yield 1", "yield 2", "drop 0", "yield 3", "drop 1"]
    assert len(door) == 10


def test_where_descriptors_are_short_the_oldest_goes_at_once():
    door, told = Places(4, Counter()), []
    assert not door.make_way(at_once=True)
    for name in "abcde":
        holder(door, name, told)
    while door.make_way(at_once=True):
        pass
    assert told == ["yield a", *(f"drop {name}" for name in "abcde")]
