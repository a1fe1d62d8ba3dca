"""Stored messages that came with files, told as they were sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from loomid.lmp.file_frames import AttachmentRef
from loomid.lmp.folding import FileTold
from loomid.lmp.history_frames import Part
from loomid.lmp.query import Term
from loomid.lmp.recalled import VOICE_S, Own, Recall, RecallSent, Sent, without_folders
from loomid.lmp.stored import Row, content_of

GOLDEN = Path(__file__).parents[1] / "data/golden"
RELEASES = ("19", "20", "22")
HOME = "/home/ann/.hermes"
LIMIT = 10_000
NAME = "doc_0123456789ab_a b.txt"
NOTE = f"[The user sent a text document: 'a b.txt'. It is saved at: {HOME}/cache/documents/{NAME}]"
READ = "[Content of a b.txt]:\n"
HINT = f"[Image attached at: {HOME}/cache/images/img_0123456789ab.png]\n[screenshot]"
REF = AttachmentRef(attachment_id="att_1", media_type="text/plain", bytes=9, name="a b.txt")
SPOKEN = AttachmentRef(attachment_id="att_2", media_type="audio/ogg", bytes=9, name="a.ogg")


def row(text: str, ts: float = 10.0, *, limit: int = LIMIT, role: Any = "user") -> Row:
    return Row(id=1, session_id="s1", role=role, ts=ts, content=content_of(text, limit))


def sent(text: str, at: float = 9.0, ref: AttachmentRef = REF, copy: str = NAME) -> Sent:
    return Sent(at, text, (ref,), (copy,))


def told(text: str, *known: Sent, limit: int = LIMIT, ts: float = 10.0) -> tuple[str, list[Any]]:
    content = Recall(known, limit)(row(text, ts, limit=limit)).content
    return content.text, [one.attachment_id for one in content.attachments]


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_releases_store(release: str) -> None:
    """Messages as a real run of each left them, and as they were sent."""
    golden = json.loads((GOLDEN / f"files-{release}.json").read_text(encoding="utf-8"))
    known = [
        Sent(
            one["at"],
            one["text"],
            tuple(msgspec.convert(one["attachments"], list[AttachmentRef])),
            tuple(one["copies"]),
        )
        for one in golden["sent"]
    ]
    rows = [row(text, ts) for ts, text in golden["rows"]]
    recall = Recall(known, LIMIT)
    contents = [recall(one).content for one in reversed(rows)][::-1]
    assert [[one.text, len(one.attachments)] for one in contents] == golden["told"]
    refs = [(a.attachment_id, a.name) for one in contents for a in one.attachments]
    assert refs == [(a.attachment_id, a.name) for one in known for a in one.attachments]


def test_only_where_it_stands_as_the_text() -> None:
    """A user may name a copy, too, and may write what Hermes writes."""
    again = f"look again at {HOME}/cache/documents/{NAME}"
    for text in ("look", ""):
        recall = Recall([sent(text)], LIMIT)
        for later in (again, f"{again}\n\n{text}"):
            assert recall(row(later)) == row(later)
        assert recall(row(f"{NOTE}\n\n{text}")).content.text == text
        assert recall(row(f"{NOTE}\n\n{text}")).content.text == f"{NOTE}\n\n{text}", "once"


def test_other_roles_and_other_files_stay() -> None:
    recall = Recall([sent("look")], LIMIT)
    for other in (row(f"{NOTE}\n\nlook", role="assistant"), row(NOTE.replace("012", "f12"))):
        assert recall(other) == other


def test_a_text_is_cut_as_any_other() -> None:
    content = Recall([sent("x" * 50)], 20)(row(f"{NOTE}\n\n{'x' * 50}")).content
    assert (content.text, content.truncated) == ("x" * 20, True)
    long = "y" * 5_000
    assert told(f"{NOTE}\n\n{long}", sent(long), limit=2_000) == ("y" * 2_000, ["att_1"])
    pasted = f"[a log of {NAME}]{'z' * 50}"
    for other in (sent(long), sent(""), sent("", 9.0, SPOKEN, "")):
        assert told(pasted, other, limit=40)[1] == [], "nobody can say what else was in it"


@pytest.mark.parametrize(
    "content",
    ["a,b", "", "look", "\n\nlook", "\n\n" + HINT, f"{NOTE}\n\nlook\n\n{READ}", '"', "\n\n"],
)
@pytest.mark.parametrize("text", ["look", " look ", "look\n\n[Content of x]:", "", " "])
@pytest.mark.parametrize("hint", ["", f"\n\n{HINT}"])
def test_what_the_model_reads_of_documents_is_not_told(text: str, content: str, hint: str) -> None:
    stored = "\n\n".join(filter(None, [NOTE, text, READ + content])) + hint
    other = sent("look", copy=NAME.replace("0", "f"))
    assert told(stored, other, sent(text)) == (text, ["att_1"])
    long = f"{stored.removesuffix(hint)}{'z' * LIMIT}{hint}"
    assert told(long, other, sent(text)) == (text, ["att_1"])


def test_a_document_may_name_another_copy() -> None:
    unknown = NOTE.replace(NAME, "doc_aaaaaaaaaaaa_c.txt")
    stored = f"{unknown}\n\nhi\n\n{READ}{NOTE}\n\nlook"
    assert told(stored, sent("look")) == (stored, [])


def test_speech_is_known_by_its_time() -> None:
    """Where Hermes understood it, it does not name its copy."""
    voice = [sent("brief", at, SPOKEN, f"audio_00000000000{n}.ogg") for n, at in enumerate((5, 9))]
    assert told('"what time is it"\n\nbrief', *voice) == ("brief", ["att_2"])
    assert told('"what time is it"\n\nother', *voice)[1] == []
    assert told('"what time is it"\n\nbrief', *voice, ts=9.1 + VOICE_S)[1] == []
    assert told('"what time is it"\n\nbrief', *voice, ts=1.0)[1] == []
    assert told("please\n\nbrief", *voice)[1] == []
    assert told('"what time is it"\n\nbrief', sent("brief"))[1] == [], "that was no speech"


def test_what_was_said_alone_is_told_as_hermes_heard_it() -> None:
    assert told('"what time is it"', sent("", 9.0, SPOKEN)) == ('"what time is it"', ["att_2"])
    assert told("[voice message could not be transcribed]", sent("", 9.0, SPOKEN)) == (
        "",
        ["att_2"],
    )


pieces = st.lists(
    st.sampled_from(["a", "look", "\n\n", NOTE, HINT, READ, '"heard"', "[", "]", " ", NAME]),
    max_size=6,
).map("".join)


@given(st.lists(pieces, max_size=6), st.lists(pieces, max_size=4))
def test_no_text_is_lost_or_invented(stored: list[str], texts: list[str]) -> None:
    """Each message is as stored or as one that was sent, which is in it; each of those once."""
    known = [sent(text, copy=f"{NAME[:4]}{n:012x}") for n, text in enumerate(texts)]
    recall = Recall([*known, sent("look"), sent("", 9.0, SPOKEN, "")], LIMIT)
    found: list[str] = []
    for text in stored:
        content = recall(row(text)).content
        ids = [one.attachment_id for one in content.attachments]
        if not ids:
            assert content.text == text
        else:
            assert content.text.strip() in text
            lost = text.replace(content.text.strip(), "", 1)
            assert lost.strip() == "" or any(each in lost for each in (NOTE, HINT, "[", '"'))
        found += ids
    assert len(found) <= len(texts) + 2


# ── in lists and among what was found ───────────────────────────────────────


def own(text: str, stored: str, ref: AttachmentRef = REF) -> Own:
    content = Recall([sent(text, ref=ref)], LIMIT)(row(stored)).content
    assert content.attachments
    return Own(stored, content)


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (NOTE, "look at"),
        (f"{NOTE[:30]}…", "look at"),
        ("Look at that", "Look at that"),
        (NOTE[:30], NOTE[:30]),
        ("", ""),
        ("…", "look at"),
    ],
)
def test_a_title_that_hermes_made_of_its_notes(title: str, shown: str) -> None:
    words = own("look at\nthat", f"{NOTE}\n\nlook at\nthat\n\n{READ}a,b")
    assert words.title(title) == shown
    assert words.preview == "look at that"


def test_of_no_words_the_files_are_named() -> None:
    words = own("", f"{NOTE}\n\n{READ}a,b")
    assert (words.preview, words.title(NOTE)) == ("a b.txt", "a b.txt")


@pytest.mark.parametrize(
    ("word", "snippet", "marks"),
    [
        ("look", "look", [(0, 4)]),
        ("quetzal", f"{READ}a quetzal", [(len(READ) + 2, len(READ) + 9)]),
        ("saved", "look", []),
    ],
)
def test_a_snippet_is_of_the_users_words(
    word: str, snippet: str, marks: list[tuple[int, int]]
) -> None:
    words = own("look", f"{NOTE}\n\nlook\n\n{READ}a quetzal")
    assert words.snippet([Term(word)]) == (snippet, marks)


# ── snippets ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("snippet", "shown"),
    [
        (f"saved at: {HOME}/cache/documents/<doc>_1_a.txt] now", "saved at: <doc>_1_a.txt] now"),
        ("…hermes/cache/images/img_1.<png>]", "…img_1.<png>]"),
        (f"at: {HOME}/cache/images/img_1, {HOME}/cache/audio/<a>", "at: img_1, <a>"),
        ("<saved> at: /home/ann/.her…", "<saved> at: …"),
        ("at: /home/<ann>/.hermes/cache/documents/doc_1 <x>", "at: doc_1 <x>"),
        ("<my> cache/images and /home/bob/<x>", "<my> cache/images and /home/bob/<x>"),
        ("in /var/cache/images/<x>", "in /var/cache/images/<x>"),
        (f"at {HOME}/cache/doc…", "at …"),
        ("I <live> in /home/ann", "I <live> in /home/ann"),
        ("no path <at> all", "no path <at> all"),
    ],
)
def test_snippets_have_the_names_alone(snippet: str, shown: str) -> None:
    text, marks = without_folders(*unmarked(snippet), HOME)
    assert (text, marks) == unmarked(shown)


def unmarked(text: str) -> tuple[str, list[tuple[int, int]]]:
    marks = []
    while "<" in text:
        begin, end = text.index("<"), text.index(">") - 1
        text = text.replace("<", "", 1).replace(">", "", 1)
        marks.append((begin, end))
    return text, marks


# ── what the agent sent ─────────────────────────────────────────────────────


def file(name: str, began: float, until: float) -> FileTold:
    return FileTold("task", began, until, Part(part=name, kind="attachment"))


def recalled(told: list[FileTold], *turns: list[tuple[str, float]]) -> list[list[str]]:
    """What each of these turns sent, oldest first; (role, time) of their messages."""
    recall = RecallSent(told)
    found = [recall([row("", ts, role=role) for role, ts in turn]) for turn in reversed(turns)]
    return [[part.part for part in parts] for parts in reversed(found)]


USER, SAYS, TOOL = "user", "assistant", "tool"


def test_what_was_sent_is_of_the_turn_that_stored_something_meanwhile() -> None:
    told = [file("a", 10, 12), file("b", 10, 15), file("c", 20, 25), file("d", 30, 35)]
    turns = [
        [(USER, 1.0), (SAYS, 2.0)],
        [(USER, 10.1), (SAYS, 11.0), (TOOL, 12.0), (SAYS, 14.9)],
        [(USER, 13.0), (SAYS, 25.0)],
    ]
    assert recalled(told, *turns) == [[], ["a", "b"], ["c"]]


def test_when_a_message_came_says_nothing_of_what_was_sent() -> None:
    """It may have waited while another turn ran; of one without an answer nothing is known."""
    told = [file("a", 10, 20), file("b", 30, 40)]
    assert recalled(told, [(USER, 12.0)], [(USER, 15.0), (SAYS, 35.0)]) == [[], ["b"]]


def test_each_is_told_once() -> None:
    told = [file("a", 10, 20)]
    assert recalled(told, [(USER, 9.0), (SAYS, 12.0)], [(USER, 13.0), (SAYS, 14.0)]) == [[], ["a"]]


def test_in_whatever_order_sessions_are_told() -> None:
    """One that was gone back to is told before one that began later."""
    told = [file("late", 30, 40), file("a", 10, 20)]
    assert recalled(told, [(SAYS, 35.0)], [(SAYS, 15.0)]) == [["late"], ["a"]]


@given(
    st.lists(st.lists(st.floats(0, 100), max_size=4), max_size=6),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30)), max_size=6),
)
def test_nothing_is_guessed(turns: list[list[float]], spans: list[tuple[float, float]]) -> None:
    told = [file(str(n), began, began + took) for n, (began, took) in enumerate(spans)]
    found = recalled(told, *([(SAYS, ts) for ts in turn] for turn in turns))
    names = [name for parts in found for name in parts]
    assert len(names) == len(set(names))
    for turn, parts in zip(turns, found, strict=True):
        for one in (told[int(name)] for name in parts):
            assert any(one.began <= ts <= one.until for ts in turn)
