"""What the documents promise is what the code has: names, tables, commands, frames."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import msgspec
import pytest

from loomid import __main__, cli, config, doors, errors
from loomid.errors import PhoneError, StartupError
from loomid.hub import HubConfig
from loomid.lmp import envelope, frames
from loomid.lmp.session import Code

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROTOCOL = (ROOT / "docs/protocol.md").read_text()
SCHEMA = json.loads((ROOT / "docs/lmp.schema.json").read_text())
TRY = "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/loomid --demo"
TEST = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest -n 4"


def rows(text, head):
    """The rows of the table that begins with this heading cell, as lists of cells."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {head} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def first(text, head):
    return [row[0].strip("`") for row in rows(text, head)]


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def examples():
    return [line for block in blocks(PROTOCOL, "json") for line in block.splitlines()]


# ── the two commands ────────────────────────────────────────────────────────


def test_the_two_commands():
    shown = [block.strip() for block in blocks(README, "sh")]
    assert TRY in shown
    assert TEST in shown


def test_ci_runs_the_readmes_test_command():
    script = (ROOT / ".ci/run").read_text()
    assert f"  {TEST}\n" in script
    assert "LOOMI_REQUIRE_HERMES=1" in script
    for tool in ("ruff check", "ruff format --check", "mypy", "lint-imports"):
        assert f"step {tool}\n" in script


# ── tables ──────────────────────────────────────────────────────────────────


def test_every_error_code():
    table = {row[0].strip("`"): row for row in rows(README, "code")}
    assert set(table) == set(PhoneError.codes)
    for code, cls in PhoneError.codes.items():
        assert table[code][2] == ("yes" if cls.proves_nothing_ran else "no"), code


def test_every_close_code():
    numbers = {value for name, value in vars(Code).items() if name.isupper()}
    assert {int(row[0]) for row in rows(README, "close code")} == numbers


def test_every_setting():
    table = rows(README, "variable")
    assert [row[0].strip("`") for row in table] == [config.variable(k) for k in config.SETTINGS]
    for variable, key, default, _meaning in table:
        setting = config.SETTINGS[key.strip("`")]
        assert variable.strip("`") == config.variable(key.strip("`"))
        assert default.replace("`", "") == setting.default


FILES = ("max_file_size", "max_files_size")


def test_every_bound_of_a_setting():
    told = {row[1].strip("`"): row[3] for row in rows(README, "variable")}
    for key in ("replay_window", "retention", "max_db_size", "max_frame_bytes", *FILES):
        with pytest.raises(ValueError, match="between") as refused:
            config.SETTINGS[key].parse("0")
        assert str(refused.value) in told[key]


def test_every_variable_that_is_no_setting():
    missing = [name for name in config.NOT_SETTINGS if name not in README]
    assert missing == []


def subclasses(cls):
    return {cls, *(each for one in cls.__subclasses__() for each in subclasses(one))}


def test_every_exit_status():
    assert first(README, "exit status of loomictl") == [str(code) for code in cli.EXIT_CODES]
    told = {int(code) for code in first(README, "exit status of loomid")}
    named = {cls.exit_code for cls in subclasses(StartupError) if cls.__module__ == errors.__name__}
    assert told == {0, __main__.CRASHED, 2, *named}


def leaves(command, *path):
    if not isinstance(command, click.Group):
        return {path: command}
    itself = {path: command} if command.invoke_without_command else {}
    return itself | {
        found: leaf
        for name, sub in command.commands.items()
        for found, leaf in leaves(sub, *path, name).items()
    }


def test_every_command_of_loomictl_and_its_options():
    table = {row[0].strip("`"): row[1] for row in rows(README, "command")}
    real = leaves(cli.main)
    by_path = {tuple(w for w in cell.split()[1:] if w.islower()): cell for cell in table}
    assert set(by_path) == set(real)
    for path, command in real.items():
        cell = by_path[path]
        arguments = [p.human_readable_name for p in command.params if isinstance(p, click.Argument)]
        assert cell.split()[1 + len(path) :] == arguments
        options = {o for p in command.params if isinstance(p, click.Option) for o in p.opts}
        assert set(re.findall(r"--[a-z-]+", table[cell])) == options - {"-h", "--help"}


def test_options_of_the_shell_blocks_exist():
    known = {"loomid": __main__.main, "loomictl": cli.main}
    seen = 0
    for line in "\n".join(blocks(README, "sh")).splitlines():
        line = line.partition("#")[0]
        for match in re.finditer(r"(?:^|/|&& )(loomid|loomictl)((?: [a-z-]+)*)(?= |$|&)", line):
            command = known[match[1]]
            if ".service" in line or ".socket" in line or "systemctl" in line or "ln " in line:
                continue
            for word in match[2].split():
                if word.startswith("--"):
                    assert word in {o for p in command.params for o in p.opts}
                else:
                    command = command.commands[word]
            seen += 1
    assert seen >= 5


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_certificate_and_the_settings_for_the_local_network(tmp_path):
    """The README's own commands, then the README's own loomid.toml beside what they made."""
    (commands,) = [block for block in blocks(README, "sh") if "openssl" in block]
    environ = {"HOME": str(tmp_path)}
    subprocess.run(
        ["sh", "-ec", commands], env=os.environ | environ, cwd="/", check=True, capture_output=True
    )
    (text,) = blocks(README, "toml")
    (tmp_path / ".config/loomid/loomid.toml").write_text(text)
    found = config.load({}, environ)
    assert found.listen_port == config.DEFAULT_PORT
    assert found.public_url is not None
    context, fingerprint = doors.tls_context(found)
    assert context is not None
    assert re.fullmatch("[0-9a-f]{64}", fingerprint)


def test_each_shell_block_is_for_the_folder_in_which_one_began():
    """They are pasted one after the other: none may leave the next in another folder."""
    lines = "\n".join(blocks(README, "sh")).splitlines()
    assert [line for line in lines if re.search(r"(^|[;&|] *)(cd|pushd)\b", line)] == []


def test_settings_are_shown_as_a_file_not_as_shell():
    """A line NAME=value in a shell sets nothing for loomid."""
    lines = [line for block in blocks(README, "sh") for line in block.splitlines()]
    assert [line for line in lines if line.startswith("LOOMI_")] == []


def test_the_socket_is_enabled_while_the_service_is_stopped():
    (block,) = [b for b in blocks(README, "sh") if "enable --now loomid.socket" in b]
    order = ["stop loomid ", "enable --now loomid.socket", "start loomid\n"]
    assert [block.index(step) for step in order] == sorted(block.index(step) for step in order)


def test_links_lead_somewhere():
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if not target.startswith("http"):
                assert (path.parent / target).exists(), (path.name, target)
    headings = re.findall(r"^#+ (.+)$", README, re.M)
    anchors = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
    for text in (README, PROTOCOL):
        for anchor in re.findall(r"\]\((?:\.\./README\.md)?#([^)]+)\)", text):
            assert anchor in anchors


# ── the protocol ────────────────────────────────────────────────────────────


def test_every_frame_type_is_described():
    assert first(PROTOCOL, "type") == list(frames.EVENTS)
    requests = rows(PROTOCOL[PROTOCOL.index("## Requests") :], "type")
    assert [row[0].strip("`") for row in requests] == list(frames.REQUESTS)
    assert [row[2].strip("`") for row in requests] == [f"{t}.result" for t in frames.REQUESTS]
    missing = [t for t in {**frames.SERVER, **frames.CLIENT} if f"`{t}`" not in PROTOCOL]
    assert [t for t in missing if t not in {"hello"}] == []
    assert '"type": "hello"' in PROTOCOL


@pytest.mark.parametrize("line", examples(), ids=range(len(examples())))
def test_examples_are_frames_with_known_fields_only(line):
    shown = json.loads(line)
    if "seq" in shown:
        frame, payload = envelope.decode_server(line)
        assert frame.event_id == f"e_{frame.seq}"
        assert set(shown) - {"replay"} == {
            "v", "seq", "ts", "type", "task_id", "run_id", "event_id", "payload"
        }  # fmt: skip
    else:
        payload = envelope.decode_client(line).payload
        assert payload is not None
    known = msgspec.json.decode(envelope.encode_payload(payload))
    assert shown["payload"].items() <= known.items()


def test_numbers_in_the_protocol_are_those_of_the_code():
    from loomid.lmp import session

    assert f"every {session.PING_EVERY_S:.0f} seconds" in PROTOCOL
    assert f"within {session.PONG_WITHIN_S:.0f}; after three misses" in PROTOCOL
    assert session.MAX_MISSES == 3
    assert f"last {config.MIN_REPLAY_WINDOW} events" in PROTOCOL
    assert f"{session.FRAMES_PER_S:.0f} frames a second" in PROTOCOL
    assert f"{session.MAX_WAITING} requests unanswered" in PROTOCOL
    defaults = {field.name: field.default for field in dataclasses.fields(HubConfig)}
    assert f"at most {defaults['max_first_bytes']:,} bytes" in PROTOCOL
    assert f"`limit` of them ({frames.TaskList().limit};" in PROTOCOL


def words_of(name):
    """The words that a field in the schema may have, of the type and field `Type.field`."""
    type_, field = name.split(".")
    shown = SCHEMA["$defs"][type_]["properties"][field]
    return [word for one in shown.get("anyOf", [shown]) for word in one.get("enum", [])]


@pytest.mark.parametrize(
    "name",
    [
        "RunDelta.kind",
        "ApprovalResolved.decided_by",
        "ApprovalResolved.outcome",
        "Notification.category",
        "RunResult.state",
        "SessionSend.mode",
        "TaskList.status_filter",
    ],
)
def test_every_word_of_a_field_is_told(name):
    assert words_of(name)
    assert [word for word in words_of(name) if f"`{word}`" not in PROTOCOL] == []


@pytest.mark.parametrize(
    "type_", ["HelloOk", "RunStarted", "RunCompleted", "ApprovalRequired", "Notification"]
)
def test_fields_that_a_name_does_not_explain_are_told(type_):
    plain = {"server_name", "server_version", "device_id", "run_id", "task_id", "title", "text"}
    plain |= {"protocol_version", "session_id", "model", "provider", "started_at", "description"}
    plain |= {"approval_id", "heartbeat", "limits", "requires_attention"}
    fields = set(SCHEMA["$defs"][type_]["properties"]) - plain
    assert [field for field in sorted(fields) if f"`{field}" not in PROTOCOL] == []


def told():
    """All names in the protocol's text and examples that stand for themselves."""
    names = {name for code in re.findall(r"`([^`\n]+)`", PROTOCOL) for name in words(code)}
    return names | {name for line in examples() for name in re.findall(r'"(\w+)"', line)}


def words(code):
    return re.findall(r"\w+", code)


@pytest.mark.parametrize("type_", SCHEMA["$defs"])
def test_every_field_of_every_type_is_told(type_):
    fields = SCHEMA["$defs"][type_].get("properties", {})
    assert [field for field in fields if field not in told()] == []


def test_the_documents_speak_of_the_product_alone():
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"/tmp/|\bTODO\b|\bFIXME\b", path.read_text()), path.name


def test_each_module_has_its_row() -> None:
    """Who looks for where to change something finds it in the table."""
    told = (ROOT / "docs/internals.md").read_text()
    table = told.partition("## Who owns what")[2].partition("\n## ")[0]
    files = [*ROOT.glob("loomid/**/*.py"), *ROOT.glob("hermes_shim/*.py")]
    modules = [one.name for one in files if not one.name.startswith("__")]
    assert len(modules) > 100
    assert [name for name in modules if not re.search(rf"[`/]{name}`", table)] == []
