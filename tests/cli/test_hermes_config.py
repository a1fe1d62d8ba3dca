"""config.yaml: what is set, what is kept, and that no other byte moves."""

import os

import pytest
from hypothesis import example, given, strategies as st
from ruamel.yaml import YAML

from loomid import yaml_edit
from loomid.hermes_config import InstallError, leave, plan, restore, update

ENDPOINT = "ipc:///run/loomid/hermes.sock"
WANTED = {
    "plugins": {"enabled": ["loomi"], "stream_reasoning_deltas": True},
    "platforms": {
        "loomi": {
            "enabled": True,
            "home_channel": {"platform": "loomi", "chat_id": "home", "name": "Home"},
            "extra": {"endpoint": ENDPOINT},
        }
    },
    "display": {
        "platforms": {
            "loomi": {
                "tool_progress": "off",
                "long_running_notifications": False,
                "busy_ack_detail": False,
            }
        }
    },
}


def load(text):
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return yaml.load(text)


def apply(path, text, **more):
    path.write_text(text)
    lines = update(path, ENDPOINT, edits_are_deltas=False, **more)
    assert update(path, ENDPOINT, edits_are_deltas=False) == []
    return lines


@pytest.fixture
def config(tmp_path):
    return tmp_path / "config.yaml"


def kept(old, new):
    """Every line of the old text, in order, is in the new one."""
    rest = iter(new.splitlines())
    return all(line in rest for line in old.splitlines())


@pytest.mark.parametrize("text", ["", "# mine\n", "# mine", "---\n", "{}\n", "~\n"])
def test_a_file_without_settings(config, text):
    try:
        apply(config, text)
    except InstallError:
        assert text == "~\n"
        assert config.read_text() == text
        return
    assert load(config.read_text()) == WANTED
    assert ("# mine" in config.read_text()) == ("# mine" in text)


def test_a_missing_file_is_made_for_its_owner_alone(config):
    lines = update(config, ENDPOINT, edits_are_deltas=False)
    assert load(config.read_text()) == WANTED
    assert config.stat().st_mode & 0o777 == 0o600
    assert "config.yaml: plugins.enabled: [loomi]" in lines


REAL = """\
# my Hermes
model:
    provider: custom   # local
    base_url: "http://127.0.0.1/v1"
plugins:
    enabled:   # in this order
        - rigplat   # first

# ---- what I see ----
display:
    busy_input_mode: queue
    platforms:
        telegram: {tool_progress: all}   # noisy

# the end
"""


def test_comments_order_and_layout_stay(config):
    apply(config, REAL)
    text = config.read_text()
    assert kept(REAL, text)
    data = load(text)
    assert data["plugins"]["enabled"] == ["rigplat", "loomi"]
    assert data["display"]["platforms"]["telegram"] == {"tool_progress": "all"}
    assert list(data) == ["model", "plugins", "display", "platforms"]
    assert "        - rigplat   # first\n        - loomi\n" in text
    assert "# ---- what I see ----\ndisplay:\n" in text


def test_what_the_user_has_set_is_kept(config):
    apply(
        config,
        "plugins: {enabled: [loomi], stream_reasoning_deltas: false}\n"
        "platforms:\n  loomi:\n    home_channel: {platform: loomi, chat_id: mine}\n"
        "    extra: {endpoint: 'tcp://10.0.0.1:5', other: 1}\n"
        "display: {platforms: {loomi: {tool_progress: all, busy_ack_detail: true}}}\n",
    )
    data = load(config.read_text())
    assert data["plugins"] == {"enabled": ["loomi"], "stream_reasoning_deltas": False}
    assert data["platforms"]["loomi"] == {
        "home_channel": {"platform": "loomi", "chat_id": "mine"},
        "extra": {"endpoint": "tcp://10.0.0.1:5", "other": 1},
        "enabled": True,
    }
    assert data["display"]["platforms"]["loomi"] == {
        "tool_progress": "all",
        "busy_ack_detail": True,
        "long_running_notifications": False,
    }


def test_enables_again_and_moves_the_endpoint(config):
    text = (
        "plugins:\n  disabled:\n  - loomi  # too noisy\n  enabled: [a, b]\n"
        "platforms:\n  loomi:\n    enabled: false  # for now\n"
        "    extra:\n      endpoint: ipc:///old.sock # old\n"
    )
    lines = apply(config, text)
    data = load(config.read_text())
    assert data["plugins"]["disabled"] == []
    assert data["plugins"]["enabled"] == ["a", "b", "loomi"]
    assert data["platforms"]["loomi"]["enabled"] is True
    assert data["platforms"]["loomi"]["extra"]["endpoint"] == ENDPOINT
    assert [c for c in ("# too noisy", "# for now", "# old") if c not in config.read_text()] == []
    assert "config.yaml: plugins.disabled: removed loomi" in lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[loomi]", "[]"),
        ("[ a, loomi, b ]", "[ a, b ]"),
        ("[loomi, b]", "[b]"),
        ("[a, loomi]", "[a]"),
        ("[a, loomi,]", "[a,]"),
        ("\n  - a\n  - loomi\n  - b", "\n  - a\n  - b"),
        ("\n  - loomi", " []"),
        ("\n  - loomi\n  - loomi", " []"),
    ],
)
def test_taken_off_the_disabled_list(before, after):
    text = f"plugins:\n  disabled: {before}\n  x: 1\n".replace(": \n", ":\n")
    edited = yaml_edit.edit(text, [yaml_edit.Remove(("plugins", "disabled"), "loomi")])
    assert edited == f"plugins:\n  disabled: {after}\n  x: 1\n".replace(": \n", ":\n").replace(
        ":  []", ": []"
    )


def test_streaming_where_edits_are_the_only_deltas(config):
    config.write_text("")
    update(config, ENDPOINT, edits_are_deltas=True)
    assert load(config.read_text())["display"]["platforms"]["loomi"]["streaming"] is True
    config.write_text("display: {platforms: {loomi: {streaming: false}}}\n")
    update(config, ENDPOINT, edits_are_deltas=True)
    assert load(config.read_text())["display"]["platforms"]["loomi"]["streaming"] is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\n", "line 2"),
        ("a: 1\na: 2\n", "duplicate key"),
        ("- a\n", "not a mapping"),
        ("plugins: [a]\n", "plugins is not a mapping"),
        ("plugins: {enabled: a}\n", "plugins.enabled is not a list"),
        ("platforms: {loomi: yes}\n", "platforms.loomi is not a mapping"),
        ("a: !thing 1\n", "line 1"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("x: &x [a]\ny: *x\nplugins:\n  enabled: *x\n", "safe automatic change"),
        ("\tplugins: 1\n", "line 1"),
    ],
)
def test_what_cannot_be_edited_is_left_alone(config, text, says):
    config.write_text(text)
    with pytest.raises(InstallError, match=says) as caught:
        update(config, ENDPOINT, edits_are_deltas=False)
    assert config.read_text() == text
    assert "\n" not in str(caught.value)
    assert list(config.parent.iterdir()) == [config]


def test_not_utf8(config):
    config.write_bytes(b"a: \xff\n")
    with pytest.raises(InstallError, match="UTF-8"):
        update(config, ENDPOINT, edits_are_deltas=False)


def test_mode_owner_link_and_line_ends_are_kept(config, tmp_path):
    real = tmp_path / "dotfiles.yaml"
    real.write_bytes(REAL.replace("\n", "\r\n").encode())
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 4321, 4322)
    config.symlink_to(real)
    update(config, ENDPOINT, edits_are_deltas=False)
    assert config.is_symlink()
    status = real.stat()
    assert status.st_mode & 0o777 == 0o640
    if os.geteuid() == 0:
        assert (status.st_uid, status.st_gid) == (4321, 4322)
    data = real.read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml", "dotfiles.yaml"]


def test_a_byte_order_mark_stays(config):
    config.write_bytes("\ufeffa: 1\n".encode())
    update(config, ENDPOINT, edits_are_deltas=False)
    text = config.read_bytes().decode()
    assert text.startswith("\ufeffa: 1\n")
    assert load(text.removeprefix("\ufeff")) == {"a": 1, **WANTED}


# ── and out again ───────────────────────────────────────────────────────────

TAKEN = [
    "",
    "# mine\n",
    REAL,
    REAL.replace("\n", "\r\n"),
    "\ufeffa: 1\n",
    "plugins:\n- 1\n",
    "plugins:\n  enabled:\n  - a\n  disabled: []\nplatforms:\n  telegram:\n    enabled: true\n",
    "plugins: {enabled: [a]}\nplatforms: {other: {x: 1}}\ndisplay: {skin: x, platforms: {a: {}}}\n",
    "display:\n  platforms:\n    telegram: {tool_progress: all}\n\n# what follows\nz: 1\n",
    "a: |\n  loomi:\n    enabled: true\nb: 1 # last\n",
]


@pytest.mark.parametrize("text", TAKEN)
@pytest.mark.parametrize("release", [19, 22])
def test_what_was_put_in_is_taken_out_to_the_byte(config, text, release):
    config.write_bytes(text.encode())
    try:
        put_in = update(config, ENDPOINT, edits_are_deltas=release == 19)
    except InstallError:
        assert text.startswith("plugins:\n- 1")
        put_in = []
        with pytest.raises(InstallError, match="not a mapping"):
            restore(config)
    else:
        lines, stays = restore(config)
        assert len(lines) == len(put_in)
        assert stays == []
        assert restore(config) == ([], [])
    assert config.read_bytes().decode() == text


def test_a_home_without_a_config_stays_one(config):
    assert restore(config) == ([], [])
    assert not config.exists()


def test_what_the_user_has_changed_stays_and_is_named(config):
    config.write_text(
        "plugins: {enabled: [loomi, b], stream_reasoning_deltas: false}\n"
        "platforms:\n  loomi:\n    enabled: true\n    home_channel: {chat_id: mine}\n"
        "    extra: {endpoint: 'ipc:///x', name: Work}\n"
        "display: {platforms: {loomi: {tool_progress: all, busy_ack_detail: false}}}\n"
    )
    lines, stays = restore(config)
    assert load(config.read_text()) == {
        "plugins": {"enabled": ["b"], "stream_reasoning_deltas": False},
        "platforms": {"loomi": {"home_channel": {"chat_id": "mine"}, "extra": {"name": "Work"}}},
        "display": {"platforms": {"loomi": {"tool_progress": "all"}}},
    }
    assert lines == [
        "config.yaml: plugins.enabled: removed loomi",
        "config.yaml: platforms.loomi.enabled: removed",
        "config.yaml: platforms.loomi.extra.endpoint: removed",
        "config.yaml: display.platforms.loomi.busy_ack_detail: removed",
    ]
    named = [line.removeprefix("config.yaml: ").partition(" stays")[0] for line in stays]
    assert named == [
        "plugins.stream_reasoning_deltas",
        "platforms.loomi.home_channel.chat_id",
        "platforms.loomi.extra.name",
        "display.platforms.loomi.tool_progress",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "platforms:\n  loomi:\n    enabled: true  # it is mine\n",
        "base: &b {enabled: true}\nplatforms:\n  loomi:\n    <<: *b\n    x: 1\n",
        "platforms: {loomi: {enabled: true, # why\n x: 1}}\n",
        "platforms: [a]\n",
    ],
)
def test_what_cannot_be_taken_out_is_left_alone(config, text):
    config.write_text(text)
    with pytest.raises(InstallError, match="nothing was changed there"):
        restore(config)
    assert config.read_text() == text


# ── any file ────────────────────────────────────────────────────────────────

COMMENT = st.sampled_from(["", "", "  # why: [x] {y}", " #"])
GAP = st.sampled_from(["", "", "\n", "# a line\n\n", "      # deep\n"])
LEAF = st.sampled_from(
    ["1", "yes", "'it''s'", '"a # b"', "~", "", "a b", "|\n        text\n        more", "[x, y]",
     "{p: 1}", ">-\n        folded\n        text", "\n        - q\n        - r", "*anchor"]
)  # fmt: skip
NAMES = ["enabled", "disabled", "loomi", "platforms", "extra", "other"]


@st.composite
def blocks(draw, names, depth=0):
    """A block mapping of some keys; those with room below hold another one."""
    text = ""
    for name in draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=3)):
        pad = "    " * depth
        if depth < 3 and draw(st.booleans()):
            inner = draw(blocks(NAMES, depth + 1))
            text += f"{pad}{name}:{draw(COMMENT)}\n{draw(GAP)}{inner}"
            continue
        value = draw(LEAF).replace("        ", pad + "  ")
        tail = draw(COMMENT) if "\n" not in value else ""
        text += f"{pad}{name}:{' ' if value[:1] != chr(10) else ''}{value}{tail}\n{draw(GAP)}"
    return text


@given(blocks(["plugins", "platforms", "display", "model"]), st.booleans())
@example("platforms:\n  loomi:\n    enabled:\n      enabled: 1\n    extra:\n      p: 1\n", False)
@example("platforms:\n  loomi:\n    enabled: |\n      a\n   # deep\nplugins:\n  p: 1\n", False)
@example('platforms:\n    loomi:\n        enabled: "a # b"  # mine\n', True)
def test_any_file_is_edited_without_a_loss_or_left_alone(body, newline):
    text = "base: &anchor {k: v}\n" + body
    text = text if newline else text.rstrip("\n")
    data = load(text)
    try:
        steps = plan(data, ENDPOINT, True)
        edited = yaml_edit.edit(text, steps)
    except yaml_edit.EditError:
        return
    loomi = load(edited)["platforms"]["loomi"]
    assert loomi["enabled"] is True
    assert plan(load(edited), ENDPOINT, True) == []
    # What was there is there, line by line, but for values that were null or turned on.
    before = (full(data).get("platforms") or {}).get("loomi") or {}
    if before.get("enabled") == "a # b":  # no comment, and turned on
        text = text.replace('enabled: "a # b"', "enabled: 1")
    was = [line for line in text.splitlines() if "#" in line or ": |" in line]
    rest = edited
    for line in was:
        comment = line[line.index("#") :] if "#" in line else line
        assert comment in rest
        rest = rest[rest.index(comment) + len(comment) :]


def full(data):
    """Without nulls and what is empty."""
    if not isinstance(data, dict):
        return data
    inner = {key: full(value) for key, value in data.items()}
    return {key: value for key, value in inner.items() if value not in (None, {}, [])}


@given(blocks(["plugins", "platforms", "display", "model"]), st.booleans())
def test_any_file_is_as_before_when_it_is_taken_out(body, streams):
    text = "base: &anchor {k: v}\n" + body
    try:
        edited = yaml_edit.edit(text, plan(load(text), ENDPOINT, streams))
        back = yaml_edit.edit(edited, leave(load(edited)))
    except yaml_edit.EditError:
        return
    was, found = load(text), load(back)
    for data in (was, found):  # the one value that install replaces
        if full(data.get("platforms") or {}).get("loomi"):
            data["platforms"]["loomi"].pop("enabled", None)
    assert full(found) == full(was)
    assert leave(found) == []
    comments = [line[line.index("#") :] for line in text.splitlines() if "#" in line]
    rest = back
    for comment in comments:
        assert comment in rest
        rest = rest[rest.index(comment) + len(comment) :]


def test_the_description_of_an_edit_error_names_no_content():
    with pytest.raises(yaml_edit.EditError) as caught:
        yaml_edit.load("key: 'sk-secret\n")
    assert "sk-secret" not in str(caught.value)
