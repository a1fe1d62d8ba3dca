"""What must hold in a simulation: at any moment, and when everything has come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.whole.phone import NOTHING_RAN

if TYPE_CHECKING:
    from tests.support.whole.host import Host, Turn
    from tests.support.whole.phone import Phone
    from tests.support.whole.world import World

ENDS_WITHIN_S = 40.0
"""A run whose last facts are here, and whatever a phone asked, is over by then."""


def at_any_moment(world: World) -> None:
    """Phones that know all there is show it, and nothing was done twice."""
    assert not world.bugs.seen, list(world.bugs.seen)
    for phone in world.phones:
        phone.check_view(world)
    for (device_id, request_id), times in world.ran.sends.items():
        assert times == 1 or _void(world, device_id, request_id), "a message was sent twice"
    assert all(times == 1 for times in world.ran.answered.values()), "answered twice"


def _void(world: World, device_id: str, request_id: str) -> bool:
    asked = (phone.asked for phone in world.phones if phone.device_id == device_id)
    return any(request_id in one and one[request_id].void for one in asked)


def in_the_end(world: World, features: list[str]) -> None:
    """Let everybody come back and everything end: then nothing is missing."""
    world.disk.latency, world.disk.fuse = 0.0, None
    if world.life is None:
        world.start()
    for host in world.hosts:
        host.answers, host.busy = True, False
        if host.link is None:
            host.start(features)
        host.mend()
    _meet(world)
    world.advance(ENDS_WITHIN_S)
    at_any_moment(world)
    for host in world.hosts:
        _check_turns(world, host)
    for phone in world.phones:
        _check_requests(world, phone)
    _all_over(world, features)


def _all_over(world: World, features: list[str]) -> None:
    for host in world.hosts:  # what the old processes left behind is lost
        host.kill()
        host.start(features)
    world.advance(20.0)
    at_any_moment(world)
    assert set(world.truth.runs.values()) <= {"over"}
    assert set(world.truth.asked.values()) <= {"over"}
    for phone in world.phones:
        if phone.credential:
            assert phone.pipe is not None, "it is not let in"
            assert phone.position >= world.truth.last, "it was not told everything"


def _meet(world: World) -> None:
    """All phones come, and ask again what was not answered."""
    for phone in world.phones:
        phone.attentive = True
        if phone.credential:
            world.connect(phone, None, phone.last_seq)
    world.advance(5.0)
    for phone in world.phones:
        for asked in phone.asked.values():
            # Also what was denied, asked again, and not answered since: it may have run then.
            unheard = len(asked.answers) < asked.times
            if unheard and not asked.void and phone.pipe is not None:
                phone.ask(asked.type, **asked.payload)
                world.advance(0.1)


def _check_turns(world: World, host: Host) -> None:
    for turn in host.turns:
        if turn.texts is not None:
            _check_turn(world, host, turn, turn.texts)


def _check_turn(world: World, host: Host, turn: Turn, texts: list[str | None]) -> None:
    """Its run told what the model said, and how it ended."""
    assert turn.over
    run_id = world.run_id(host, turn.turn_id)
    truth, story = world.truth, world.truth.story(run_id)
    assert run_id in truth.ended, (turn, story)
    type_, shown, end = truth.ended[run_id]
    assert [shown.text(number) for number in range(1, len(texts) + 1)] == texts, (turn, story)
    failed = turn.status == "failed"
    assert type_ == ("run.failed" if failed else "run.completed"), (turn, story)
    assert end["status"] == turn.status, (turn, story)
    assert truth.tools[run_id] == turn.tools, (turn, story)
    assert not shown.tools, (turn, story)
    if turn.origin is not None:
        device_id, request_id = turn.origin
        origin = {"device_id": device_id, "request_id": request_id}
        assert story[0].payload["origin"] == origin, (turn, story)


def _check_requests(world: World, phone: Phone) -> None:
    """Each was answered, and truly."""
    for request_id, asked in phone.asked.items():
        if asked.void or phone.pipe is None:
            continue
        assert asked.answers, "a request was never answered"
        if asked.type == "session.send":
            ran = world.ran.sends[phone.device_id, request_id]
            code = asked.answers[-1].get("code")
            assert ran == 1 or code is not None, "it was accepted, and did not run"
            assert ran == 0 or code not in NOTHING_RAN, "it ran, and that was denied"
