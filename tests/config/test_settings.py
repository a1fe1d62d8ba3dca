"""Settings: every source, their order, and a fault that names where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from loomid import config, values
from loomid.errors import ConfigError

NOTHING = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def _no_system_file(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "etc.toml")


def write(path: Path, text: str) -> dict[str, str | None]:
    path.write_text(text)
    return {"config": str(path)}


def fault(overrides=None, environ=None) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(overrides or {}, NOTHING | (environ or {}))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults():
    found = config.load({}, NOTHING)
    assert found.listen == "127.0.0.1:8770"
    assert found.state_dir == Path("/home/ada/.local/state/loomid")
    assert found.runtime_dir == found.state_dir / "run"
    assert (found.replay_window, found.retention_s) == (512, 7 * 86400)
    assert (found.tls, found.public_url, found.allow_insecure_bind) == (False, None, False)
    assert (found.max_frame_bytes, found.max_db_bytes) == (1 << 20, 1 << 30)
    assert found.name


def test_command_line_over_environment_over_file(tmp_path):
    file = write(tmp_path / "l.toml", 'listen = "127.0.0.1:1"\nname = "file"\nretention = 60\n')
    environ = NOTHING | {"LOOMI_LISTEN": "127.0.0.1:2", "LOOMI_NAME": "environ"}
    found = config.load(file | {"listen": "127.0.0.1:3", "state_dir": None}, environ)
    assert (found.listen, found.name, found.retention_s) == ("127.0.0.1:3", "environ", 60)


def test_every_key_from_a_file(tmp_path):
    file = write(
        tmp_path / "l.toml",
        'listen = "[::1]:0"\nstate_dir = "s"\nruntime_dir = "/run/x"\ntls_cert = "c.pem"\n'
        'tls_key = "~/k.pem"\npublic_url = "wss://h.example"\nname = "Küche"\n'
        'replay_window = 1024\nretention = "12h"\nallow_insecure_bind = true\n'
        'max_frame_bytes = 65536\nmax_db_size = "2 GiB"\n'
        'max_file_size = "16MiB"\nmax_files_size = "2MiB"\n',
    )
    assert set(config.SETTINGS) <= {
        line.split(" ")[0] for line in (tmp_path / "l.toml").read_text().splitlines()
    }
    found = config.load(file, NOTHING)
    assert (found.listen_host, found.listen_port, found.listen) == ("::1", 0, "[::1]:0")
    assert found.state_dir == tmp_path / "s"
    assert found.tls_cert == tmp_path / "c.pem"
    assert found.tls_key is not None
    assert found.tls_key.is_absolute()
    assert found.public_url == "wss://h.example/ws"
    assert (found.name, found.replay_window, found.retention_s) == ("Küche", 1024, 43200)
    assert (found.allow_insecure_bind, found.max_frame_bytes) == (True, 65536)
    assert found.max_db_bytes == 2 << 30
    assert (found.max_file_bytes, found.max_files_bytes) == (16 << 20, 2 << 20)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("64MiB", 64 << 20), ("67108864", 64 << 20), (1 << 40, 1 << 40), ("65536 kib", 64 << 20)],
)
def test_sizes(said, meant):
    assert values.size(64 << 20, 1 << 40)(said) == meant


@pytest.mark.parametrize("said", ["63MiB", "2TiB", "1GB", "-1", "", "1.5GiB", 1e9, True, None])
def test_what_is_no_size(said):
    with pytest.raises(ValueError, match=r"1GiB|between 64MiB"):
        values.size(64 << 20, 1 << 40)(said)


def test_the_largest_frame_takes_units():
    assert config.load({}, NOTHING | {"LOOMI_MAX_FRAME_BYTES": "2MiB"}).max_frame_bytes == 2 << 20
    assert "between 16KiB and 64MiB" in fault(environ={"LOOMI_MAX_FRAME_BYTES": "1KiB"})


def test_where_the_file_is(tmp_path, monkeypatch):
    home = tmp_path / "loomid"
    home.mkdir()
    write(home / "loomid.toml", 'name = "xdg"')
    write(tmp_path / "named.toml", 'name = "named"')
    environ = NOTHING | {"XDG_CONFIG_HOME": str(tmp_path)}
    assert config.load({}, environ).name == "xdg"
    environ["LOOMI_CONFIG"] = str(tmp_path / "named.toml")
    assert config.load({}, environ).name == "named"
    monkeypatch.setattr(config, "SYSTEM_FILE", tmp_path / "named.toml")
    assert config.load({}, NOTHING).name == "named"


def test_directories_of_the_service_manager():
    environ = NOTHING | {
        "STATE_DIRECTORY": "/var/lib/loomid",
        "RUNTIME_DIRECTORY": "/run/loomid",
        "XDG_STATE_HOME": "/x/state",
        "XDG_RUNTIME_DIR": "/run/user/1",
    }
    found = config.load({}, environ)
    assert (found.state_dir, found.runtime_dir) == (Path("/var/lib/loomid"), Path("/run/loomid"))
    del environ["STATE_DIRECTORY"], environ["RUNTIME_DIRECTORY"]
    found = config.load({}, environ)
    assert found.state_dir == Path("/x/state/loomid")
    assert found.runtime_dir == Path("/run/user/1/loomid")


def test_clients_do_not_read_the_service_managers_directories():
    environ = NOTHING | {"STATE_DIRECTORY": "/hermes", "RUNTIME_DIRECTORY": "/hermes"}
    environ |= {"LOOMI_RUNTIME_DIR": "/a", "XDG_RUNTIME_DIR": "/run/user/1"}
    assert config.admin_places({}, environ) == [
        Path("/a"),
        Path("/run/user/1/loomid"),
        Path("/run/loomid"),
        Path("/home/ada/.local/state/loomid/run"),
    ]
    assert config.admin_places({"runtime_dir": "/b"}, environ) == [Path("/b")]


def test_clients_look_where_the_file_says(tmp_path):
    write(tmp_path / "l.toml", 'runtime_dir = "/srv/loomi"')
    environ = NOTHING | {"LOOMI_CONFIG": str(tmp_path / "l.toml")}
    assert Path("/srv/loomi") in config.admin_places({}, environ)


@pytest.mark.parametrize("text", ["broken", "retension = 1", "listen = 1"])
def test_clients_look_in_the_usual_places_when_the_file_is_at_fault(tmp_path, text):
    """It may have become so after loomid started."""
    write(tmp_path / "l.toml", text)
    environ = NOTHING | {"LOOMI_CONFIG": str(tmp_path / "l.toml")}
    usual = [Path("/run/loomid"), Path("/home/ada/.local/state/loomid/run")]
    assert config.admin_places({}, environ) == usual
    assert config.admin_places({}, environ | {"STATE_DIRECTORY": "/hermes"}) == usual
    assert config.admin_places({"state_dir": "/s"}, environ)[1:] == [Path("/s/run")]
    assert config.admin_places({}, environ | {"LOOMI_STATE_DIR": "/s"})[1:] == [Path("/s/run")]
    del environ["HOME"]
    assert config.admin_places({}, environ) == usual[:1]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("LOOMI_RETENSION", "; is LOOMI_RETENTION meant?"),
        ("LOOMI_PUBLICURL", "; is LOOMI_PUBLIC_URL meant?"),
        ("LOOMI_PORT", ""),
    ],
)
def test_a_misspelt_variable_is_told_its_name(name, meant):
    expected = f"environment variable {name}: there is no such setting{meant}"
    assert fault(environ={name: "1"}) == expected


@pytest.mark.parametrize(
    ("key", "meant"),
    [("lisen", "; is listen meant?"), ("LOOMI_LISTEN", "; is listen meant?"), ("colour", "")],
)
def test_a_misspelt_key_is_told_its_name(tmp_path, key, meant):
    path = tmp_path / "l.toml"
    said = fault(write(path, f"{key} = 1\n"))
    assert said == f"{path}:1: {key}: there is no such setting{meant}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n\nlisen = 'x'\n", 3),
        ("# listen\n[listen]\nport = 1\n", 2),
        ("name = 'a'\nretention = 'soon'\n", 2),
        ("name = 'a'\nreplay_window = 511\n", 2),
        ("name = 1\n", 1),
        ("allow_insecure_bind = 'maybe'", 1),
        ("name = 'a'\nname = 'b'\n", 2),
        ("\nname = \n", 2),
        ("name = 'a'\n\n'odd key' = 1\n", 3),
        ("a.b = 1", 1),
    ],
)
def test_a_fault_in_the_file_names_its_line(tmp_path, text, line):
    path = tmp_path / "l.toml"
    assert fault(write(path, text)).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize("text", ["listen = 0.0.0.0:8770\n", "name = Kitchen\n"])
def test_a_text_without_quotes(tmp_path, text):
    said = fault(write(tmp_path / "l.toml", text))
    assert said.endswith('; texts need quotes: key = "text"')


@pytest.mark.parametrize("text", ["[loomid]\nname = 'a'\n", "[listen]\n", "listen.port = 1\n"])
def test_a_table_in_the_file(tmp_path, text):
    assert "no tables are needed" in fault(write(tmp_path / "l.toml", text))


def test_a_file_that_cannot_be_read(tmp_path):
    assert "No such file" in fault({"config": str(tmp_path / "none.toml")})
    assert "Is a directory" in fault({"config": str(tmp_path)})
    (tmp_path / "l.toml").write_bytes(b"name = 'a'\n# \xff\n")
    assert fault({"config": str(tmp_path / "l.toml")}).endswith("l.toml:2: not UTF-8 text")


def test_a_fault_in_the_environment_names_the_variable():
    assert "LOOMI_LISTENN" in fault(environ={"LOOMI_LISTENN": "x"})
    assert "LOOMI_LISTEN: " in fault(environ={"LOOMI_LISTEN": "8770"})


def test_variables_that_are_not_ours():
    environ = NOTHING | dict.fromkeys(set(config.NOT_SETTINGS) - {"LOOMI_CONFIG"}, "1")
    assert config.load({}, environ | {"LOOMI_NAME": "", "OTHER": "1"}).name


@pytest.mark.parametrize("has", ["cert", "key"])
def test_certificate_without_key(has):
    assert "both or neither" in fault(environ={f"LOOMI_TLS_{has.upper()}": "/x"})


@pytest.mark.parametrize(
    "text",
    [
        "8770",
        ":8770",
        "h:",
        "h:x",
        "h:65536",
        "::1:80",
        "[::1]",
        "[x]:1",
        "a b:1",
        "h:-1",
        "",
        "h:\u0661",
    ],
)
def test_listen_refuses(text):
    with pytest.raises(ValueError, match=r"."):
        values.parse_listen(text)


def test_listen_takes():
    assert values.parse_listen("localhost:0") == ("localhost", 0)
    assert values.parse_listen("[::]:8770") == ("::", 8770)
    assert values.parse_listen(" 0.0.0.0:1 ") == ("0.0.0.0", 1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604800), ("1.5 h", 5400), ("90", 90), (3600, 3600), ("2w", 1209600)],
)
def test_durations(text, seconds):
    assert values.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1", "0", "7 days", True, None, "1e9", float("nan")])
def test_durations_refused(text):
    with pytest.raises(ValueError, match=r"."):
        values.parse_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://h/ws",
        "wss://",
        "wss:///ws",
        "wss://u:p@h/ws",
        "wss://h/ws?token=x",
        "wss://h:0/ws",
        "wss://h:x/ws",
        "wss://h/w s",
        "h",
        3,
    ],
)
def test_urls_refused(text):
    with pytest.raises(ValueError, match=r"."):
        values.phone_url(text)


def test_urls():
    assert values.phone_url("ws://[::1]:8770") == "ws://[::1]:8770/ws"
    assert values.phone_url("wss://h/loomi/ws") == "wss://h/loomi/ws"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "[::1]",
        "::1%lo",
        "::ffff:127.0.0.1",
        "LocalHost",
        "localhost.",
    ],
)
def test_loopback(host):
    assert values.is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "localhost.example", "h"])
def test_not_loopback(host):
    assert not values.is_loopback(host)
