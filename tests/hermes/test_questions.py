"""Questions in real gateways: what the clarify tool and slash confirmations really do."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.hermes import Gateway, Release
from tests.support.model import QUESTIONS, Model
from tests.support.peer import Fact, Peer, inject, key_of, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loomid import wire

OWN = {"selected": [], "custom": "words of my own"}


def ask(peer: Peer, chat: str, how: str = "") -> tuple[int, Fact]:
    at = peer.mark()
    assert inject(peer, f"clarify {how}", chat, f"m-{chat}").error is None
    return at, peer.wait("question.asked", at, session_key=key_of(chat))


def answer(peer: Peer, asked: Fact, *answers: dict[str, Any]) -> wire.Result:
    return peer.call("answer", question_id=asked["question_id"], answers=list(answers) or None)


def told(peer: Peer, at: int, chat: str) -> str:
    """What the model was told, which it repeats."""
    peer.wait("processing.ended", at, message_id=f"m-{chat}")
    return str(peer.all("turn.answered", at)[-1]["text"])


def marked(release: Release, choices: list[str]) -> list[str]:
    """0.20 and 0.22 mark the first choice."""
    return choices if release.name == "19" else [f"{choices[0]} (Recommended)", *choices[1:]]


def test_one_choice(release: Release, peer: Peer) -> None:
    at, asked = ask(peer, "one")
    (card,) = asked["questions"]
    assert card["question"] == "Which colour?"  # without 0.22's line on how to skip it
    assert card["choices"] == marked(release, ["red", "blue"])
    assert (asked["source"], asked["timeout_s"], card["multi_select"]) == ("clarify", 20, False)
    started = peer.wait("tool.started", at, tool="clarify")
    assert started["preview"] == "Which colour?"
    assert (asked["turn_id"], asked["call_id"]) == (started["turn_id"], started["call_id"])
    assert started["n"] < asked["n"]
    for wrong in ({"selected": [2]}, {"selected": []}, {"what": 1}):
        assert answer(peer, asked, wrong).error == "bad_args"
    assert answer(peer, asked, {"selected": [0]}, {"selected": [0]}).error == "bad_args"
    command = peer.send("answer", question_id=asked["question_id"], answers=[{"selected": [0]}])
    assert peer.result(command).value == {"applied": True}
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("answered", command)
    assert answer(peer, asked, {"selected": [1]}).error == "not_pending"
    assert '"user_response": "red"' in told(peer, at, "one")


def test_words_of_ones_own(peer: Peer) -> None:
    """Instead of a choice, and where none is offered."""
    at, asked = ask(peer, "own")
    assert answer(peer, asked, {"selected": [], "custom": "[green], or 1"}).error is None
    assert '"user_response": "[green], or 1"' in told(peer, at, "own")
    at, asked = ask(peer, "open", "open")
    assert not asked["questions"][0]["choices"]
    assert answer(peer, asked, {"selected": [], "custom": "a present"}).error is None
    assert '"user_response": "a present"' in told(peer, at, "open")


def test_several_choices(release: Release, peer: Peer) -> None:
    """0.19 knows only one."""
    at, asked = ask(peer, "multi", "multi")
    (card,) = asked["questions"]
    assert card["choices"] == marked(release, ["S", "M", "L"])
    assert card["multi_select"] is (release.name != "19")
    if card["multi_select"]:
        assert answer(peer, asked, {"selected": [0, 2], "custom": "X, Y"}).error is None
        assert '"user_response": ["S", "L", "X, Y"]' in told(peer, at, "multi")
    else:
        assert answer(peer, asked, {"selected": [2]}).error is None
        assert '"user_response": "L"' in told(peer, at, "multi")


def test_none_of_several(release: Release, peer: Peer) -> None:
    if release.name == "19":
        pytest.skip("it has no such question")
    at, asked = ask(peer, "none", "multi")
    assert answer(peer, asked, {"selected": []}).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert done["outcome"] == "answered"
    said = told(peer, at, "none")
    assert '"user_response": []' in said or '"status": "skipped"' in said


def test_all_that_a_call_asks_at_once(release: Release, peer: Peer) -> None:
    """0.22 shows its cards one after another; the others ask one question a call."""
    at, asked = ask(peer, "batch", "batch")
    if release.name != "22":
        assert [card["question"] for card in asked["questions"]] == ["Which colour?"]
        assert answer(peer, asked, {"selected": [1]}).error is None
        assert '"user_response": "blue"' in told(peer, at, "batch")
        return
    assert [card["question"] for card in asked["questions"]] == [
        question["question"] for question in QUESTIONS.values()
    ]
    preview = peer.wait("tool.started", at, tool="clarify")["preview"]
    assert preview == "Which colour?\nWhich sizes?\nWhat for?"
    said = [{"selected": [1]}, {"selected": [0, 1]}, {"selected": [], "custom": "fun"}]
    command = peer.send("answer", question_id=asked["question_id"], answers=said)
    assert peer.result(command).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("answered", command)
    assert len(peer.all("question.asked", at)) == len(peer.all("question.done", at)) == 1
    peer.wait("processing.ended", at, message_id="m-batch")
    assert tool_result(peer, at)["outcome"] == "submitted"
    assert [one["user_response"] for one in tool_result(peer, at)["responses"]] == [
        "blue",
        ["S", "M"],
        "fun",
    ]


def tool_result(peer: Peer, at: int) -> dict[str, Any]:
    """What the model was told, whole."""
    text = peer.all("turn.answered", at)[-1]["text"]
    found: dict[str, Any] = json.loads(text.removeprefix("done: "))
    return found


def test_cancelled(release: Release, peer: Peer) -> None:
    """0.19 and 0.20 have no word for it: to the model it is no answer in time."""
    at, asked = ask(peer, "cancelled", "batch")
    command = peer.send("answer", question_id=asked["question_id"], answers=None)
    assert peer.result(command).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("cancelled", command)
    said = told(peer, at, "cancelled")
    assert ("did not respond" in said) is (release.name != "22")


def test_not_answered_in_time(peer: Peer) -> None:
    at, asked = ask(peer, "late")
    done = peer.wait("question.done", at, 40, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("timeout", None)
    assert done["t"] - asked["t"] == pytest.approx(asked["timeout_s"], abs=3)
    assert answer(peer, asked, {"selected": [0]}).error == "not_pending"
    peer.wait("processing.ended", at, message_id="m-late")


def test_stopped(peer: Peer) -> None:
    """No release wakes the tool of an agent that it stops; without us it waits on."""
    at, asked = ask(peer, "stopped")
    stop = {"session_key": key_of("stopped"), "turn_id": asked["turn_id"]}
    assert peer.call("cancel", **stop).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("cancelled", None)
    assert done["t"] - asked["t"] < asked["timeout_s"] / 2
    assert answer(peer, asked, {"selected": [0]}).error == "not_pending"
    run(peer, "say 1", "stopped", "m-stopped-2")


def test_a_message_is_no_answer(peer: Peer) -> None:
    """It waits for its turn, until the question has its end."""
    at, asked = ask(peer, "busy")
    assert inject(peer, "red", "busy", "m-busy-2").error is None
    assert inject(peer, "1", "busy", "m-busy-3").error is None
    assert answer(peer, asked, {"selected": [1]}).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert done["outcome"] == "answered"
    peer.wait("turn.answered", at, text="echo: 1")
    first = peer.all("turn.answered", at)[0]["text"]
    assert '"user_response": "blue"' in first


def test_no_message_is_the_answer_where_any_text_is_one(peer: Peer) -> None:
    """Hermes takes the next message of a chat for it, of whatever kind, but none from us."""
    texts = {"queue": "red", "steer": "red", "interrupt": "red"}
    sent = [*texts.items(), ("command", "/queue red"), ("command", "/steer red")]
    asked = [ask(peer, f"typed-{number}", "open") for number in range(len(sent))]
    for number, (mode, text) in enumerate(sent):
        chat = f"typed-{number}"
        assert inject(peer, text, chat, f"{chat}-2", mode).error is None
    for at, question in asked:
        command = peer.send("answer", question_id=question["question_id"], answers=[OWN])
        assert peer.result(command).error is None
        done = peer.wait("question.done", at, question_id=question["question_id"])
        assert (done["outcome"], done["command_id"]) == ("answered", command)
        peer.wait("turn.ended", at, turn_id=question["turn_id"])


@pytest.mark.parametrize(("timeout", "outcome"), [(1, "timeout"), (30, "answered")])
def test_a_card_of_no_known_call(gateway: Gateway, peer: Peer, timeout: int, outcome: str) -> None:
    at = peer.mark()
    gateway.ask("card", session_key=key_of("card"), chat_id="card", timeout=timeout)
    asked = peer.wait("question.asked", at, session_key=key_of("card"))
    assert (asked["turn_id"], asked["call_id"]) == (None, None)
    if outcome == "answered":
        assert answer(peer, asked, {"selected": [1]}).error is None
    done = peer.wait("question.done", at, question_id=asked["question_id"])
    assert done["outcome"] == outcome


def test_inventory(peer: Peer) -> None:
    at, asked = ask(peer, "listed")
    peer.call("running", fact="inventory")
    listed = peer.wait("inventory", at)["questions"]
    assert asked["question_id"] in listed
    assert answer(peer, asked, {"selected": [0]}).error is None
    peer.wait("processing.ended", at, message_id="m-listed")
    after = peer.mark()
    peer.call("running", fact="inventory")
    assert asked["question_id"] not in peer.wait("inventory", after)["questions"]


# ── slash confirmations ──────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def wary(release: Release, model: Model) -> Iterator[Peer]:
    """A gateway that asks before it throws a conversation away, as it does by default."""
    config = {"approvals": {"destructive_slash_confirm": True}}
    with tempfile.TemporaryDirectory(prefix="lo-") as name, Peer(Path(name)) as peer:
        gateway = Gateway(release, Path(name), model.url, peer.endpoint, config=config)
        try:
            gateway.start()
            peer.until(lambda: peer.hellos, 10, "the shim's hello")
            yield peer
        finally:
            gateway.stop()


def confirm(peer: Peer, chat: str) -> tuple[int, Fact]:
    run(peer, "say 1", chat, f"m-{chat}")
    at = peer.mark()
    assert inject(peer, "/new", chat, f"c-{chat}", "command").error is None
    return at, peer.wait("question.asked", at, session_key=key_of(chat))


@pytest.mark.parametrize(("place", "outcome"), [(0, "answered"), (2, "cancelled")])
def test_a_confirmation(wary: Peer, place: int, outcome: str) -> None:
    at, asked = confirm(wary, f"sure{place}")
    (card,) = asked["questions"]
    assert (asked["source"], asked["timeout_s"]) == ("confirm", 300)
    assert asked["title"]
    assert card["question"]
    assert card["choices"] == ["once", "always", "cancel"]
    assert (asked["turn_id"], asked["call_id"]) == (None, None)
    command = wary.send("answer", question_id=asked["question_id"], answers=[{"selected": [place]}])
    assert wary.result(command).value == {"applied": True}
    done = wary.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == (outcome, command)
    said = wary.wait("sent", at, chat_id=f"sure{place}")
    assert said["reply_to"] == f"c-sure{place}"
    assert bool(wary.all("session.reset", at)) is (place == 0)
    assert answer(wary, asked, {"selected": [0]}).error == "not_pending"


def test_a_confirmation_without_an_answer_is_a_no(wary: Peer) -> None:
    at, asked = confirm(wary, "dropped")
    assert answer(wary, asked).error is None
    done = wary.wait("question.done", at, question_id=asked["question_id"])
    assert done["outcome"] == "cancelled"
    assert not wary.all("session.reset", at)


def test_a_confirmation_answered_by_a_command(wary: Peer) -> None:
    at, asked = confirm(wary, "typed")
    assert inject(wary, "/approve", "typed", "c-typed-2", "command").error is None
    done = wary.wait("question.done", at, question_id=asked["question_id"])
    assert (done["outcome"], done["command_id"]) == ("answered", None)
    wary.wait("session.reset", at)


def test_a_confirmation_that_another_takes_the_place_of(wary: Peer) -> None:
    at, first = confirm(wary, "twice")
    assert inject(wary, "/undo", "twice", "c-twice-2", "command").error is None
    second = wary.until(lambda: wary.all("question.asked", at)[1:])[0]
    done = wary.wait("question.done", at, question_id=first["question_id"])
    assert (done["outcome"], done["command_id"]) == ("cancelled", None)
    assert answer(wary, first, {"selected": [0]}).error == "not_pending"
    assert answer(wary, second).error is None


def test_no_text_confirms(release: Release, wary: Peer) -> None:
    """0.19 takes any word of these for an answer, so there it is refused until it has one."""
    at, asked = confirm(wary, "words")
    for number, text in enumerate(("approve", "yes", "always", "ok")):
        result = inject(wary, text, "words", f"w-{number}")
        assert result.error == ("reserved_text" if release.name == "19" else None)
    assert inject(wary, "/queue confirm", "words", "w-queue", "command").error is None
    turn = wary.wait("turn.started", at, session_key=key_of("words"), text="confirm")
    wary.wait("turn.ended", at, turn_id=turn["turn_id"])
    assert not wary.all("question.done", at, question_id=asked["question_id"])
    assert answer(wary, asked).error is None
    done = wary.wait("question.done", at, question_id=asked["question_id"])
    assert done["outcome"] == "cancelled"
