"""The one door for text from outside: NUL and unpaired surrogates become U+FFFD."""

import json

import pytest
from hypothesis import given, strategies as st

from loomid.lmp.envelope import decode_client, encode_payload
from loomid.lmp.frames import RunDelta
from loomid.text import valid_json_text

pieces = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["\ud83d", "\ude00", "\x00", "\\", "u0000", '"', "\udfff", r"\ud83d"]),
)
any_text = st.lists(pieces).map("".join)


def cleaned(text: str) -> str:
    """What must come out, told character by character."""
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined.replace("\x00", "\ufffd")


@given(any_text)
def test_escaped_text_is_cleaned(text):
    assert json.loads(valid_json_text(json.dumps(text))) == cleaned(text)


@given(any_text)
def test_raw_text_is_cleaned(text):
    raw = json.dumps(text, ensure_ascii=False)
    assert json.loads(valid_json_text(raw)) == cleaned(text)


@given(any_text)
def test_valid_text_is_left_alone(text):
    once = valid_json_text(json.dumps(cleaned(text)))
    assert once == json.dumps(cleaned(text))


@given(any_text)
def test_what_came_through_the_door_can_be_encoded(text):
    frame = decode_client(
        json.dumps({"v": 1, "type": "session.send", "payload": {"request_id": "r", "text": text}})
    )
    assert frame.payload.text == cleaned(text)
    encode_payload(RunDelta(run_id="r", text=frame.payload.text, kind="text", iteration=1))


@pytest.mark.parametrize(
    ("raw", "meaning"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\ud83d"', "\ufffd"),
        (r'"\ude00\ud83d"', "\ufffd\ufffd"),
        (r'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (r'"\ud83dx\ude00"', "\ufffdx\ufffd"),
        (r'"\\u0000"', r"\u0000"),
        (r'"\\\u0000"', "\\\ufffd"),
        (r'"\uD83D\uDE00"', "\U0001f600"),
    ],
)
def test_examples(raw, meaning):
    assert json.loads(valid_json_text(raw)) == meaning
