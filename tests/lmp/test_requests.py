"""Which requests are the same, which answers are kept, what a result means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from loomid import errors, wire
from loomid.lmp import frames, ids, requests
from loomid.lmp.requests import Asked

KEY = bytes(32)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
bodies = st.dictionaries(st.text(), json_values, max_size=6)


@given(bodies, st.randoms(use_true_random=False))
def test_fingerprint_does_not_see_how_the_json_is_written(body: Any, random: Any) -> None:
    names = list(body)
    random.shuffle(names)
    other = json.dumps({name: body[name] for name in names}, indent=1, ensure_ascii=False)
    compact = json.dumps(body, separators=(",", ":"))
    first = requests.fingerprint("session.send", compact.encode())
    assert requests.fingerprint("session.send", other.encode("utf-8", "surrogatepass")) == first


@given(bodies, bodies)
def test_fingerprints_of_different_bodies_differ(one: Any, other: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    first, second = (requests.fingerprint("t", json.dumps(b).encode()) for b in (one, other))
    assert (first == second) is same
    assert requests.fingerprint("u", json.dumps(one).encode()) != first


@pytest.mark.parametrize(
    "body", [b'{"x":' + b"9" * 5000 + b"}", b'{"x":' + b"[" * 9000 + b"]" * 9000 + b"}"]
)
def test_fingerprint_of_what_python_cannot_read(body: bytes) -> None:
    assert requests.fingerprint("t", body) == requests.fingerprint("t", body)
    assert requests.fingerprint("t", body) != requests.fingerprint("t", body + b" ")


def test_another_body_with_the_same_id_is_refused() -> None:
    requests.same_request(b"a", b"a")
    with pytest.raises(errors.RequestIdReused):
        requests.same_request(b"a", b"b")


@given(
    st.text(min_size=1, max_size=128).filter(
        lambda t: not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in t)
    )
)
def test_a_message_id_carries_its_request_id(request_id: str) -> None:
    message = requests.message_id("abc123", request_id)
    assert requests.request_ids([message]) == [request_id]
    assert message.isascii()
    assert not set(message) & set(" :/\\")


def test_messages_of_others_have_no_request_id() -> None:
    ours = requests.message_id("abc", "r1")
    strange = [
        "",
        "77",
        requests.message_id("abc", "a\0b"),
        requests.message_id("abc", "r" * 129),
        "$a.b.cc",
        "loomi.b",
        "loomi.a.\u00e9",
        "loomi.a.gICA",
        requests.message_id("abc", None),
    ]
    assert requests.request_ids([*strange, ours]) == ["r1"]


def test_a_command_id_carries_what_it_is_about() -> None:
    assert requests.about(requests.command_id("tok", "run_1")) == ["run_1"]
    assert requests.about(requests.command_id("tok", "gw", "boot")) == ["gw", "boot"]
    assert requests.about(requests.command_id("tok")) == []


REFUSALS = {
    "stale": ("gateway_offline", {"reason": "stale"}, False),
    "starting": ("gateway_offline", {"reason": "starting"}, False),
    "unknown_command": ("gateway_offline", {"reason": "unknown_command"}, False),
    "busy": ("not_permitted", {"reason": "busy"}, False),
    "queue_full": ("not_permitted", {"reason": "queue_full"}, False),
    "title_taken": ("not_permitted", {"reason": "title_taken"}, False),
    "not_found": ("not_permitted", {"reason": "not_found"}, False),
    "unknown_model": ("unknown_model", {}, False),
    "unknown_op": ("not_permitted", {"reason": "not_supported"}, False),
    "bad_args": ("gateway_error", {"reason": "bad_args"}, False),
    "not_active": ("run_not_active", {}, False),
    "not_pending": ("gateway_error", {"reason": "not_pending"}, False),
    "ambiguous": ("not_permitted", {"reason": "ambiguous"}, False),
    "reserved_text": ("reserved_text", {}, False),
    "bad_file": ("bad_file", {"reason": "refused"}, False),
    "not_supported": ("not_permitted", {"reason": "not_supported"}, False),
    "failed": ("gateway_error", {"reason": "failed"}, True),
}


def test_every_result_error_has_its_refusal() -> None:
    assert set(REFUSALS) == set(wire.RESULT_ERRORS)


@pytest.mark.parametrize("code", [*REFUSALS, "of_a_newer_shim"])
def test_a_refusal_is_kept_only_if_something_may_have_run(code: str) -> None:
    expected = REFUSALS.get(code, ("gateway_error", {"reason": code}, True))
    error = requests.refusal(code)
    assert (error.code, error.params, requests.kept(error)) == expected
    assert requests.may_have_run(code) is expected[2]
    # What a test of the wire says in words and what is decided here are one thing.
    if code in wire.RESULT_ERRORS and code != "unknown_command":
        assert ("nothing ran" in wire.RESULT_ERRORS[code]) is not expected[2]
    again = requests.load(requests.dump(error))
    assert isinstance(again, errors.PhoneError)
    assert (again.code, again.message, again.params) == (error.code, error.message, error.params)


@pytest.mark.parametrize("code", sorted(errors.PhoneError.codes))
def test_which_errors_are_kept(code: str) -> None:
    kept = {"already_resolved", "outcome_unknown", "gateway_error", "internal"}
    assert requests.kept(errors.PhoneError.codes[code]()) is (code in kept)


def _asked(type_: str, request_id: str | None = "r1") -> Asked:
    return Asked(type_, request_id, "gw", requests.command_id("tok", "run_9"))


def test_the_result_of_a_message_names_its_task() -> None:
    got = requests.sent(KEY, _asked("session.send"), {"session_key": "k", "message_id": "m"})
    task_id = ids.task_id(KEY, "gw", "k")
    assert got == frames.SendResult(request_id="r1", task_id=task_id, accepted=True)
    assert got.dropped is UNSET
    answer = ("session.send.result", got)
    assert requests.load(requests.dump(answer)) == answer


def test_the_result_of_a_command_names_the_requests_it_dropped() -> None:
    value = {"session_key": "k", "dropped": [requests.message_id("m", "r7"), "of another platform"]}
    got = requests.sent(KEY, _asked("session.send"), value)
    assert got.dropped == ["r7"]
    answer = ("session.send.result", got)
    assert requests.load(requests.dump(answer)) == answer


@pytest.mark.parametrize(
    ("type_", "state"), [("run.cancel", "cancelling"), ("run.pause", "pausing")]
)
def test_the_result_of_an_interrupt_names_the_requests_it_dropped(type_: str, state: Any) -> None:
    dropped = ["out-1", requests.message_id("m", "r7"), requests.message_id("m", None)]
    value = {"state": "cancelling", "dropped": dropped}
    got = requests.interrupted(KEY, _asked(type_, None), value)
    assert got == frames.RunResult(run_id="run_9", state=state, dropped=["r7"])
    answer = (f"{type_}.result", got)
    assert requests.load(requests.dump(answer)) == answer


def test_the_result_of_a_resume() -> None:
    payload = requests.resumed(KEY, _asked("run.resume"), {"session_key": "k"})
    assert payload == frames.RunResult(run_id="run_9", state="resuming", request_id="r1")
    assert payload.dropped is UNSET


@pytest.mark.parametrize(
    ("result", "type_", "value"),
    [
        (requests.sent, "session.send", {}),
        (requests.sent, "session.send", {"session_key": 5}),
        (requests.sent, "session.send", {"session_key": "k", "dropped": 5}),
        (requests.interrupted, "run.cancel", {"dropped": "x"}),
    ],
)
def test_an_odd_value_is_an_error_that_is_kept(
    result: Any, type_: str, value: dict[str, Any]
) -> None:
    with pytest.raises(errors.GatewayError) as caught:
        result(KEY, _asked(type_), value)
    assert requests.kept(caught.value)
