"""`loomictl hermes install`: files, pyzmq and repetition, against real interpreters."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from loomid import hermes_python, installer
from loomid.installer import InstallError, plugin_files
from tests.support.loomictl import loomictl

ENDPOINT = "ipc:///run/loomid/hermes.sock"
ME = Path(sys.executable)


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "hermes home"
    home.mkdir()
    return home


@pytest.fixture
def bare(tmp_path):
    """An interpreter with neither pip nor pyzmq, as uv makes them."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


def install(home, python, endpoint):
    return installer.install(home, python, endpoint).done


def tree(root):
    return {
        str(path.relative_to(root)): (path.lstat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_installs_once(home):
    installed = installer.install(home, ME, ENDPOINT)
    lines = installed.done
    plugin = home / "plugins" / "loomi"
    assert {p.name: p.read_bytes() for p in plugin.iterdir() if p.is_file()} == plugin_files()
    assert "wire.py" in plugin_files()
    assert not list(plugin.rglob("__pycache__"))
    assert any("files written" in line for line in lines)
    assert any("pyzmq" in line for line in lines)
    assert installed.next == "Restart the Hermes gateway so that it loads the plugin."
    before = tree(home)
    assert install(home, ME, ENDPOINT) == []
    assert tree(home) == before


def test_repairs_and_removes_stale_files(home):
    install(home, ME, ENDPOINT)
    plugin = home / "plugins" / "loomi"
    (plugin / "wire.py").write_text("damaged")
    (plugin / "old.py").write_text("")
    (plugin / "olddir").mkdir()
    (plugin / "olddir" / "x.py").write_text("")
    (plugin / "__pycache__").mkdir()
    (plugin / "_vendor").mkdir(exist_ok=True)
    (plugin / "_vendor" / "keep").write_text("")
    lines = install(home, ME, ENDPOINT)
    assert any("1 files written, 2 stale files removed" in line for line in lines)
    assert {p.name for p in plugin.iterdir()} == {*plugin_files(), "_vendor"}
    assert (plugin / "wire.py").read_bytes() == plugin_files()["wire.py"]
    assert (plugin / "_vendor" / "keep").exists()


def test_bytecode_of_a_running_hermes_is_no_change(home):
    install(home, ME, ENDPOINT)
    (home / "plugins" / "loomi" / "__pycache__").mkdir()
    assert install(home, ME, ENDPOINT) == []


def test_home_that_is_not_there(tmp_path):
    with pytest.raises(InstallError, match="no Hermes home"):
        install(tmp_path / "nowhere", ME, ENDPOINT)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("change", [lambda home: install(home, ME, ENDPOINT), installer.uninstall])
@pytest.mark.parametrize("what", ["link", "other"])
def test_leaves_what_is_not_ours(home, tmp_path, what, change):
    plugin = home / "plugins" / "loomi"
    plugin.parent.mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "plugin.yaml").write_text("name: loomi\n")
    if what == "link":
        plugin.symlink_to(theirs)
    else:
        theirs.rename(plugin)
    with pytest.raises(InstallError, match="run this again"):
        change(home)
    assert (plugin / "plugin.yaml").read_text() == "name: loomi\n"
    assert not (home / "config.yaml").exists()


@pytest.mark.parametrize("what", ["missing", "not python", "directory"])
def test_interpreter_that_is_none(home, tmp_path, what):
    python = tmp_path / "python"
    if what == "not python":
        python.write_text("#!/bin/sh\necho no such thing >&2; exit 3\n")
        python.chmod(0o755)
    elif what == "directory":
        python.mkdir()
    with pytest.raises(InstallError, match="does not work as a Python interpreter"):
        install(home, python, ENDPOINT)
    assert not (home / "plugins").exists()


def test_a_broken_config_is_not_touched(home):
    config = home / "config.yaml"
    config.write_text("a: [1\nb: secret-word\n")
    with pytest.raises(InstallError, match="line 2") as caught:
        install(home, ME, ENDPOINT)
    assert "secret-word" not in str(caught.value)
    assert config.read_text() == "a: [1\nb: secret-word\n"


# ── pyzmq ───────────────────────────────────────────────────────────────────


def offline():
    command = [sys.executable, "-m", "pip", "index", "versions", "pyzmq"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0


@pytest.fixture
def registry():
    if os.environ.get("LOOMI_REQUIRE_HERMES") != "1" and offline():
        pytest.skip("no package index can be reached")


def test_says_why_a_pyzmq_does_not_load(tmp_path):
    (tmp_path / "zmq").mkdir()
    (tmp_path / "zmq" / "__init__.py").write_text("raise ImportError('no such\\nlibrary')\n")
    found = hermes_python.probe(ME, tmp_path)
    assert (found.zmq, found.no_zmq) == (None, "ImportError: no such library")


@pytest.mark.timeout(180)
def test_a_home_named_from_here(home, bare, registry, monkeypatch):
    """What is run for it runs elsewhere."""
    monkeypatch.chdir(home.parent)
    lines = install(Path("hermes home"), bare, ENDPOINT)
    assert (home / "plugins" / "loomi" / "_vendor" / "zmq").is_dir()
    assert any(str(home / "plugins" / "loomi") in line for line in lines)
    assert install(Path("hermes home"), bare, ENDPOINT) == []


@pytest.mark.timeout(180)
def test_vendors_pyzmq_for_an_interpreter_without_pip(home, bare, registry):
    lines = install(home, bare, ENDPOINT)
    vendor = home / "plugins" / "loomi" / "_vendor"
    assert any(str(vendor) in line and "pyzmq" in line for line in lines)
    assert not list(vendor.rglob("__pycache__"))
    code = f"import sys; sys.path.append({str(vendor)!r}); import zmq; print(zmq.__file__)"
    shown = subprocess.check_output([bare, "-Bc", code], text=True)
    assert shown.startswith(str(vendor))
    before = tree(home)
    assert install(home, bare, ENDPOINT) == []
    assert tree(home) == before
    # One that does not load any more (another Python, say) is replaced.
    (vendor / "zmq" / "__init__.py").write_text("raise ImportError\n")
    assert any("pyzmq" in line for line in install(home, bare, ENDPOINT))
    assert subprocess.check_output([bare, "-Bc", code], text=True) == shown
    assert not [p for p in vendor.parent.iterdir() if p.name.startswith(".")]


def test_an_interpreter_with_pyzmq_gets_one_beside_it_too(home, registry):
    lines = install(home, ME, ENDPOINT)
    vendor = home / "plugins" / "loomi" / "_vendor"
    assert any(str(vendor) in line and "pyzmq" in line for line in lines)
    assert (vendor / "zmq" / "__init__.py").exists()


def test_its_own_pyzmq_does_when_none_can_be_had(home, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (found,) = installer.install(home, ME, ENDPOINT).found
    assert "own pyzmq is used" in found
    assert install(home, ME, ENDPOINT) == []


def test_says_when_no_wheel_can_be_had(home, bare, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(InstallError, match=r"cannot install pyzmq.*: .*run this again"):
        install(home, bare, ENDPOINT)
    assert not list((home / "plugins" / "loomi").glob(".vendor*"))


# ── finding Hermes ──────────────────────────────────────────────────────────


def make_hermes(venv_dir, version="0.19.3", name="hermes", *, aiohttp=True):
    """An environment that looks like one with Hermes in it; returns its script's path."""
    venv.create(venv_dir, with_pip=False)
    python = venv_dir / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([python, "-c", code], text=True).strip())
    (site / "hermes_cli.py").write_text("")
    if aiohttp:
        (site / "aiohttp.py").write_text("")
    (site / f"hermes_agent_x-{version}.dist-info").mkdir()
    (site / f"hermes_agent_x-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: hermes-agent-x\nVersion: {version}\n"
    )
    script = venv_dir / "bin" / name
    script.write_text(f"#!{python}\nimport hermes_cli\n")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("way", ["direct", "link", "wrapper", "long path", "in the home"])
def test_finds_the_interpreter_of_hermes(tmp_path, home, way):
    place = {"in the home": home / "hermes-agent" / "venv", "long path": tmp_path / "a b"}
    script = make_hermes(place.get(way, tmp_path / "hv"))
    path = tmp_path / "bin"
    path.mkdir()
    if way == "link":
        (path / "hermes").symlink_to(script)
    elif way == "wrapper":
        (path / "hermes").write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{script}" "$@"\n')
        (path / "hermes").chmod(0o755)
    elif way == "direct":
        script.rename(path / "hermes")
    elif way == "long path":
        head = f"#!/bin/sh\n'''exec' \"{script.parent}/python\" \"$0\" \"$@\"\n' '''\n"
        (path / "hermes").write_text(head)
        (path / "hermes").chmod(0o755)
    found = hermes_python.find(home, home / "none", {"PATH": str(path)})
    assert found is not None
    assert found.path == script.parent / "python"
    assert found.hermes_version == "0.19.3"
    assert found.zmq is None


def test_without_hermes_it_says_which_python_it_took(home, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    doubt = installer.install(home, None, ENDPOINT).doubt
    assert doubt.startswith(f"no Hermes was found, and pyzmq is for loomid's own Python, {ME}")
    assert "--python" in doubt


def test_a_python_without_hermes_is_named_last_each_time(home, tmp_path):
    for said in ("Restart", "Everything is there already"):
        command = ("hermes", "install", "--home", str(home), "--python", str(ME))
        done = loomictl(None, *command, home=tmp_path)
        assert (done.returncode, said in done.stdout) == (1, True), done
        assert done.stderr.startswith(f"loomictl: warning: {ME} has no Hermes")
        assert "display.platforms.loomi.streaming is left out" in done.stderr


def test_a_later_run_tells_what_it_found_and_what_is_still_to_do(home, tmp_path):
    """The first did not find Hermes, and the running gateway may not have the plugin yet."""
    command = ("hermes", "install", "--home", str(home))
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert loomictl(None, *command, home=tmp_path, PATH=str(nothing)).returncode == 1
    script = make_hermes(tmp_path / "hv", "0.20.1.2")
    for _ in range(2):
        done = loomictl(None, *command, home=tmp_path, PATH=str(script.parent))
        assert (done.returncode, done.stderr) == (0, "")
        said = done.stdout.splitlines()
        assert said[0] == f"Hermes 0.20.1.2 runs with {script.with_name('python')}."
        assert "hermes gateway restart" in said[-1]
    unless = "Restart the Hermes gateway, unless that was done since, so that it loads the plugin: "
    assert said[1] == "Everything is there already; nothing was changed."
    assert said[2].startswith(unless)
    assert len(said) == 3


def test_a_python_with_hermes_is_no_doubt(home, tmp_path):
    python = make_hermes(tmp_path / "hv").parent / "python"
    installed = installer.install(home, python, ENDPOINT)
    assert installed.doubt is None
    assert any("display.platforms.loomi.streaming: true" in line for line in installed.done)


# ── what to do next ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "name", "aiohttp", "said"),
    [
        ("0.19.3", "hermes", False, "hermes gateway restart"),
        (
            "0.20.1.2",
            "hermesx",
            False,
            "hermesx gateway restart (Hermes 0.20 stops the gateways",
        ),
        ("0.22.2.post1", "hermes", True, "hermes gateway restart"),
        ("0.22.2.post1", "hermes", False, "hermes gateway run --replace (in a terminal"),
        ("1.0", "hermes", False, "hermes gateway restart"),
    ],
)
def test_the_command_that_restarts_this_hermes(
    home, tmp_path, monkeypatch, version, name, aiohttp, said
):
    script = make_hermes(tmp_path / "hv", version, name, aiohttp=aiohttp)
    told = "Restart the Hermes gateway so that it loads the plugin: "
    last = installer.install(home, script.with_name("python"), ENDPOINT).next
    assert last.startswith(f"{told}HERMES_HOME='{home}' {script.parent}/{said}")
    assert last.endswith(("restart", "again)", "fails)"))
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setenv("HERMES_HOME", str(home))
    (home / "config.yaml").unlink()
    assert installer.install(home, None, ENDPOINT).next.startswith(f"{told}{said}")


def test_without_hermes_no_command_is_named(home):
    assert installer.install(home, ME, ENDPOINT).next.endswith("loads the plugin.")


# ── and out again ───────────────────────────────────────────────────────────


def test_uninstall_leaves_the_home_as_it_was(home, tmp_path, monkeypatch):
    script = make_hermes(tmp_path / "hv")
    monkeypatch.setenv("PATH", str(script.parent))
    (home / "plugins" / "other").mkdir(parents=True)
    (home / "plugins" / "other" / "plugin.yaml").write_text("name: other\n")
    (home / "config.yaml").write_text("# mine\nmodel: x\n")
    before = tree(home)
    install(home, script.with_name("python"), ENDPOINT)
    (home / "plugins" / "loomi" / "__pycache__").mkdir(exist_ok=True)
    (home / "loomi").mkdir()
    (home / "loomi" / "gateway_id").write_text("abc")
    command = ("hermes", "uninstall", "--home", str(home))
    done = loomictl(None, *command, home=tmp_path, PATH=str(script.parent))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "config.yaml: platforms.loomi.enabled: removed" in lines
    assert f"{home}/plugins/loomi: removed" in lines
    assert lines[-1].startswith("Restart the Hermes gateway so that it lets go of the plugin: ")
    assert lines[-1].endswith("hermes gateway restart")
    left = {name: content for name, (_, content) in tree(home).items()}
    assert left == {name: content for name, (_, content) in before.items()} | {
        "loomi/gateway_id": b"abc"
    }
    assert not (home / "plugins" / "loomi").exists()
    (home / "loomi" / "gateway_id").unlink()
    (home / "loomi").rmdir()
    again = loomictl(None, *command, home=tmp_path)
    assert again.stdout == "Nothing of the plugin is there; nothing was changed.\n"


def test_uninstall_removes_nothing_when_the_config_cannot_be_edited(home):
    install(home, ME, ENDPOINT)
    (home / "config.yaml").write_text("a: [1\n")
    with pytest.raises(InstallError, match="nothing was changed there"):
        installer.uninstall(home)
    assert (home / "plugins" / "loomi" / "wire.py").exists()


def test_uninstall_where_there_is_no_home(tmp_path):
    with pytest.raises(InstallError, match="no Hermes home"):
        installer.uninstall(tmp_path / "nowhere")


def test_the_home_that_hermes_would_use(monkeypatch):
    assert installer.hermes_home({"HERMES_HOME": "/x"}) == Path("/x")
    assert installer.hermes_home({}) == Path.home() / ".hermes"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_leaves_everything_to_the_account_of_the_home(home):
    os.chown(home, 12345, 12346)
    install(home, ME, ENDPOINT)
    paths = [p for p in home.rglob("*") if p != home]
    assert len(paths) > 3
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in paths} == {(12345, 12346)}
