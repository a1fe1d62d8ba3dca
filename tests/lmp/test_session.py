"""The connection's state machine: hello rules, heartbeat, errors, rates."""

import json

import pytest
from hypothesis import given, strategies as st

from loomid.errors import TokenUsed, Unauthorized
from loomid.lmp import frames, session
from loomid.lmp.session import Authenticate, Close, Execute, Rest, Send, Session, State

HELLO = {"protocol_version": 1, "device_id": "dev_1", "credential": "c"}


def frame(type_, payload=None, **more):
    return json.dumps({"v": 1, "type": type_, "payload": payload or {}, **more})


def live(now=0.0):
    s = Session(now)
    s.receive(frame("hello", HELLO), now)
    s.accepted(now)
    return s


def code_of(actions):
    (error,) = (a for a in actions if isinstance(a, Send) and a.type == "error")
    return error.payload.code


def assert_fatal(actions, code, close):
    error, closing = actions
    assert isinstance(error, Send)
    assert (error.type, error.payload.code, error.payload.fatal) == ("error", code, True)
    assert isinstance(closing, Close)
    assert closing.code == close


def test_the_way_from_hello_to_live():
    s = Session(0.0)
    assert s.deadline == 10.0
    (action,) = s.receive(frame("hello", {"protocol_version": 1, "token": "t"}), 1.0)
    assert isinstance(action, Authenticate)
    assert action.hello.token == "t"
    assert s.state is State.CHECKING
    assert s.deadline is None
    s.accepted(2.0)
    assert s.state is State.LIVE
    assert s.deadline == 27.0


def test_no_hello_within_ten_seconds():
    s = Session(0.0)
    assert s.tick(9.9) == []
    assert_fatal(s.tick(10.0), "hello_timeout", 4002)
    assert s.state is State.CLOSED
    assert s.deadline is None
    assert s.tick(11.0) == []
    assert s.receive(frame("hello", HELLO), 11.0) == []


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ({"protocol_version": 1, "token": "t", "device_id": "d"}, "bad_frame"),
        ({"protocol_version": 1, "token": "t", "credential": "c"}, "bad_frame"),
        ({"protocol_version": 1, "token": "t", "device_id": "d", "credential": "c"}, "bad_frame"),
        ({"protocol_version": 1}, "bad_frame"),
        ({"protocol_version": 1, "device_id": "d"}, "bad_frame"),
        ({"protocol_version": 1, "credential": "c"}, "bad_frame"),
        ({"token": "t"}, "bad_frame"),
        ({"protocol_version": 2, "token": "t"}, "unsupported_version"),
        ({"protocol_version": "1", "token": "t"}, "bad_frame"),
        ({**HELLO, "last_seq": -1}, "bad_frame"),
        ({**HELLO, "last_seq": 2**52 + 1}, "bad_frame"),
        ({**HELLO, "last_seq": 10**40}, "bad_frame"),
        ({**HELLO, "last_seq": "7"}, "bad_frame"),
        ({**HELLO, "last_seq": 7.0}, "bad_frame"),
        ({**HELLO, "last_seq": True}, "bad_frame"),
        ({**HELLO, "capabilities": "snapshot"}, "bad_frame"),
        ({**HELLO, "device_info": []}, "bad_frame"),
    ],
)
def test_a_wrong_hello_is_fatal(payload, code):
    assert_fatal(Session(0.0).receive(frame("hello", payload), 0.0), code, 4000)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad_json"),
        ("{", "bad_json"),
        ("[]", "bad_frame"),
        ('{"v":1,"x":' + "[" * 100_000, "bad_json"),
        ('{"v":2,"type":"hello","payload":{}}', "unsupported_version"),
        ('{"v":1,"type":"ping","payload":{}}', "bad_frame"),
        ('{"v":1,"type":"no.such","payload":{}}', "bad_frame"),
        ('{"v":1,"type":"task.list","payload":{}}', "bad_frame"),
    ],
)
def test_before_hello_every_error_is_fatal(text, code):
    assert_fatal(Session(0.0).receive(text, 0.0), code, 4000)


def test_refusals_close_with_their_code():
    for error in (Unauthorized(), TokenUsed()):
        s = Session(0.0)
        s.receive(frame("hello", HELLO), 0.0)
        assert_fatal(s.failed(error), error.code, 4001)


def test_after_hello_only_versions_are_fatal():
    s = live()
    assert code_of(s.receive("nonsense", 0.0)) == "bad_json"
    assert code_of(s.receive(frame("hello", HELLO), 0.0)) == "bad_frame"
    assert code_of(s.receive(frame("no.such", {"request_id": "r"}), 0.0)) == "unknown_type"
    assert code_of(s.receive_binary(0.0)) == "bad_frame"
    assert s.state is State.LIVE
    assert_fatal(s.receive('{"v":2,"type":"ping"}', 0.0), "unsupported_version", 4000)
    assert s.state is State.CLOSED


def test_errors_name_the_request():
    s = live()
    (unknown,) = s.receive(frame("no.such", {"request_id": "r"}), 0.0)
    (wrong,) = s.receive(frame("session.send", {"request_id": "r", "text": 7}), 0.0)
    assert unknown.payload.request_id == wrong.payload.request_id == "r"


def test_a_ping_is_answered():
    assert live().receive(frame("ping"), 0.0) == [Send("pong", frames.Pong())]
    assert live().receive(frame("pong"), 0.0) == []


def test_three_missed_pongs_close():
    s, pings, now = live(), 0, 0.0
    while s.deadline is not None:
        now = s.deadline
        actions = s.tick(now)
        pings += actions == [Send("ping", frames.Ping())]
    assert (pings, now) == (3, 85.0)
    assert actions == [Close(4006, "heartbeat lost")]


def test_any_frame_counts_as_a_pong():
    s, now = live(), 0.0
    for n in range(20):
        now = s.deadline
        for action in s.tick(now):
            assert action == Send("ping", frames.Ping())
            if n % 3 == 2:
                s.receive(frame("task.list"), now)
                s.finished()
    assert s.state is State.LIVE


def test_two_misses_are_forgiven():
    s = live()
    for at in (25.0, 35.0, 50.0, 60.0, 75.0):
        s.tick(at)
    s.receive(frame("pong"), 80.0)
    for at in (85.0, 100.0, 110.0, 125.0, 135.0):
        s.tick(at)
    assert s.state is State.LIVE


def test_requests_are_executed_up_to_a_bound():
    s = live()
    for _ in range(session.MAX_WAITING):
        (action,) = s.receive(frame("task.list", {"request_id": "r"}), 0.0)
        assert isinstance(action, Execute)
    assert code_of(s.receive(frame("task.list", {"request_id": "r"}), 0.0)) == "rate_limited"
    s.finished()
    assert isinstance(s.receive(frame("task.list"), 0.0)[0], Execute)


def test_a_flood_is_refused_and_slowed():
    s, refused = live(), 0
    for _ in range(300):
        actions = s.receive(frame("ping"), 1.0)
        if code := [a for a in actions if isinstance(a, Send) and a.type == "error"]:
            refused += 1
            assert code[0].payload.code == "rate_limited"
            assert isinstance(actions[1], Rest)
    assert 195 <= refused <= 202
    assert s.receive(frame("ping"), 2.0) == [Send("pong", frames.Pong())]


def test_every_transition_leads_somewhere_known():
    assert set(session.TABLE) == set(State)
    assert not session.TABLE[State.CLOSED]


@given(st.lists(st.one_of(st.text(), st.binary().map(lambda b: b.decode("utf-8", "replace")))))
def test_arbitrary_text_becomes_error_frames(texts):
    for s in (Session(0.0), live()):
        for text in texts:
            for action in s.receive(text, 0.0):
                assert isinstance(action, Send | Close | Rest)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*frames.CLIENT, "x"]), _json, _json)
def test_arbitrary_payloads_become_errors_or_actions(type_, payload, version):
    for v in (1, version):
        for s in (Session(0.0), live()):
            text = json.dumps({"v": v, "type": type_, "payload": payload})
            for action in s.receive(text, 0.0):
                assert not isinstance(action, Send) or action.type in ("error", "pong")
