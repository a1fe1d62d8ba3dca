"""Which slash commands reach beyond their task, however they are written."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from loomid.lmp.controls import Command, Registry

REGISTRY = Registry(
    [
        Command("new", ["reset"], "[name]", "Start a new session"),
        Command("model", [], "[model] [--global]", "Switch model"),
        Command("restart", description="Restart"),
        Command("reload-mcp", ["reload_mcp"]),
        Command("sethome", ["set-home"]),
        Command("yolo"),
        Command("approvals"),
    ],
    short={
        "again": "/restart",
        "best": "model big --global",
        "disk": "",
        "First": "/Second big",
        "second": "third",
        "third": "/model --global",
        "round": "/about",
        "about": "/round",
        "new": "/restart",
    },
)


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("/restart", "restart"),
        ("/RESTART now", "restart"),
        ("/restart@box", "restart"),
        ("/restart\nplease", "restart"),
        ("/set-home", "home"),
        ("/reload_mcp", "reload"),
        ("/reload_skills", "reload"),  # of another release
        ("/update", "update"),
        ("/approvals off", "approvals"),
        ("/yolo", "approvals_off"),
        ("/again", "restart"),
        ("/goal /yolo", "approvals_off"),
        ("/queue later\n/restart", "restart"),
        ("/queue /new", None),
        ("/best", "default_model"),
        ("/model big --global", "default_model"),
        ("/model big \u2014global", "default_model"),
        ("/model big \u2015global", "default_model"),
        ("/model big '--global'", "default_model"),
        ("/model big", "default_model"),  # its owner may have it so
        ("/model big --session", None),
        ("/model big --session --global", "default_model"),
        ("/model", None),
        ('/reasoning high "--global"', "settings"),
        ("/reasoning high", None),
        ("/reasoning hide", "settings"),
        ("/fast on", None),
        ("/footer on", "settings"),
        ("/memory approval off", "settings"),
        ("/memory pending", None),
        ("/new", None),  # the registry's own comes before the user's
        ("/reset", None),
        ("/disk", None),
        ("/third", "default_model"),
        ("/second", "default_model"),
        ("/first", "default_model"),
        ("/round", None),
        ("/round /restart", "restart"),
        ("/nonsense", None),
        ("/", None),
    ],
)
def test_effect(text: str, effect: str | None) -> None:
    assert REGISTRY.effect(text) == effect


def test_without_a_registry_the_names_are_known_all_the_same() -> None:
    assert Registry().effect("/restart") == "restart"


def test_shown() -> None:
    shown = {each.name: each for each in REGISTRY.shown()}
    assert (shown["new"].aliases, shown["new"].arguments) == (["reset"], "[name]")
    assert shown["new"].meaning == "Start a new session"
    whole = {name for name, each in shown.items() if each.whole_gateway is True}
    own = {"again", "best", "First", "second", "third"}
    assert whole == {"restart", "reload-mcp", "sethome", "approvals"} | own
    assert (shown["yolo"].whole_gateway, shown["yolo"].effect) == (UNSET, "approvals_off")
    assert shown["best"].effect == "default_model"
    assert shown["disk"].meaning == ""
